"""OpenAI's routes before engines that take token ids alone, over gRPC: each request is told so."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

from surgetank.admission import refusals
from surgetank.admission.api import Desk
from surgetank.admission.doors.http.config import HttpConfig
from surgetank.admission.doors.http.exchange import Exchange, Handler
from surgetank.admission.doors.http.inference import Inference, Tools
from surgetank.admission.doors.http.relay_body import KINDS
from surgetank.admission.outcome import Refused
from surgetank.telemetry.clock import Clock


class NoTextRoutes:
    """Implements inference.InferenceRoutes, and order.Route."""

    paths = frozenset(KINDS)
    methods = ("POST",)

    def __init__(self, config: HttpConfig, desk: Desk[Any, Any, Any], clock: Clock) -> None:
        self._tools: Tools[Any, Any, Any] = Tools(
            config, desk, clock, ThreadPoolExecutor(1, "http-read")
        )

    def open(self, exchange: Exchange) -> Handler:
        """The handler for a request whose head is complete."""
        return Inference(exchange, self._tools, self)

    def close(self) -> None:
        """End the thread."""
        self._tools.executor.shutdown(wait=False, cancel_futures=True)

    def read(self, body: bytes, config: HttpConfig) -> NoReturn:
        """Raises Refused."""
        raise Refused(refusals.token_ids_only())
