"""Series that alerts and boards share: service levels, and what holds the queue back.

Names follow Prometheus' level:metric:operation. Every one keeps `instance`, which is one replica:
its sidecar and its engine are scraped under the same instance, by different jobs.
"""

from surgetank.dashboards.objectives import TPOT_SECONDS, WINDOWS
from surgetank.dashboards.promql import Scope, ratio
from surgetank.dashboards.rules import Group, Record

# Why a request was turned away for load. Mistakes of clients and absent engines are not among them.
LOAD_REASONS = (
    "queue_requests",
    "queue_tokens",
    "predicted_wait",
    "kv_pressure",
    "brown_out",
    "deadline_on_arrival",
)
# How a request that was let in is dropped before it is served.
DROPPED = ("shed", "expired")
RETRIED = ("1", "2", "3plus")  # attempt numbers
# Classes whose refusal hurts; the others exist to be refused first.
PROTECTED = ("critical", "default")

now = Scope("2m")


def _judged(window: str) -> tuple[Record, ...]:
    """Requests judged against each target in a window, and the bad ones among them."""
    return (
        Record(
            f"slo:events:increase{window}", now.increase("slo_events_total", "slo", window=window)
        ),
        Record(
            f"slo:bad_events:increase{window}",
            now.increase("slo_events_total", "slo", window=window, result="bad"),
        ),
    )


def bad_share(window: str, slo: str) -> str:
    """The share of judged requests that were bad, over the whole fleet."""
    bad = f'slo:bad_events:increase{window}{{slo="{slo}"}}'
    return ratio(bad, f'slo:events:increase{window}{{slo="{slo}"}}')


SERVICE_LEVELS = Group(
    "surgetank_slo", tuple(record for window in WINDOWS for record in _judged(window)), "30s"
)

_refused = now.rate(
    "admission_decisions_total",
    *("instance", "priority"),
    decision="refused",
    reason=LOAD_REASONS,
)
_dropped = now.events("queue_wait_seconds", "instance", "priority", outcome=DROPPED)
_decided = now.rate("admission_decisions_total", "instance", "priority")
_arrivals = now.rate("retry_arrivals_total", "instance")
_retries = now.rate("retry_arrivals_total", "instance", attempt=RETRIED)
_bad_here = now.rate("slo_events_total", "instance", "slo", window="5m", result="bad")
_judged_here = now.rate("slo_events_total", "instance", "slo", window="5m")

LOAD = Group(
    "surgetank_load",
    (
        Record("instance_priority:shed:ratio2m", ratio(f"{_refused} + {_dropped}", _decided)),
        Record("instance_slo:bad_events:ratio5m", ratio(_bad_here, _judged_here)),
        Record("instance:retries:ratio2m", ratio(_retries, _arrivals)),
        # Arrivals per first attempt; +Inf when every arrival is a retry.
        Record("instance:amplification:ratio2m", "1 / (1 - instance:retries:ratio2m)"),
        Record(
            "instance:queued:bool", f"{now.gauge('sum', 'queue_requests', 'instance')} > bool 0"
        ),
        Record("instance:queued:ratio2m", "avg_over_time(instance:queued:bool[2m])"),
        Record(
            "instance_limit:used:ratio",
            ratio(
                now.gauge("max", "limit_usage", "instance", "limit"),
                now.gauge("max", "limit", "instance", "limit", bound="current"),
            ),
        ),
    ),
)

# Why the engine's slots are what they are, while somebody waits. The engine sees its own queue
# (contended steps); what waits at the gate, it does not, so the longer of the two counts. Slots
# that stand empty although the gate holds requests are the gate's doing: its KV reserve, its limit
# of sequences in flight, or else its pace. The gate paces, and the scheduler cuts a step's tokens,
# so that steps end within the TPOT target: where they take half of it or more, that is compute.
_slots = now.rate("batch_slot_steps_total", "instance", "state")
_capacity = now.rate("batch_seq_capacity_total", "instance")
_contended = now.rate("batch_contended_seq_capacity_total", "instance")
_contended_seqs = now.rate("batch_contended_scheduled_seqs_total", "instance")


def _slot(state: str) -> str:
    """Share of slots in a state, without the label that said which."""
    return f'sum by (instance) (instance_state:slots:ratio2m{{state="{state}"}})'


def _gate_full(limit: str) -> str:
    return f'sum by (instance) (instance_limit:used:ratio{{limit="{limit}"}} >= bool 0.95)'


def _times(*factors: str) -> str:
    return "(" + " * on (instance) ".join(factors) + ")"


_queued, _short = "instance:queued:ratio2m", "instance:short_steps:bool"
_at_gate = _times(_slot("filled"), _queued)
_at_engine = f"({ratio(_contended_seqs, _capacity)})"
_filled = f"(({_at_engine} >= {_at_gate}) or {_at_gate} or {_at_engine})"
_held = _times(_slot("no_work"), _queued)
_kv_full, _seqs_full = _gate_full("kv_reserve"), _gate_full("in_flight_seqs")
_by_memory = _times(_held, _kv_full)
_by_limit = _times(_held, _seqs_full, f"(1 - {_kv_full})")
_paced = _times(_held, f"(1 - {_seqs_full})", f"(1 - {_kv_full})")
_budget = _slot("blocked_token_budget")

VERDICTS: dict[str, str] = {
    "compute": (
        f"{_filled} + on (instance) "
        f"{_times(f'({_paced} + on (instance) {_budget})', f'(1 - {_short})')}"
    ),
    "memory": f"{_slot('blocked_kv')} + on (instance) {_by_memory}",
    "limit": f"{_slot('blocked_limit')} + on (instance) {_by_limit}",
    "token_budget": _times(_budget, _short),
    "scheduler": _slot("blocked_other"),
    "dispatch": _times(_paced, _short),
}

VERDICT = Group(
    "surgetank_verdict",
    (
        Record(
            "instance_state:slots:ratio2m",
            f"{_slots} / on (instance) group_left () ({_capacity} > 0)",
        ),
        Record(
            "instance:short_steps:bool",
            f"{now.mean('compute_step_seconds', 'instance')} < bool {TPOT_SECONDS / 2:g}",
        ),
        Record("instance:contended:ratio2m", ratio(_contended, _capacity)),
        Record("instance:contended_fill:ratio2m", ratio(_contended_seqs, _contended)),
        *(
            Record("instance_verdict:share:ratio2m", expr, {"verdict": verdict})
            for verdict, expr in VERDICTS.items()
        ),
    ),
)

RECORDINGS = (SERVICE_LEVELS, LOAD, VERDICT)
