"""The admin API: status, limits, drain and journal over HTTP, on a listener of its own."""

import hmac
import ipaddress
import logging
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, Protocol

from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException as StarletteHTTPException

from surgetank import __version__
from surgetank.admission.limits import LimitError
from surgetank.control.actions import Actions, Change, UnknownName, WouldWorsen
from surgetank.control.acts import (
    DRY_RUN,
    FLEET,
    FORCE,
    MAX_TTL,
    ChangeOut,
    Ending,
    FleetEnding,
    Reason,
)
from surgetank.control.api_backends import add_backends
from surgetank.control.api_insight import add_insight
from surgetank.control.api_policy import add_policies
from surgetank.control.apidocs import page
from surgetank.control.backend_drains import BackendDrains
from surgetank.control.console.feed import Feed
from surgetank.control.console.routes import add_console
from surgetank.control.fleet.membership import FleetOut
from surgetank.control.insight.service import Insight
from surgetank.control.inspection import Inspection, StacksOut
from surgetank.control.journal import Entry
from surgetank.control.stepviews import KvOut, StepsOut
from surgetank.control.trials import Trials
from surgetank.control.views import LimitOut, StatusOut
from surgetank.engine.ring import RingError

logger = logging.getLogger(__name__)
_CODES = {
    400: "bad_request",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    409: "would_worsen",
    410: "gone",
}


class Service(Protocol):
    """What the API shows and acts upon."""

    @property
    def actions(self) -> Actions:
        """What an operator may do."""

    @property
    def inspection(self) -> Inspection:
        """A look inside the processes."""

    @property
    def insight(self) -> Insight:
        """What is going on, and why."""

    @property
    def trials(self) -> Trials:
        """Policies in their parts."""

    @property
    def backend_drains(self) -> BackendDrains:
        """A drain for each engine."""

    @property
    def feed(self) -> Feed:
        """What the console follows."""

    def status(self) -> StatusOut:
        """The service now."""

    def entries(self, last: int) -> list[Entry]:
        """The journal's newest entries, oldest of them first."""


class SetLimit(Reason):
    """An override."""

    value: float = Field(allow_inf_nan=False)
    ttl: float = Field(gt=0, le=MAX_TTL, allow_inf_nan=False, description="seconds")
    dry_run: bool = DRY_RUN
    force: bool = FORCE


class BeginDrain(Reason):
    """A drain; without a ttl it lasts until undrain."""

    ttl: float | None = Field(default=None, gt=0, le=MAX_TTL, description="seconds")
    dry_run: bool = DRY_RUN
    fleet: bool = FLEET


class LimitsOut(BaseModel):
    """Every limit."""

    limits: list[LimitOut]


class JournalOut(BaseModel):
    """Changes, oldest first."""

    entries: list[dict[str, Any]]


def create_app(service: Service, token: str = "") -> FastAPI:
    """The application. Every error has the shape {"error": {"code", "message"}}."""
    app = FastAPI(
        title="Surgetank admin API",
        version=__version__,
        dependencies=[Depends(_guard(token))],
        docs_url=None,  # FastAPI's own pages load their scripts from the internet
        redoc_url=None,
        redirect_slashes=False,
    )
    _add_error_handlers(app)
    _add_reading(app, service)
    _add_inspecting(app, service.inspection)
    add_insight(app, service)
    add_policies(app, service)
    add_backends(app, service)
    _add_acting(app, service)
    add_console(app, service.feed)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page(app.openapi()))

    return app


def _add_reading(app: FastAPI, service: Service) -> None:
    @app.get("/health")
    async def health() -> dict[str, str]:
        """Whether the admin API answers."""
        return {"status": "ok"}

    @app.get("/version")
    async def version() -> dict[str, str]:
        """What is running."""
        return {"version": __version__}

    @app.get("/status")
    async def status() -> StatusOut:
        """State, engine, requests, limits."""
        return service.status()

    @app.get("/limits")
    async def limits() -> LimitsOut:
        """Every limit: its value, its usage, who overrides it."""
        return LimitsOut(limits=service.status().limits)

    @app.get("/fleet")
    async def fleet() -> FleetOut:
        """What is shared with other sidecars; 404 without."""
        fleet = service.status().fleet
        if fleet is None:
            raise HTTPException(404, "this service shares nothing")
        return fleet

    @app.get("/journal")
    async def journal(last: Annotated[int, Query(ge=1, le=1000)] = 50) -> JournalOut:
        """The newest changes."""
        return JournalOut(entries=[_entry_out(entry) for entry in service.entries(last)])


def _add_inspecting(app: FastAPI, inspection: Inspection) -> None:
    """These read files and wait: not async, so that they run in threads of their own."""

    @app.get("/steps")
    def steps(last: Annotated[int, Query(ge=1, le=1_000_000)] = 20, slow: bool = False) -> StepsOut:
        """The engine's newest steps; slow: only those above three times the median."""
        return inspection.steps(last, slow)

    @app.get("/kv")
    def kv() -> KvOut:
        """The KV pool: blocks, fragmentation, prefix hits, holders by class."""
        return inspection.kv()

    @app.get("/stacks")
    def stacks() -> StacksOut:
        """The Python stacks of engine and sidecar."""
        return inspection.stacks()


def _add_acting(app: FastAPI, service: Service) -> None:
    @app.put("/limits/{name}")
    async def set_limit(name: str, body: SetLimit) -> ChangeOut:
        """Override a limit until its ttl is over."""
        return _change_out(service.actions.set_limit(name, **body.model_dump()))

    @app.delete("/limits/{name}")
    async def clear_limit(name: str, body: Ending) -> ChangeOut:
        """End a limit's override now."""
        return _change_out(service.actions.clear_limit(name, **body.model_dump()))

    @app.post("/drain")
    async def drain(body: BeginDrain) -> ChangeOut:
        """Refuse new requests; those in flight complete."""
        return _change_out(service.actions.drain(**body.model_dump()))

    @app.post("/undrain")
    async def undrain(body: FleetEnding) -> ChangeOut:
        """Take new requests again."""
        return _change_out(service.actions.undrain(**body.model_dump()))


def _entry_out(entry: Entry) -> dict[str, Any]:
    return {field: getattr(entry, field) for field in entry.__struct_fields__}


def _change_out(change: Change) -> ChangeOut:
    return ChangeOut(**asdict(change))


def _guard(token: str) -> Callable[[Request], None]:
    """Who may call: the bearer of the token; without one, whoever reaches the listener by address.

    A web page that a browser on this machine shows could reach it too, by a name of its own that
    resolves to loopback or by a form: names are therefore refused without a token.
    """

    def check(request: Request) -> None:
        if token:
            given = request.headers.get("authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
                raise HTTPException(401, "a bearer token is needed", {"WWW-Authenticate": "Bearer"})
        elif not _is_address(request.url.hostname or ""):
            raise HTTPException(
                403, "without a token only an IP address or localhost is allowed as Host"
            )

    return check


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


def _add_error_handlers(app: FastAPI) -> None:
    def error(status: int, message: str, headers: Any = None) -> JSONResponse:
        code = _CODES.get(status, "invalid" if status == 422 else "failed")
        body = {"error": {"code": code, "message": message}}
        return JSONResponse(body, status, headers)

    @app.exception_handler(StarletteHTTPException)
    async def on_http(_: Request, caught: StarletteHTTPException) -> JSONResponse:
        return error(caught.status_code, str(caught.detail), caught.headers)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_: Request, caught: RequestValidationError) -> JSONResponse:
        fault = caught.errors()[0]
        place = ".".join(str(part) for part in fault["loc"][1:]) or "body"
        return error(422, f"{place}: {fault['msg'].removeprefix('Value error, ')}")

    @app.exception_handler(LimitError)
    async def on_limit(_: Request, caught: LimitError) -> JSONResponse:
        return error(422, str(caught))

    @app.exception_handler(RingError)
    async def on_ring(_: Request, caught: RingError) -> JSONResponse:
        return error(503, str(caught))

    @app.exception_handler(WouldWorsen)
    async def on_worse(_: Request, caught: WouldWorsen) -> JSONResponse:
        return error(409, str(caught))

    @app.exception_handler(UnknownName)
    async def on_unknown(_: Request, caught: UnknownName) -> JSONResponse:
        return error(404, str(caught))

    @app.exception_handler(Exception)
    async def on_bug(_: Request, caught: Exception) -> JSONResponse:
        logger.error("admin API failed", exc_info=caught)
        return error(500, "the admin API failed; its log says why")
