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
    "in_flight",
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
        # Of the last minutes, how much somebody waited or was turned away, and what for.
        Record(
            "instance_cause:held:ratio2m",
            now.rate("queue_held_seconds_total", "instance", "cause"),
        ),
        Record("instance:queued:ratio2m", now.rate("queue_held_seconds_total", "instance")),
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
# that stand empty although requests are there are the gate's doing, and it says what for. The
# scheduler cuts a step's tokens so that steps end within the TPOT target: where they take half of
# it or more, a spent token budget is compute.
_slots = now.rate("batch_slot_steps_total", "instance", "state")
_capacity = now.rate("batch_seq_capacity_total", "instance")
_contended = now.rate("batch_contended_seq_capacity_total", "instance")
_contended_seqs = now.rate("batch_contended_scheduled_seqs_total", "instance")


def _slot(state: str) -> str:
    """Share of slots in a state, without the label that said which."""
    return f'sum by (instance) (instance_state:slots:ratio2m{{state="{state}"}})'


def _held(cause: str) -> str:
    """Share of slots that stand empty while the gate keeps requests out for that cause."""
    share = f'sum by (instance) (instance_cause:held:ratio2m{{cause="{cause}"}})'
    return f"({_times(_slot('no_work'), share)} or {_slot('no_work')} * 0)"


def _times(*factors: str) -> str:
    return "(" + " * on (instance) ".join(factors) + ")"


_queued, _short = "instance:queued:ratio2m", "instance:short_steps:bool"
_at_gate = _times(_slot("filled"), _queued)
_at_engine = f"({ratio(_contended_seqs, _capacity)})"
_filled = f"(({_at_engine} >= {_at_gate}) or {_at_gate} or {_at_engine})"
_budget = _slot("blocked_token_budget")

VERDICTS: dict[str, str] = {
    "compute": (
        f"{_filled} + on (instance) {_held('compute')} "
        f"+ on (instance) {_times(_budget, f'(1 - {_short})')}"
    ),
    "memory": f"{_slot('blocked_kv')} + on (instance) {_held('memory')}",
    "limit": f"{_slot('blocked_limit')} + on (instance) {_held('limit')}",
    "token_budget": f"{_times(_budget, _short)} + on (instance) {_held('token_budget')}",
    "scheduler": _slot("blocked_other"),
    "dispatch": _held("dispatch"),
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
