"""Alerts on the engine: gone, stalled, slow, short of memory, or badly scheduled."""

from surgetank.dashboards.backends import EMBEDDED
from surgetank.dashboards.objectives import OBJECTIVES, TPOT_SECONDS
from surgetank.dashboards.promql import no, ratio
from surgetank.dashboards.recordings import now
from surgetank.dashboards.rules import Alert, Group

RESTARTS = 3  # of one engine in 15 minutes: an upgrade takes one, a fixed mistake two
_DECODING = ("decode", "mixed")  # steps that somebody's next token waits for

_p99 = now.quantile(0.99, "compute_step_seconds", "instance", window="5m", kind=_DECODING)
# The hour before: within minutes a spike would be a hundredth of its own hour, and look usual.
_usual = now.quantile(
    0.99, "compute_step_seconds", "instance", window="1h", ago="10m", kind=_DECODING
)
_steps = now.events("compute_step_seconds", "instance", window="5m", kind=_DECODING)
_wasted = ratio(
    now.rate("batch_preempted_tokens_total", "instance", kind="recompute"),
    now.rate("batch_scheduled_tokens_total", "instance"),
)
_out_of_memory = now.increase("memory_oom_total", "instance", "source")
_preemptions = now.increase("batch_preemptions_total", "instance")
_late = " or ".join(
    f'instance_slo:bad_events:ratio5m{{slo="{slo}"}} > {1 - OBJECTIVES[slo]:g}'
    for slo in ("ttft", "tpot")
)
_throttled = now.select(
    "compute_gpu_throttle_seconds_total",
    reason=("hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"),
)
_left_out = now.gauge(
    *("max", "backend_state", "instance", "backend", "state"),
    state=("down", "ejected", "other_model"),
)


def _verdict(*names: str) -> str:
    return f'sum by (instance) (instance_verdict:share:ratio2m{{verdict=~"{"|".join(names)}"}})'


BACKEND = Group(
    "surgetank_backend",
    (
        Alert(
            name="BackendDown",
            expr=f"{now.gauge('max', 'backend_up', 'instance')} == 0",
            wait="15s",
            severity="critical",
            summary="{{ $labels.instance }} has no engine: none is connected.",
            description="Every request is refused at once until an engine is back.",
        ),
        Alert(
            name="BackendLeftOut",
            expr=(
                f"{_left_out} == 1\nand on (instance) "
                f"({now.gauge('max', 'backend_up', 'instance')} == 1)"
            ),
            wait="15s",
            severity="warning",
            summary="{{ $labels.backend }} of {{ $labels.instance }} gets no requests: "
            "{{ $labels.state }}.",
            description=(
                "down: it does not answer. ejected: it failed several times in a row. other_model: "
                "it serves another model than the others. The others carry its load."
            ),
        ),
        Alert(
            name="BackendRestarting",
            expr=(
                now.increase("backend_restarts_total", "instance", "backend", window="15m")
                + f" > {RESTARTS - 0.5}"  # it extrapolates: two may read as 2.1
            ),
            wait="0s",
            severity="warning",
            summary="{{ $labels.backend }} of {{ $labels.instance }} is restarted again and again.",
            description=(
                "{{ $value | humanize }} times in 15 minutes. What it was working on is lost each "
                "time; a request that kills it may be sent again by its client."
            ),
        ),
        Alert(
            name="EngineStalled",
            expr=(
                now.gauge(
                    "max", "backend_metrics_age_seconds", "instance", "backend", backend=EMBEDDED
                )
                + " > 10"
            ),
            wait="10s",
            severity="critical",
            summary="The engine of {{ $labels.instance }} has work and does not step.",
            description=(
                "No step for {{ $value | humanizeDuration }}. Everything in flight waits; clients "
                "will time out and retry."
            ),
        ),
        Alert(
            name="BackendStale",
            expr=(
                now.gauge(
                    "max",
                    "backend_metrics_age_seconds",
                    "instance",
                    "backend",
                    backend=no(EMBEDDED),
                )
                + " > 15"
            ),
            wait="30s",
            severity="warning",
            summary="{{ $labels.instance }} knows nothing new of {{ $labels.backend }}.",
            description=(
                "Its metrics are {{ $value | humanizeDuration }} old. The gate steers by its own "
                "ledger meanwhile, which does not see other clients of that engine."
            ),
        ),
        Alert(
            name="LedgerDrift",
            # The median: what is lost or somebody else's is there at most looks, and no single look
            # at a busy engine counts.
            expr=(
                "max by (instance) "
                f"(abs(quantile_over_time(0.5, {now.select('ledger_drift')}[2m]))) >= 1"
            ),
            wait="1m",
            severity="warning",
            summary="{{ $labels.instance }} and its engine disagree about what runs.",
            description=(
                "They differ by {{ $value | humanize }} sequences. Either one was lost on the "
                "way, or somebody else uses that engine."
            ),
        ),
    ),
)

STEPS = Group(
    "surgetank_steps",
    (
        Alert(
            name="StepTimeSpike",
            expr=(
                f"{_p99} > 3 * {_usual}\nand {_p99} > {TPOT_SECONDS:g}\nand {_steps} * 300 >= 100"
            ),
            wait="1m",
            severity="critical",
            summary="Steps of {{ $labels.instance }} take three times as long as usual.",
            description=(
                "The slowest hundredth took {{ $value | humanizeDuration }} or more: everyone in "
                "flight waits that long for a token. Look at the tokens per step."
            ),
        ),
        Alert(
            name="PreemptionThrash",
            expr=f"{_wasted} > 0.1\nand {_preemptions} >= 5",
            wait="2m",
            severity="warning",
            summary="{{ $labels.instance }} computes the same tokens again and again.",
            description=(
                "{{ $value | humanizePercentage }} of the computed tokens were thrown away by "
                "preemption: more was let in than the KV pool can hold."
            ),
        ),
        Alert(
            name="OutOfMemory",
            expr=f"{_out_of_memory} > 0",
            wait="0s",
            severity="critical",
            summary="{{ $labels.instance }} ran out of {{ $labels.source }} memory.",
            description=(
                "{{ $value | humanize }} times in two minutes. The engine goes on; the Memory "
                "board says what it did about it: refused means that a request was lost."
            ),
        ),
    ),
)

GPU = Group(
    "surgetank_gpu",
    (
        Alert(
            name="GpuFault",
            expr=f"{now.increase('compute_xid_total', 'instance', 'device', window='5m')} > 0",
            wait="0s",
            severity="critical",
            labels={"cause": "xid"},
            summary="{{ $labels.device }} of {{ $labels.instance }} reports a fault.",
            description=(
                "{{ $value | humanize }} XIDs in five minutes. The engine's log has their numbers: "
                "13, 31 and 43 are a program's fault, 48, 63, 74, 79 and 94 the hardware's."
            ),
        ),
        Alert(
            name="GpuFault",
            expr=f"{now.gauge('min', 'compute_gpu_up', 'instance', 'device')} == 0",
            wait="2m",
            severity="critical",
            labels={"cause": "driver"},
            summary="{{ $labels.device }} of {{ $labels.instance }} does not answer its driver.",
            description="The GPU fell off the bus, or its driver was unloaded or updated.",
        ),
        Alert(
            name="GpuThrottle",
            expr=f"max by (instance, device) (rate({_throttled}[5m])) > 0.1",
            wait="5m",
            severity="warning",
            summary="{{ $labels.device }} of {{ $labels.instance }} is held back by its hardware.",
            description=(
                "{{ $value | humanizePercentage }} of the time its clocks are held down by heat or "
                "power supply. Every step takes longer, and nothing in the service can help it."
            ),
        ),
    ),
)

LIMITED = Group(
    "surgetank_limited",
    (
        Alert(
            name="ComputeLimited",
            expr=f"{_verdict('compute')} > 0.7\nand on (instance) ({_late})",
            wait="5m",
            severity="warning",
            summary="{{ $labels.instance }} needs more compute: it is full, and clients feel it.",
            description=(
                "{{ $value | humanizePercentage }} of the slots are filled while others wait, and "
                "targets are missed. Nothing is set wrongly; there is more work than device."
            ),
        ),
        Alert(
            name="MemoryLimited",
            expr=f"{_verdict('memory')} > 0.2",
            wait="3m",
            severity="warning",
            summary="KV memory holds back {{ $labels.instance }}: work waits, slots are empty.",
            description=(
                "{{ $value | humanizePercentage }} of the slots stand empty for want of KV blocks."
            ),
        ),
        Alert(
            name="SchedulingLimited",
            expr=f"{_verdict('scheduler', 'dispatch')} > 0.3",
            wait="3m",
            severity="warning",
            labels={"cause": "empty_slots"},
            summary="{{ $labels.instance }} does not fill its batch although work waits.",
            description=(
                "{{ $value | humanizePercentage }} of the slots stand empty, and neither memory "
                "nor a limit is why. The device idles while clients wait."
            ),
        ),
        Alert(
            name="SchedulingLimited",
            expr=f"{_verdict('token_budget')} > 0.3",
            wait="3m",
            severity="warning",
            labels={"cause": "token_budget"},
            summary="The token budget of {{ $labels.instance }} is too small for its steps.",
            description=(
                "{{ $value | humanizePercentage }} of the slots wait for tokens of the step's "
                "budget, and steps end long before they must. A larger budget costs nothing."
            ),
        ),
    ),
)
