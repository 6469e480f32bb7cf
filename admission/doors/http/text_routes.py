"""OpenAI's routes to an engine that takes token ids."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from surgetank.admission.api import Ask, Listener, TextDesk, TextModel
from surgetank.admission.doors.http.chat import CHAT
from surgetank.admission.doors.http.completions import COMPLETIONS
from surgetank.admission.doors.http.config import HttpConfig
from surgetank.admission.doors.http.exchange import Exchange, Handler
from surgetank.admission.doors.http.inference import Inference, Tools
from surgetank.admission.doors.http.order import Route
from surgetank.telemetry.clock import Clock


class TextRoutes:
    """Implements inference.InferenceRoutes."""

    methods = ("POST",)

    def __init__(self, config: HttpConfig, desk: TextDesk, clock: Clock) -> None:
        self._tools = Tools(config, desk, clock, ThreadPoolExecutor(2, "http-tokenize"))
        self.paths: Mapping[str, Route[TextModel, Ask, Listener]] = {
            "/v1/completions": COMPLETIONS,
            "/v1/chat/completions": CHAT,
        }

    def open(self, exchange: Exchange) -> Handler:
        """The handler for a request whose head is complete."""
        return Inference(exchange, self._tools, self.paths[exchange.head.path])

    def close(self) -> None:
        """End the threads; what they still compute is dropped."""
        self._tools.executor.shutdown(wait=False, cancel_futures=True)
