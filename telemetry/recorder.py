"""The sidecar's only writer of metrics: each fact of a request's life is told here, once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from surgetank.telemetry.family import Exemplar
from surgetank.telemetry.metricspec import OTHER, PRIORITIES, UNKNOWN
from surgetank.telemetry.registry import Registry, Sample
from surgetank.telemetry.tracecontext import SpanId
from surgetank.telemetry.vocabulary import Lane, Outcome, Priority, QueueExit, Reason

# An ok request is a good event. Not judged: a client's own mistakes, and what we refused or
# dropped to protect the rest (it has its own counters, and would hide the faults that matter).
UNAVAILABLE = frozenset(
    {Outcome.BACKEND_DOWN, Outcome.CIRCUIT_OPEN, Outcome.DEADLINE, Outcome.INTERNAL}
)


@dataclass(frozen=True, slots=True)
class Totals:
    """The conservation law: received == sum of the outcomes + in flight."""

    received: int
    outcomes: dict[Outcome, int]
    in_flight: int


class _Model:
    """One model's children, looked up once."""

    __slots__ = ("cached", "duration", "gap", "input", "label", "output", "tpot", "ttft")

    def __init__(self, registry: Registry, label: str) -> None:
        tokens = registry.counter("tokens_total")
        duration = registry.histogram("request_duration_seconds")
        ttft = registry.histogram("request_time_to_first_token_seconds")
        self.label = label
        self.input = tokens.at(label, "input")
        self.cached = tokens.at(label, "input_cached")
        self.output = tokens.at(label, "output")
        self.duration = [duration.at(label, priority) for priority in PRIORITIES]
        self.ttft = [ttft.at(label, priority) for priority in PRIORITIES]
        self.tpot = registry.histogram("request_time_per_output_token_seconds").at(label)
        self.gap = registry.histogram("inter_token_latency_seconds").at(label)


class Recorder:
    """Writes the sidecar's metrics. All methods belong to the event loop's thread, and are cheap.

    `model` is a name that was allowed; any other is recorded as `other`, and "" as `unknown`.
    """

    def __init__(self, registry: Registry, models: Sequence[str] = ()) -> None:
        self.registry = registry
        self._models = {
            "": _Model(registry, UNKNOWN),
            UNKNOWN: _Model(registry, UNKNOWN),
            OTHER: _Model(registry, OTHER),
        }
        self._received = registry.counter("requests_received_total").at()
        self._unread = registry.counter("http_unread_requests_total")
        self._requests = registry.counter("requests_total")
        self._failures = registry.counter("request_failures_total")
        self._decisions = registry.counter("admission_decisions_total")
        self._waits = registry.histogram("queue_wait_seconds")
        self._slo = registry.counter("slo_events_total")
        self._retries = registry.counter("retry_arrivals_total")
        self._advised = registry.histogram("retry_backoff_advised_seconds").at()
        self._taken = registry.histogram("retry_backoff_taken_seconds")
        self._denied = registry.counter("retry_budget_denied_total")
        self._ignored = registry.counter("headers_ignored_total")
        self._changes = registry.counter("limit_changes_total")
        self._held = registry.counter("queue_held_seconds_total")
        self._in_flight = dict.fromkeys(Lane, 0)
        self._queued = {(lane, priority): 0 for lane in Lane for priority in Priority}
        self._queued_tokens = dict.fromkeys(Priority, 0)
        registry.source("slo_target_seconds", self._read_targets)
        registry.source("requests_in_flight", self._read_in_flight)
        registry.source("queue_requests", self._read_queued)
        registry.source("queue_tokens", self._read_queued_tokens)
        for model in models:
            self.allow_model(model)

    def allow_model(self, name: str) -> None:
        """A served model gets a label value of its own; its series start at 0."""
        self.registry.allow("model", name)
        self._models[name] = _Model(self.registry, name)

    def received(self, lane: Lane) -> None:
        """A request's headers are complete."""
        self._received.value += 1
        self._in_flight[lane] += 1

    def unread(self, reason: Reason) -> None:
        """An HTTP request ended before its headers were read: it was never received."""
        self._unread.at(reason).value += 1

    def moved(self, before: Lane, after: Lane) -> None:
        """A request in flight turned out to be a retry; from now on it counts in that lane."""
        self._in_flight[before] -= 1
        self._in_flight[after] += 1

    def ended(
        self,
        *,
        model: str,
        outcome: Outcome,
        reason: Reason,
        lane: Lane,
        priority: Priority,
        duration: float,
    ) -> None:
        """A received request's one end; `lane` as it was told to received() or moved().

        Who asked for a model that is not served has no model: it counts as another's.
        """
        known = self._unserved() if reason is Reason.UNKNOWN_MODEL else self._model(model)
        self._in_flight[lane] -= 1
        self._requests.at(known.label, outcome, lane, PRIORITIES[priority]).value += 1
        known.duration[priority].observe(duration)
        if outcome is Outcome.OK:
            self._judge("availability", good=True)
            return
        self._failures.at(reason).value += 1
        if outcome in UNAVAILABLE:
            self._judge("availability", good=False)

    def decided(self, *, admitted: bool, reason: Reason, lane: Lane, priority: Priority) -> None:
        """The gate's decision on one request."""
        decision = "admitted" if admitted else "refused"
        self._decisions.at(decision, reason, lane, PRIORITIES[priority]).value += 1

    def enqueued(self, *, lane: Lane, priority: Priority, tokens: int) -> None:
        """A request of so many prompt tokens waits at the gate."""
        self._queued[lane, priority] += 1
        self._queued_tokens[priority] += tokens

    def dequeued(
        self, *, lane: Lane, priority: Priority, tokens: int, wait: float, how: QueueExit
    ) -> None:
        """It waits no more; lane, priority and tokens as they were told to enqueued()."""
        self._queued[lane, priority] -= 1
        self._queued_tokens[priority] -= tokens
        self._waits.at(PRIORITIES[priority], how).observe(wait)

    def input_tokens(self, *, model: str, computed: int, cached: int) -> None:
        """An engine began on a prompt: how much it computes, how much its prefix cache held."""
        known = self._model(model)
        known.input.value += computed
        known.cached.value += cached

    def first_token(self, *, model: str, priority: Priority, ttft: float) -> None:
        """The first token of any of a request's choices, `ttft` seconds after its headers."""
        self._model(model).ttft[priority].observe(ttft)

    def output_tokens(self, model: str, count: int, gap: float | None = None) -> None:
        """`count` new tokens of one choice, `gap` seconds after its previous ones (None: first).

        Tokens that came together share the gap evenly.
        """
        known = self._models.get(model) or self._model(model)
        known.output.value += count
        if gap is not None and count > 0:
            known.gap.observe(gap / count, count)

    def completed(self, *, model: str, tpot: float | None, ttft: float | None) -> None:
        """An ok request's latencies, judged against the targets; None where there is none."""
        targets = self.registry.targets
        if tpot is not None:
            self._model(model).tpot.observe(tpot)
            self._judge("tpot", good=tpot <= targets.tpot)
        if ttft is not None:
            self._judge("ttft", good=ttft <= targets.ttft)

    def exemplify(
        self,
        *,
        model: str,
        reason: Reason,
        priority: Priority,
        span: SpanId,
        at: float,
        duration: float,
        wait: float | None,
        ttft: float | None,
        tpot: float | None,
        gap: float | None,
    ) -> None:
        """An ended request's latencies, recorded before, become examples that lead to its trace;
        `at` is wall time, `wait` that in the queue if the engine got it, `gap` the longest between
        two of its tokens, None what it has not."""
        known = self._models[OTHER] if reason is Reason.UNKNOWN_MODEL else self._model(model)
        if wait is not None:
            waits = self._waits.at(PRIORITIES[priority], QueueExit.DISPATCHED)
            waits.exemplify(Exemplar(wait, span, at))
        known.duration[priority].exemplify(Exemplar(duration, span, at))
        if ttft is not None:
            known.ttft[priority].exemplify(Exemplar(ttft, span, at))
        if tpot is not None:
            known.tpot.exemplify(Exemplar(tpot, span, at))
        if gap is not None:
            known.gap.exemplify(Exemplar(gap, span, at))

    def retry_arrival(self, *, attempt: int, detected_by: str) -> None:
        """An arrival's attempt number (0 = first try) and the header that states it ("": none)."""
        number = "3plus" if attempt >= 3 else str(attempt)
        self._retries.at(number, detected_by or "none").value += 1

    def advised(self, seconds: float) -> None:
        """A refusal asked its client to wait."""
        self._advised.observe(seconds)

    def retry_returned(self, *, taken: float, obeyed: bool | None) -> None:
        """A failed request came back after `taken` seconds; None: it had not been told when."""
        advice = "none" if obeyed is None else "obeyed" if obeyed else "ignored"
        self._taken.at(advice).observe(taken)

    def retry_denied(self, limit: str) -> None:
        """A retry was refused for want of budget: which limit or account was short."""
        self._denied.at(limit).value += 1

    def header_ignored(self, header: str, problem: str, times: int = 1) -> None:
        """Request headers that could not be followed."""
        self._ignored.at(header, problem).value += times

    def queue_held(self, cause: str, seconds: float) -> None:
        """So long the next waiting request stayed out of the batch, for that cause."""
        self._held.at(cause).value += seconds

    def limit_changed(self, *, limit: str, direction: str, cause: str) -> None:
        """A limit went `up`, `down` or kept the `same` value under a new owner."""
        self._changes.at(limit, direction, cause).value += 1

    def in_flight(self) -> int:
        """Requests received and not yet ended."""
        return sum(self._in_flight.values())

    def totals(self) -> Totals:
        """Both sides of the conservation law, each from its own counters."""
        outcomes = dict.fromkeys(Outcome, 0)
        for (_, outcome, *_), counter in self._requests.children().items():
            outcomes[Outcome(outcome)] += int(counter.value)
        return Totals(int(self._received.value), outcomes, self.in_flight())

    def _model(self, name: str) -> _Model:
        return self._models.get(name) or self._models[self.registry.admit("model", name)]

    def _unserved(self) -> _Model:
        return self._models[self.registry.admit("model", "")]

    def _judge(self, slo: str, *, good: bool) -> None:
        self._slo.at(slo, "good" if good else "bad").value += 1

    def _read_targets(self) -> Iterator[Sample]:
        targets = self.registry.targets
        yield {"slo": "ttft"}, targets.ttft
        yield {"slo": "tpot"}, targets.tpot

    def _read_in_flight(self) -> Iterator[Sample]:
        for lane, count in self._in_flight.items():
            yield {"lane": lane}, count

    def _read_queued(self) -> Iterator[Sample]:
        for (lane, priority), count in self._queued.items():
            yield {"lane": lane, "priority": priority.label}, count

    def _read_queued_tokens(self) -> Iterator[Sample]:
        for priority, tokens in self._queued_tokens.items():
            yield {"priority": priority.label}, tokens
