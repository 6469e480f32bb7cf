"""Which path is answered by what, and the short answers: models, health, metrics, errors."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote

import orjson

from surgetank.admission.api import Headers
from surgetank.admission.doors.http.exchange import Exchange, Handler, TellLoad, tell_no_load
from surgetank.admission.doors.http.inference import InferenceRoutes
from surgetank.admission.outcome import Refusal
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.vocabulary import Outcome, Reason

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Health:
    """How the process is: `live` false asks for a restart, `ready` false for no new requests."""

    live: bool
    ready: bool
    detail: str = ""  # why not, in a sentence


HealthCheck = Callable[[], Health]
RenderPage = Callable[[], tuple[bytes, str]]  # body, content type; for a thread
RenderMetrics = Callable[[str], RenderPage]  # by the Accept header; for the event loop
_Answer = Callable[[Exchange], None]


class Front(Protocol):
    """What the short answers need of the desk."""

    def names(self) -> list[str]:
        """Models that can be asked for."""

    def barred(self, headers: Headers, peer: str) -> Refusal | None:
        """Why whoever sends these headers may not ask; None: it may."""


class Router:
    """Opens the handler for each request, and owns the threads for what would block the loop."""

    def __init__(
        self,
        desk: Front,
        inference: InferenceRoutes,
        *,
        health: HealthCheck,
        metrics: RenderMetrics,
        clock: Clock,
        load: TellLoad = tell_no_load,
    ) -> None:
        self._desk = desk
        self._load = load
        self._health = health
        self._metrics = metrics
        self._started = int(clock.wall())
        # A thread of its own, so that a scrape never waits for a long prompt.
        self._scraper = ThreadPoolExecutor(1, "http-metrics")
        self._inference = inference
        self._pages: dict[str, _Answer] = {
            "/v1/models": self._models,
            "/health": lambda exchange: self._health_page(exchange, live=True, ready=True),
            "/health/live": lambda exchange: self._health_page(exchange, live=True),
            "/health/ready": lambda exchange: self._health_page(exchange, ready=True),
        }

    def open(self, exchange: Exchange) -> Handler:
        """The handler for a request whose head is complete."""
        method, path = exchange.head.method, exchange.head.path
        if path in self._inference.paths:
            if method in self._inference.methods:
                exchange.load = self._load
                return self._inference.open(exchange)
            return Page(exchange, _not_allowed(", ".join(self._inference.methods)))
        page = self._model if path.startswith("/v1/models/") else self._pages.get(path)
        if page is None and path != "/metrics":
            return Page(exchange, _unknown_route)
        if method not in ("GET", "HEAD"):
            return Page(exchange, _not_allowed("GET, HEAD"))
        if page is None:
            return Scrape(exchange, self._metrics, self._scraper)
        if path.startswith("/health"):
            return Page(exchange, page, vital=True)
        return Page(exchange, page, barred=self._desk.barred(exchange.head.headers, exchange.peer))

    def close(self) -> None:
        """End the threads; what they still compute is dropped."""
        self._scraper.shutdown(wait=False, cancel_futures=True)
        self._inference.close()

    def _models(self, exchange: Exchange) -> None:
        models = [self._model_object(name) for name in self._desk.names()]
        exchange.respond(200, orjson.dumps({"object": "list", "data": models}))

    def _model(self, exchange: Exchange) -> None:
        name = unquote(exchange.head.path.removeprefix("/v1/models/"))
        if name in self._desk.names():
            exchange.respond(200, orjson.dumps(self._model_object(name)))
            return
        allowed = ", ".join(self._desk.names())
        message = f"model {name[:100]!r} is not served; allowed: {allowed}"
        refusal = Refusal(Outcome.NOT_FOUND, Reason.UNKNOWN_MODEL, message, param="model")
        exchange.refuse(refusal)

    def _model_object(self, name: str) -> dict[str, object]:
        return {"id": name, "object": "model", "created": self._started, "owned_by": "surgetank"}

    def _health_page(self, exchange: Exchange, *, live: bool = False, ready: bool = False) -> None:
        """200 while what is asked for holds."""
        health = self._health()
        well = (health.live or not live) and (health.ready or not ready)
        exchange.respond(200 if well else 503, orjson.dumps(health))


class Page:
    """A request that is answered on the spot, whatever its body says."""

    def __init__(
        self,
        exchange: Exchange,
        answer: _Answer,
        vital: bool = False,
        barred: Refusal | None = None,
    ) -> None:
        self.vital = vital
        self.barred = barred
        self._exchange = exchange
        self._answer = answer

    def on_body(self, body: bytes) -> None:
        try:
            self._answer(self._exchange)
        except Exception:
            log.exception("%s failed", self._exchange.head.path)
            self._exchange.refuse(_BUG)

    def on_refuse(self, refusal: Refusal) -> None:
        self._exchange.refuse(refusal)

    def on_gone(self, reason: Reason) -> None:
        """Nothing to give back."""


class Scrape(Page):
    """/metrics: read on the loop, where nothing changes meanwhile, and written in a thread."""

    def __init__(
        self, exchange: Exchange, render: RenderMetrics, executor: ThreadPoolExecutor
    ) -> None:
        super().__init__(exchange, self._start, vital=True)
        self._render = render
        self._executor = executor

    def _start(self, exchange: Exchange) -> None:
        accept = exchange.head.header("accept")
        loop = asyncio.get_running_loop()
        loop.run_in_executor(self._executor, self._render(accept)).add_done_callback(self._done)

    def _done(self, rendered: asyncio.Future[tuple[bytes, str]]) -> None:
        if rendered.cancelled():  # the server stopped
            return
        error = rendered.exception()
        if error is None:
            body, content_type = rendered.result()
            self._exchange.respond(200, body, content_type)
        else:
            log.error("/metrics failed", exc_info=error)
            self._exchange.refuse(_BUG)


_BUG = Refusal(Outcome.INTERNAL, Reason.BUG, "internal error; see the server's log")


def _unknown_route(exchange: Exchange) -> None:
    path = exchange.head.path[:100]
    exchange.refuse(Refusal(Outcome.NOT_FOUND, Reason.UNKNOWN_ROUTE, f"no such path: {path}"))


def _not_allowed(methods: str) -> _Answer:
    def answer(exchange: Exchange) -> None:
        message = f"method is {exchange.head.method}; allowed: {methods}"
        refusal = Refusal(Outcome.INVALID, Reason.UNKNOWN_ROUTE, message)
        words, named = exchange.words, exchange.request_id
        headers = [("allow", methods), *words.headers(refusal, named)]
        exchange.respond(405, words.body(refusal, named), headers=headers)

    return answer
