"""The routes to an engine of another maker: read as little as the gate needs, forward the rest."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec

from surgetank.admission.doors.http.config import HttpConfig
from surgetank.admission.doors.http.exchange import Exchange, Handler
from surgetank.admission.doors.http.head import Head
from surgetank.admission.doors.http.inference import Inference, Tools
from surgetank.admission.doors.http.relay_answer import RelayAnswer
from surgetank.admission.doors.http.relay_body import (
    KINDS,
    Kind,
    Reading,
    read_body,
    renamed,
    shortened,
)
from surgetank.admission.prompt_size import PromptSizes
from surgetank.admission.relay import RelayAsk, RelayDesk, RelayListener, RelayModel
from surgetank.engine.backends.remote.api import Forward
from surgetank.telemetry.clock import Clock

# Headers that speak of the connection from the client to us, or that only peers may say whom we
# know: none of them goes on.
_NOT_PASSED = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-request-id",
    }
)
ALIAS = "default"  # what a request that names no model asks for
CLAIMS = ("x-envoy-", "x-smg-", "x-surgetank-", "x-gateway-destination-endpoint")  # they begin so


class RelayOrder(msgspec.Struct, frozen=True):
    """Implements order.Order."""

    reading: Reading
    kind: Kind
    body: bytes
    head: Head
    sizes: PromptSizes
    assumed_tokens: int
    passed: tuple[tuple[str, str], ...]

    @property
    def model(self) -> str:
        return self.reading.model or ALIAS

    @property
    def stream(self) -> bool:
        return self.reading.stream

    def ask(self, served: RelayModel) -> RelayAsk:
        reading, body, kind = self.reading, self.body, self.kind.without(served.ignores)
        if reading.model and reading.model not in served.names:  # one of our aliases
            body = renamed(body, served.name)
        text = self.sizes.tokens(reading.characters) if reading.estimated else 0
        prompt = text + reading.token_ids
        context = served.card.context_length
        room = max(1, context - prompt) if context else 0  # 0: not known
        bound = reading.max_tokens(kind) if kind.limits else 1
        most = bound or min(self.assumed_tokens, room or self.assumed_tokens)
        return RelayAsk(
            forward=Forward(
                path=self.head.path,
                headers=self.passed,
                body=body,
                prompt_tokens=prompt,
                stream=reading.stream,
                http_1_0=self.head.http_1_0,
                seqs=reading.n,
                max_tokens=bound or room,
            ),
            max_tokens=most,
            n=reading.n,
            exact=reading.exact,
            characters=0 if reading.token_ids else reading.characters,
            rewrite=lambda body, most: shortened(body, kind, most),
            estimated=reading.estimated,
            beginning=reading.beginning,
        )

    def listener(
        self, exchange: Exchange, served: RelayModel, request_id: str, created: int
    ) -> RelayAnswer:
        return RelayAnswer(exchange)


def read_order(
    head: Head, body: bytes, request_id: str, sizes: PromptSizes, assumed_tokens: int
) -> RelayOrder:
    """One request to a path out of KINDS; Refused when its body is not right."""
    kind = KINDS[head.path]
    return RelayOrder(
        reading=read_body(body, kind, sizes.beginning),
        kind=kind,
        body=body,
        head=head,
        sizes=sizes,
        assumed_tokens=assumed_tokens,
        passed=(*_passed(head), ("x-request-id", request_id)),
    )


class _Route(msgspec.Struct, frozen=True):
    """Implements order.Route for one request, whose head is known."""

    exchange: Exchange
    sizes: PromptSizes

    def read(self, body: bytes, config: HttpConfig) -> RelayOrder:
        exchange = self.exchange
        return read_order(
            exchange.head, body, exchange.request_id, self.sizes, config.default_max_tokens
        )


class RelayRoutes:
    """Implements inference.InferenceRoutes."""

    paths: Mapping[str, Kind] = KINDS
    methods = ("POST",)

    def __init__(
        self, config: HttpConfig, desk: RelayDesk, sizes: PromptSizes, clock: Clock
    ) -> None:
        self._sizes = sizes
        self._tools: Tools[RelayModel, RelayAsk, RelayListener] = Tools(
            config, desk, clock, ThreadPoolExecutor(2, "http-read")
        )

    def open(self, exchange: Exchange) -> Handler:
        """The handler for a request whose head is complete."""
        return Inference(exchange, self._tools, _Route(exchange, self._sizes))

    def close(self) -> None:
        """End the threads; what they still compute is dropped."""
        self._tools.executor.shutdown(wait=False, cancel_futures=True)


def _passed(head: Head) -> list[tuple[str, str]]:
    return [
        (name, value)
        for name, value in head.headers
        if name not in _NOT_PASSED and not name.startswith(CLAIMS)
    ]
