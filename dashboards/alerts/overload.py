"""Alerts on the way in: retries, the queue at the gate, refusals, and the gate's limits."""

from surgetank.dashboards.objectives import TTFT_SECONDS
from surgetank.dashboards.promql import no, ratio
from surgetank.dashboards.recordings import PROTECTED, RETRIED, now
from surgetank.dashboards.rules import Alert, Group

_retries = now.increase("retry_arrivals_total", "instance", attempt=RETRIED)
_oldest = now.gauge("max", "queue_oldest_age_seconds", "instance", "priority", priority=PROTECTED)
_shed = f'instance_priority:shed:ratio2m{{priority=~"{"|".join(PROTECTED)}"}}'
_decisions = now.increase("admission_decisions_total", "instance", "priority")


def _mean_wait(priority: str) -> str:
    """Mean wait of one class's dispatched requests, where there were enough to say."""
    which = {"priority": priority, "outcome": "dispatched"}
    waits = now.mean("queue_wait_seconds", "instance", window="5m", **which)
    seen = now.events("queue_wait_seconds", "instance", window="5m", **which)
    return f"({waits} and {seen} * 300 >= 20)"


_current = now.gauge("max", "limit", "instance", "limit", bound="current")
_lowest = now.gauge("max", "limit", "instance", "limit", bound="min")
_highest = now.gauge("max", "limit", "instance", "limit", bound="max")
_usage = f"max by (instance, limit) (max_over_time({now.select('limit_usage')}[1m]))"
# What the brown-out ladder and the recovery move is meant to move.
_STEPS = (
    *("admission_share", "brownout_level", "low_output_tokens", "lowest_class"),
    *("retry_share", "sheddable_share"),
)
_value = now.select("limit", bound="current", limit=no(*_STEPS)) + "[10m]"
_downs, _moves = f"resets({_value})", f"changes({_value})"
_swing = ratio(f"max_over_time({_value})", f"min_over_time({_value})")
_overridden = now.gauge("max", "limit_override", "instance", "limit")

CLIENTS = Group(
    "surgetank_clients",
    (
        Alert(
            name="RetryStorm",
            expr=(
                "instance:amplification:ratio2m > 1.5\nand instance:retries:ratio2m > 0.2\n"
                f"and {_retries} >= 20"
            ),
            wait="1m",
            severity="critical",
            summary="Clients of {{ $labels.instance }} multiply the load by retrying.",
            description=(
                "{{ $value | humanize }} arrivals per first attempt over two minutes. What set it "
                "off may be long gone: a storm feeds itself. Look at who retries, by which "
                "header, on the Overload board."
            ),
        ),
    ),
)

QUEUE = Group(
    "surgetank_queue",
    (
        Alert(
            name="QueueWaitHigh",
            expr=f"{_oldest} > {TTFT_SECONDS:g}",
            wait="2m",
            severity="critical",
            summary="{{ $labels.priority }} requests wait too long at {{ $labels.instance }}.",
            description=(
                "The oldest has waited {{ $value | humanizeDuration }}, longer than its first "
                "token may take. The gate should have refused instead: look at the predicted "
                "wait and at the engine's pace on the Queue and batch board."
            ),
        ),
        Alert(
            name="ShedHigh",
            expr=f"{_shed} > 0.2\nand {_decisions} >= 20",
            wait="15m",
            severity="warning",
            summary="{{ $labels.instance }} has refused {{ $labels.priority }} requests for long.",
            description=(
                "{{ $value | humanizePercentage }} turned away for load. For minutes that is what "
                "the gate is for; for this long it is a shortage. The verdict on the Overview "
                "board says of what."
            ),
        ),
        *(
            Alert(
                name="PriorityInversion",
                expr=f"{_mean_wait(high)} > 2 * {_mean_wait(low)}\nand {_mean_wait(high)} > 0.1",
                wait="3m",
                severity="warning",
                labels={"waiting": high, "served": low},
                summary=f"{high} waits longer than {low} at {{{{ $labels.instance }}}}.",
                description=(
                    f"{high} requests waited {{{{ $value | humanizeDuration }}}} on average, more "
                    f"than twice as long as {low} ones. The order of service is upside down."
                ),
            )
            for high, low in (("critical", "default"), ("default", "batch"))
        ),
    ),
)

LIMITS = Group(
    "surgetank_limits",
    (
        Alert(
            name="LimitAtFloor",
            # An engine with one slot has but one value for the sequences in it.
            expr=(
                f"{_current} <= {_lowest}\nand {_usage} >= {_current}\nand {_lowest} < {_highest}"
            ),
            wait="2m",
            severity="warning",
            summary="The limit {{ $labels.limit }} of {{ $labels.instance }} is at its floor.",
            description=(
                "It stands at {{ $value | humanize }}, cannot go lower, and is used up. Either "
                "somebody set it, or what it follows has collapsed: its history names the cause."
            ),
        ),
        Alert(
            name="LimitFlapping",
            expr=(
                f"max by (instance, limit) ({_downs}) >= 4\n"
                f"and max by (instance, limit) ({_moves} - {_downs}) >= 4\n"
                f"and max by (instance, limit) ({_swing}) > 1.5\n"
                f"unless {_overridden} == 1"
            ),
            wait="2m",
            severity="warning",
            summary="The limit {{ $labels.limit }} of {{ $labels.instance }} swings up and down.",
            description=(
                "It fell {{ $value | humanize }} times in ten minutes and rose again as often, by "
                "half its value or more. Pin it while you find what it follows."
            ),
        ),
        Alert(
            name="LimitBinding",
            expr='instance_verdict:share:ratio2m{verdict="limit"} > 0.3',
            wait="3m",
            severity="warning",
            summary="Our own limit holds back {{ $labels.instance }}: work waits, slots are empty.",
            description=(
                "{{ $value | humanizePercentage }} of the engine's slots stand empty because a "
                "limit keeps waiting requests out. See which one is used up, and who set it."
            ),
        ),
    ),
)
