"""Ships finished requests' spans to a collector, from a thread that nothing waits for.

OpenTelemetry's exporter encodes, sends and tries again. Ours are what it must not cost: the queue
is bounded, and what finds it full is dropped and counted; nobody sees a failure but the counters
and the log, which tells of the first and of the recovery.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping

from grpc import StatusCode
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from surgetank.telemetry.clock import Clock
from surgetank.telemetry.family import Counter
from surgetank.telemetry.registry import Registry
from surgetank.telemetry.tracing_config import GRPC, Target, TracingConfig, target
from surgetank.telemetry.vocabulary import SpanLoss

log = logging.getLogger(__name__)

BATCH = 128  # requests in one export
DELAY = 1.0  # seconds until a batch leaves that did not fill up
# Building and encoding hold the interpreter, for up to 5 ms at a time while the event loop waits
# for it. So the thread rests after every few spans.
_STRETCH = 16  # spans
_REST = 100e-6  # seconds
_VOICES = {  # the loggers by which the exporters tell what went wrong
    False: "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    True: "opentelemetry.exporter.otlp.proto.grpc.exporter",
}
_PASSING = frozenset(  # what OTLP over gRPC says to try again
    {
        StatusCode.CANCELLED,
        StatusCode.DEADLINE_EXCEEDED,
        StatusCode.RESOURCE_EXHAUSTED,
        StatusCode.ABORTED,
        StatusCode.OUT_OF_RANGE,
        StatusCode.UNAVAILABLE,
        StatusCode.DATA_LOSS,
    }
)

Build = Callable[[Resource], list[ReadableSpan]]


def open_shipper(
    config: TracingConfig, env: Mapping[str, str], registry: Registry, clock: Clock
) -> "Shipper | None":
    """The process's; None where there is no collector or, as the log then says, no way to it."""
    to = target(config, env)
    if to is None:
        return None
    try:
        exporter = _exporter(to, config.timeout)
    except Exception as error:  # whatever the SDK objects to in its own variables
        log.warning("nothing is traced: %s: %s", type(error).__name__, error)
        return None
    return Shipper(config, to, exporter, registry, clock)


class Shipper:
    """A bounded queue and the thread that empties it. close() it once."""

    def __init__(
        self,
        config: TracingConfig,
        target: Target,
        exporter: SpanExporter,
        registry: Registry,
        clock: Clock,
    ) -> None:
        self._size = config.queue
        self._resource = target.resource
        self._clock = clock
        dropped = registry.counter("trace_spans_dropped_total")
        self._exported = registry.counter("trace_spans_exported_total").at()
        self._dropped = {why: dropped.at(why) for why in SpanLoss}
        self._queue: deque[tuple[int, Build]] = deque()
        self._in_hand = 0  # spans that left the queue and are not yet accounted for
        self._accounts = threading.Lock()  # each of those is accounted for once
        self._well = True  # the last export succeeded
        self._deadline = float("inf")  # to be through with everything
        self._wake, self._closing = threading.Event(), threading.Event()
        self._exporter = exporter
        # A daemon: an exporter that sits in a socket or in a pause must not keep the process.
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._complaints = _Complaints(self._thread)
        self._voice = logging.getLogger(_VOICES[target.protocol == GRPC])
        self._voice.filters.insert(0, self._complaints)  # before those that leave repetitions out
        self._thread.start()

    def offer(self, spans: int, build: Build) -> bool:
        """Take a finished request of so many spans, built later in the thread. False: no room, and
        that is counted. One thread's, which it never keeps waiting."""
        if len(self._queue) >= self._size:
            self._dropped[SpanLoss.QUEUE_FULL].value += spans
            return False
        self._queue.append((spans, build))
        if len(self._queue) == BATCH:
            self._wake.set()
        return True

    def close(self, within: float) -> None:
        """Send what is left, for at most `within` seconds; the rest is dropped and counted. An
        export that is still under way is left to itself: its own end could wait for the network."""
        self._deadline = self._clock.monotonic() + within
        self._closing.set()
        self._wake.set()
        self._thread.join(within)
        with self._accounts:
            lost = self._in_hand + sum(spans for spans, _ in self._queue)
            self._in_hand = 0
            self._queue.clear()
        if lost:
            self._dropped[SpanLoss.SHUTDOWN].value += lost
            log.warning("%d spans were not through to the collector", lost)

    def _run(self) -> None:
        try:
            while True:
                last = self._closing.is_set()
                while self._queue and self._clock.monotonic() < self._deadline:
                    self._ship()
                if last:
                    return
                self._wake.wait(DELAY)
                self._wake.clear()
        finally:
            self._exporter.shutdown()
            self._voice.removeFilter(self._complaints)

    def _ship(self) -> None:
        with self._accounts:
            taken = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
            self._in_hand = sum(spans for spans, _ in taken)
        self._complaints.forget()
        try:
            spans = self._built(build for _, build in taken)
            result = self._exporter.export(spans)
        except Exception:  # one request's fault must not end the thread that serves them all
            log.exception("traces of %d requests could not be exported", len(taken))
            self._account(self._dropped[SpanLoss.BUG])
            return
        well = result is SpanExportResult.SUCCESS
        if self._well and not well:
            log.warning("traces do not reach the collector: %s", self._complaints.first)
        elif well and not self._well:
            log.info("traces reach the collector again")
        self._well = well
        self._account(self._exported if well else self._dropped[self._complaints.means])

    def _built(self, builders: Iterable[Build]) -> "_Gentle":
        spans = _Gentle(self._rest)
        for build in builders:
            before = len(spans) // _STRETCH
            spans += build(self._resource)
            if len(spans) // _STRETCH > before:
                self._rest()
        return spans

    def _rest(self) -> None:
        self._closing.wait(_REST)

    def _account(self, counter: Counter) -> None:
        with self._accounts:
            counter.value += self._in_hand  # 0, if close() gave it up meanwhile
            self._in_hand = 0


class _Gentle(list[ReadableSpan]):
    """A batch that rests after every few spans while an exporter goes through it to encode it."""

    def __init__(self, rest: Callable[[], None]) -> None:
        super().__init__()
        self._rest = rest

    def __iter__(self) -> Iterator[ReadableSpan]:
        for number, span in enumerate(super().__iter__(), start=1):
            yield span
            if number % _STRETCH == 0:
                self._rest()


class _Complaints(logging.Filter):
    """What the exporter says of itself in one thread: kept here instead of in the log, where it
    would stand for every batch and every try. It is all that tells why an export failed."""

    def __init__(self, thread: threading.Thread) -> None:
        super().__init__()
        self._thread = thread
        self.forget()

    def forget(self) -> None:
        """The next export begins."""
        self.first, self.means = "", SpanLoss.UNREACHABLE

    def filter(self, record: logging.LogRecord) -> bool:
        """False: no handler sees it."""
        if record.thread != self._thread.ident:
            return True
        self.first = self.first or record.getMessage()  # the last is often that it gave up
        if record.levelno >= logging.ERROR and isinstance(record.args, tuple):
            refused = any(map(_refuses, record.args))
            self.means = SpanLoss.REJECTED if refused else SpanLoss.UNREACHABLE
        return False


def _refuses(said: object) -> bool:
    """Whether a part of the exporter's last word is a status by which the collector refuses for
    good: of HTTP's the exporter names no others there."""
    return isinstance(said, int) or (isinstance(said, StatusCode) and said not in _PASSING)


def _exporter(target: Target, timeout: float) -> SpanExporter:
    """Either brings a stack of its own; only the one that is used is imported."""
    if target.protocol == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc import trace_exporter as grpc

        return grpc.OTLPSpanExporter(endpoint=target.url, headers=target.headers, timeout=timeout)
    from opentelemetry.exporter.otlp.proto.http import trace_exporter as http

    return http.OTLPSpanExporter(endpoint=target.url, headers=target.headers, timeout=timeout)
