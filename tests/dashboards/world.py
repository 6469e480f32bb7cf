"""A made-up service as Prometheus would see it: phases of traffic become series for promtool."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from surgetank.dashboards.prometheus import ENGINE_JOB, SIDECAR_JOB
from surgetank.telemetry.catalog import Process, find

INTERVAL = 30  # seconds between samples
SLOTS = 32
CLASSES = ("critical", "default", "batch")
ABSENT = None


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Some minutes in which nothing changes. Rates are per second, shares of 1."""

    minutes: float
    rps: float = 0  # first attempts, per class as in `classes`
    classes: Mapping[str, float] = field(default_factory=lambda: {"default": 1.0})
    retries: float = 0
    shed: Mapping[str, float] = field(default_factory=dict)  # class -> refused share
    bad: Mapping[str, float] = field(default_factory=dict)  # slo -> bad share
    waits: Mapping[str, float] = field(default_factory=dict)  # class -> seconds in the queue
    queue: int = 0
    held: str = "compute"  # what keeps the next of the queue out
    oldest: Mapping[str, float] = field(default_factory=dict)  # class -> seconds
    steps: float = 0
    step_seconds: float = 0.03
    slots: Mapping[str, float] = field(default_factory=dict)  # state -> share; rest: no_work
    contended: float = 0  # share of steps
    fill: float = 0  # of contended steps
    wasted: float = 0  # of the tokens computed
    faults: Mapping[str, float] = field(default_factory=dict)  # metric -> events per second
    backend: str = "embedded"
    backend_up: int = 1
    others: Mapping[str, str] = field(default_factory=dict)  # further engines -> their states
    age: float | None = 0
    gpu: Mapping[str, float] = field(default_factory=dict)  # reason -> share of time throttled
    gpu_up: int = 1
    answers: Mapping[str, int] = field(default_factory=dict)  # job -> 0 when it is silent
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # usage, current
    overridden: int = 0
    gauges: Mapping[str, float] = field(default_factory=dict)
    shared: str = "single"  # where quotas come from


# Name: lowest, highest, and what stands while a phase says nothing.
LIMITS = {
    "queue_requests": (1, 1_000_000, 256),
    "in_flight_seqs": (1, SLOTS, SLOTS),
    "kv_reserve": (0.05, 1, 0.92),
}

# Gauges without labels, as they are in a healthy service.
GAUGES = {
    "brownout_level": 0.0,
    "ledger_drift": 0.0,
    "step_model_error_ratio": 0.05,
    "step_model_fitted": 1.0,
}
# Counters that stand still in a healthy service, and the labels they have in a sick one.
FAULTS: dict[str, dict[str, str]] = {
    "memory_oom_total": {"source": "activation", "action": "refused"},
    "compute_xid_total": {"device": "cuda:0"},
    "backend_restarts_total": {"backend": "a"},
    "telemetry_label_overflow_total": {"label": "model"},
    "telemetry_source_errors_total": {"metric": "limit"},
    "control_policy_errors_total": {},
    "policy_rollbacks_total": {"policy": "gradient2", "cause": "goodput"},
    "journal_write_failures_total": {},
    "trace_spans_dropped_total": {"reason": "unreachable"},
}


class World:
    """Series of one replica, by their selector; each phase adds its samples."""

    def __init__(self, phases: Sequence[Phase], instance: str = "r1") -> None:
        self._instance = instance
        self._series: dict[str, list[str]] = {}
        self._levels: dict[str, float] = {}
        for phase in phases:
            samples = round(phase.minutes * 60 / INTERVAL)
            for selector, value, counts in self._facts(phase):
                self._add(selector, value, counts, samples)

    def input_series(self) -> list[dict[str, str]]:
        """As promtool reads them."""
        return [
            {"series": selector, "values": " ".join(parts)}
            for selector, parts in self._series.items()
        ]

    def _add(self, selector: str, value: float | None, counts: bool, samples: int) -> None:
        parts = self._series.setdefault(selector, [])
        last = samples - 1
        if value is None:
            parts.append(f"_x{samples}")
        elif counts:
            level, step = self._levels.get(selector, 0.0), value * INTERVAL
            parts.append(f"{level:.6f}+{step:.6f}x{last}")
            self._levels[selector] = level + step * samples
        else:
            parts.append(f"{value:.6f}+0x{last}")

    def _facts(self, phase: Phase) -> Iterable[tuple[str, float | None, bool]]:
        """Selector, value or rate, and whether it is a rate; of a silent job, nothing."""
        jobs = (SIDECAR_JOB, ENGINE_JOB)
        silent = {job for job in jobs if not phase.answers.get(job, 1)}
        for job in jobs:
            yield f'up{{job="{job}",instance="{self._instance}"}}', float(job not in silent), False
        facts = (
            _arrivals,
            _promises,
            _queue,
            _batch,
            _steps,
            _gpu,
            _backend,
            _limits,
            _shared,
            _faults,
        )
        for name, value, labels, counts in (fact for make in facts for fact in make(phase)):
            engine = find(_base(name)).process is Process.ENGINE
            job = ENGINE_JOB if engine else SIDECAR_JOB
            text = "".join(f',{label}="{said}"' for label, said in labels.items())
            selector = f'surgetank_{name}{{job="{job}",instance="{self._instance}"{text}}}'
            yield selector, None if job in silent else value, counts


Fact = tuple[str, float | None, dict[str, str], bool]


def _base(name: str) -> str:
    for suffix in ("_bucket", "_count", "_sum"):
        name = name.removesuffix(suffix)
    return name


def _count(name: str, rate: float, **labels: str) -> Fact:
    return name, rate, labels, True


def _gauge(name: str, value: float | None, **labels: str) -> Fact:
    return name, value, labels, False


def _histogram(name: str, rate: float, seconds: float, **labels: str) -> Iterable[Fact]:
    buckets = find(name).buckets
    assert buckets is not None
    for edge in buckets.edges:
        yield _count(f"{name}_bucket", rate * (seconds <= edge), **labels, le=repr(float(edge)))
    yield _count(f"{name}_bucket", rate, **labels, le="+Inf")
    yield _count(f"{name}_count", rate, **labels)
    yield _count(f"{name}_sum", rate * seconds, **labels)


def _arrivals(phase: Phase) -> Iterable[Fact]:
    yield _count("retry_arrivals_total", phase.rps, attempt="0", detected_by="none")
    header = "x-stainless-retry-count"
    yield _count("retry_arrivals_total", phase.retries, attempt="1", detected_by=header)
    for priority in CLASSES:
        rate = phase.rps * phase.classes.get(priority, 0)
        refused = rate * phase.shed.get(priority, 0)
        labels = {"lane": "first", "priority": priority}
        yield _count(
            "admission_decisions_total",
            rate - refused,
            decision="admitted",
            reason="none",
            **labels,
        )
        yield _count(
            "admission_decisions_total",
            refused,
            decision="refused",
            reason="predicted_wait",
            **labels,
        )


def _promises(phase: Phase) -> Iterable[Fact]:
    judged = sum(
        phase.rps * share * (1 - phase.shed.get(priority, 0))
        for priority, share in phase.classes.items()
    )
    for slo in ("availability", "ttft", "tpot"):
        bad = judged * phase.bad.get(slo, 0)
        yield _count("slo_events_total", judged - bad, slo=slo, result="good")
        yield _count("slo_events_total", bad, slo=slo, result="bad")


def _queue(phase: Phase) -> Iterable[Fact]:
    yield _gauge("queue_requests", phase.queue, lane="first", priority="default")
    for cause in find("queue_held_seconds_total").labels[0].values:
        waits = phase.queue > 0 and cause == phase.held
        yield _count("queue_held_seconds_total", float(waits), cause=cause)
    for priority in CLASSES:
        yield _gauge("queue_oldest_age_seconds", phase.oldest.get(priority), priority=priority)
        served = phase.rps * phase.classes.get(priority, 0) * (1 - phase.shed.get(priority, 0))
        wait = phase.waits.get(priority, 0.01)
        for outcome, rate in (("dispatched", served), ("shed", 0), ("expired", 0)):
            yield from _histogram(
                "queue_wait_seconds", rate, wait, priority=priority, outcome=outcome
            )


def _batch(phase: Phase) -> Iterable[Fact]:
    capacity = phase.steps * SLOTS
    states = dict(phase.slots)
    states["no_work"] = 1 - sum(states.values())
    for state in (
        *("filled", "no_work", "blocked_kv"),
        *("blocked_token_budget", "blocked_limit", "blocked_other"),
    ):
        yield _count("batch_slot_steps_total", capacity * states.get(state, 0), state=state)
    filled, contended = capacity * states.get("filled", 0), capacity * phase.contended
    yield _count("batch_seq_capacity_total", capacity)
    yield _count("batch_scheduled_seqs_total", filled)
    yield _count("batch_contended_seq_capacity_total", contended)
    yield _count("batch_contended_scheduled_seqs_total", contended * phase.fill)
    yield _count("batch_scheduled_tokens_total", filled, phase="decode")
    yield _count("batch_preempted_tokens_total", filled * phase.wasted, kind="recompute")
    yield _count("batch_preemptions_total", filled * phase.wasted / 100, kind="recompute")


def _steps(phase: Phase) -> Iterable[Fact]:
    yield from _histogram("compute_step_seconds", phase.steps, phase.step_seconds, kind="decode")


def _gpu(phase: Phase) -> Iterable[Fact]:
    yield _gauge("compute_gpu_up", phase.gpu_up, device="cuda:0")
    for reason in ("sw_power_cap", "hw_slowdown", "hw_thermal"):
        share = phase.gpu.get(reason, 0)
        yield _count("compute_gpu_throttle_seconds_total", share, device="cuda:0", reason=reason)


def _backend(phase: Phase) -> Iterable[Fact]:
    engines = {phase.backend: "up" if phase.backend_up else "down", **phase.others}
    for name, state in engines.items():
        yield _gauge("backend_up", float(state != "down"), backend=name)
        for each in find("backend_state").labels[1].values:
            yield _gauge("backend_state", float(each == state), backend=name, state=each)
    told = ABSENT if phase.backend == "embedded" else phase.backend_up
    yield _gauge("backend_signal_available", told, backend=phase.backend, signal="running")
    age = phase.age if phase.backend_up else ABSENT
    yield _gauge("backend_metrics_age_seconds", age, backend=phase.backend)


def _limits(phase: Phase) -> Iterable[Fact]:
    for limit, (lowest, highest, usual) in LIMITS.items():
        usage, current = phase.limits.get(limit, (0, usual))
        bounds = {"current": current, "min": lowest, "max": highest}
        for bound, value in bounds.items():
            yield _gauge("limit", value, limit=limit, bound=bound)
        yield _gauge("limit_usage", usage, limit=limit)
        yield _gauge("limit_override", phase.overridden, limit=limit)


def _shared(phase: Phase) -> Iterable[Fact]:
    for mode in ("single", "shared", "holding", "alone"):
        yield _gauge("shared_state_mode", float(mode == phase.shared), mode=mode)


def _faults(phase: Phase) -> Iterable[Fact]:
    for name, usual in GAUGES.items():
        yield _gauge(name, phase.gauges.get(name, usual))
    for name, labels in FAULTS.items():
        yield _count(name, phase.faults.get(name, 0), **labels)


def ramp(minutes: float, start: Phase, end: Phase, count: int) -> list[Phase]:
    """Phases from one to the other in equal steps of traffic, fill and step time."""
    shares = [step / (count - 1) for step in range(count)]
    return [_between(start, end, share, minutes / count) for share in shares]


def _between(start: Phase, end: Phase, share: float, minutes: float) -> Phase:
    def mix(a: float, b: float) -> float:
        return a + (b - a) * share

    return Phase(
        minutes=minutes,
        rps=mix(start.rps, end.rps),
        steps=mix(start.steps, end.steps),
        step_seconds=mix(start.step_seconds, end.step_seconds),
        slots={"filled": mix(start.slots.get("filled", 0), end.slots.get("filled", 0))},
        contended=mix(start.contended, end.contended),
        fill=mix(start.fill, end.fill),
        bad={slo: mix(start.bad.get(slo, 0), bad) for slo, bad in end.bad.items()},
    )


def at(phases: Sequence[Phase]) -> list[float]:
    """The minute at which each phase has ended."""
    return list(accumulate(phase.minutes for phase in phases))
