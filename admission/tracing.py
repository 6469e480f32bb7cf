"""What is told of each request beside the metrics: its trace, exemplars of that, a log line.

Whether a trace is kept is decided when the request is over. Kept are those that the caller keeps,
refusals and errors, retries of what failed, what missed a target; and of the rest the configured
share, by trace id, unless the caller said that it does not keep it.
"""

import random
from collections.abc import Mapping
from typing import Protocol

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan

from surgetank.admission.outcome import Refusal
from surgetank.admission.requestlog import RequestLog
from surgetank.admission.spans import Finished
from surgetank.admission.ticket import Ticket
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.otlp import Shipper, open_shipper
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.slo import SloTargets
from surgetank.telemetry.tracecontext import Parent, SpanId, TraceContext, in_share
from surgetank.telemetry.tracing_config import TracingConfig

CHILDREN = 3  # spans at most under a request's own


class Tracing(Protocol):
    """What the desk tells of."""

    def begin(self, parent: Parent | None) -> TraceContext | None:
        """A request arrived; None: it belongs to no trace."""

    def ended(self, ticket: Ticket, refusal: Refusal | None) -> None:
        """It has ended, once, and the metrics know."""


class Silence:
    """Nothing is told: for virtual time."""

    def begin(self, parent: Parent | None) -> None:
        """No trace."""

    def ended(self, ticket: Ticket, refusal: Refusal | None) -> None:
        """No word."""


def open_tracer(
    config: TracingConfig,
    env: Mapping[str, str],
    recorder: Recorder,
    clock: Clock,
    rng: random.Random,
) -> "Tracer":
    """The process's tracer, with its shipper if there is a collector to ship to."""
    shipper = open_shipper(config, env, recorder.registry, clock)
    return Tracer(config=config, recorder=recorder, clock=clock, rng=rng, shipper=shipper)


class Tracer:
    """One process's. Without a shipper only the log is written, with the caller's trace ids."""

    def __init__(
        self,
        *,
        config: TracingConfig,
        recorder: Recorder,
        clock: Clock,
        rng: random.Random,
        shipper: Shipper | None,
    ) -> None:
        self._config = config
        self._recorder = recorder
        self._clock = clock
        self._rng = rng
        self._shipper = shipper
        self._log = RequestLog()

    def begin(self, parent: Parent | None) -> TraceContext | None:
        """The request's own span, in its caller's trace or in a new one. Where nothing is shipped
        it has none of its own: the caller's stands for it."""
        if self._shipper is None:
            return None if parent is None else TraceContext(parent.id, parent, parent.sampled)
        trace = self._new(128) if parent is None else parent.id.trace
        sampled = in_share(trace, self._config.sample) if parent is None else parent.sampled
        return TraceContext(SpanId(trace, self._new(64)), parent, sampled)

    def ended(self, ticket: Ticket, refusal: Refusal | None) -> None:
        """Log it; and if its trace is kept, hand that over and let the metrics lead to it."""
        now = self._clock.monotonic()
        self._log.ended(ticket, refusal, now)
        if self._shipper is None or ticket.trace is None:
            return
        if not ticket.trace.sampled and not remarkable(ticket, self._recorder.registry.targets):
            return
        wall = self._clock.wall()
        finished = Finished(ticket, refusal, ticket.trace, wall - now, self._config.tenants)
        if self._shipper.offer(finished.count, lambda by: self._spans(by, finished)):
            self._exemplify(ticket, ticket.trace.id, wall)

    def close(self, within: float) -> None:
        """Ship what is left, for at most so many seconds, and tell what the log held back."""
        self._log.close()
        if self._shipper is not None:
            self._shipper.close(within)

    def _spans(self, by: Resource, finished: Finished) -> list[ReadableSpan]:
        return finished.spans(by, (self._new(64) for _ in range(CHILDREN)))

    def _exemplify(self, ticket: Ticket, span: SpanId, at: float) -> None:
        ended_at = ticket.arrived if ticket.ended_at is None else ticket.ended_at
        self._recorder.exemplify(
            model=ticket.model,
            reason=ticket.reason,
            priority=ticket.priority,
            span=span,
            at=at,
            duration=ended_at - ticket.arrived,
            wait=_waited(ticket),
            ttft=ttft(ticket),
            tpot=ticket.tpot,
            gap=ticket.longest_gap or None,
        )

    def _new(self, bits: int) -> str:
        """A random id, never all zero."""
        return f"{self._rng.getrandbits(bits) or 1:0{bits // 4}x}"


def remarkable(ticket: Ticket, targets: SloTargets) -> bool:
    """Whether the trace of a finished request is kept, whatever its share would be."""
    first, tpot = ttft(ticket), ticket.tpot
    late = first is not None and first > targets.ttft
    slow = tpot is not None and tpot > targets.tpot
    return ticket.failed or ticket.earlier is not None or late or slow


def ttft(ticket: Ticket) -> float | None:
    """Seconds from its headers to its first token; None: it had none."""
    return None if ticket.first_token_at is None else ticket.first_token_at - ticket.arrived


def _waited(ticket: Ticket) -> float | None:
    """Seconds in the queue; None: the engine did not get it."""
    if ticket.waits_since is None or ticket.dispatched_at is None:
        return None
    return ticket.dispatched_at - ticket.waits_since
