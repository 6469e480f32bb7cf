"""/admit and /release: whether a request that nginx carries may go on, and that it is over.

nginx's auth_request asks with the client's headers and no body, and understands 2xx, 401 and 403
alone. So every refusal comes as 403, and what its client shall get stands in headers. Nobody but
nginx sees the answer's end: /release gives the slot back, or else the lease's end does.
"""

import json
import random
from typing import ClassVar

import orjson

from surgetank.admission.doors.carried import BlindOrder, Carriage, Carried
from surgetank.admission.doors.http.exchange import Exchange, Handler
from surgetank.admission.doors.http.relay_body import KINDS
from surgetank.admission.doors.http.routes import Page
from surgetank.admission.doors.http.wording import wording_of
from surgetank.admission.outcome import Refusal
from surgetank.engine.backends.remote.api import Forward
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.vocabulary import Outcome, Reason

ADMIT, RELEASE = "/admit", "/release"
GRANT, BACKEND = "x-surgetank-grant", "x-surgetank-backend"
URI, LENGTH = "x-original-uri", "x-original-content-length"
MAX_TOKENS, STATUS = "x-surgetank-max-tokens", "x-surgetank-upstream-status"
_DENIED = 403
_NO_GRANT = Refusal(Outcome.NOT_FOUND, Reason.UNKNOWN_ROUTE, f"{GRANT} names no open grant")


class AdmitRoutes:
    """Implements inference.InferenceRoutes. Holds the grants that are out, by their secret."""

    paths = (ADMIT, RELEASE)
    methods = ("GET", "HEAD", "POST")

    def __init__(self, carriage: Carriage, lease: float, clock: Clock, rng: random.Random) -> None:
        """`lease`: seconds until a slot that nobody released is taken back."""
        self.carriage = carriage
        self.lease = lease
        self.clock = clock
        self.grants: dict[str, Carried] = {}
        self._rng = rng

    def open(self, exchange: Exchange) -> Handler:
        """The handler for a request whose head is complete."""
        if exchange.head.path == RELEASE:
            return Page(exchange, self._release)
        path = exchange.head.header(URI).partition("?")[0]
        if path and path not in KINDS:
            return Page(exchange, lambda exchange: exchange.respond(200, b""))
        return _Admission(exchange, self, path)

    def close(self) -> None:
        """Nothing to end: the desk ends what is open."""

    def grant(self, carried: Carried) -> str:
        """Remember it; a client that could guess the secret could end others' requests."""
        secret = f"{self._rng.getrandbits(128):032x}"
        self.grants[secret] = carried
        return secret

    def _release(self, exchange: Exchange) -> None:
        secret = exchange.head.header(GRANT)
        carried = self.grants.get(secret)
        if carried is None and secret:
            exchange.refuse(_NO_GRANT)
            return
        if carried is not None:
            status = exchange.head.header(STATUS).rpartition(" ")[2]
            if status.isdecimal():
                carried.answered(int(status))
            carried.done()
        exchange.respond(200, b"")


class _Admission:
    """Implements exchange.Handler and carried.CarrierDoor for one question of nginx's."""

    vital: ClassVar[bool] = False

    def __init__(self, exchange: Exchange, routes: AdmitRoutes, path: str) -> None:
        head = exchange.head
        self._exchange = exchange
        self._routes = routes
        self._path = path or ADMIT
        self._secret = ""
        self._carried = Carried(
            routes.carriage, self, "admit", head.headers, exchange.peer, self._path
        )
        exchange.named = self._carried.ticket.id

    @property
    def barred(self) -> Refusal | None:
        return self._carried.ticket.barred

    def on_body(self, body: bytes) -> None:
        """The gate's turn. The slot's end is the request's deadline."""
        ticket, carriage, routes = self._carried.ticket, self._routes.carriage, self._routes
        until = routes.clock.monotonic() + routes.lease
        ticket.deadline = until if ticket.deadline is None else min(ticket.deadline, until)
        order = BlindOrder(
            path=self._path,
            request_id=ticket.id,
            prompt_tokens=carriage.sizes.tokens(self._number(LENGTH) or 0),
            max_tokens=self._number(MAX_TOKENS) or carriage.assumed_tokens,
        )
        self._carried.ask(order)

    def on_refuse(self, refusal: Refusal) -> None:
        self._carried.refuse(refusal)
        self._carried.abandon(refusal.outcome, refusal.reason)

    def on_gone(self, reason: Reason) -> None:
        self._carried.abandon(Outcome.CANCELLED, reason)

    def on_go(self, url: str, request: Forward) -> None:
        """Whether the answer is a stream is not seen: its client's read timeout ends with the wait
        here, lest it ends a stream that goes well."""
        self._carried.ticket.patience = None
        self._secret = self._routes.grant(self._carried)
        self._exchange.respond(200, b"", headers=[(GRANT, self._secret), (BACKEND, url)])

    def on_over(self, refusal: Refusal | None) -> None:
        self._routes.grants.pop(self._secret, None)
        if refusal is None or self._secret:
            return
        words, named = wording_of(self._path), self._exchange.request_id
        error = json.dumps(orjson.loads(words.body(refusal, named)))  # a header is ASCII
        told = [("x-surgetank-status", str(words.status(refusal))), ("x-surgetank-error", error)]
        headers = [*told, *words.headers(refusal, named)]
        self._exchange.respond(_DENIED, b"", headers=headers)

    def _number(self, name: str) -> int | None:
        text = self._exchange.head.header(name)
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
