"""The board to open first: are clients served as promised, and if not, what stands in the way."""

from surgetank.dashboards.boards.verdict import SHARES, VERDICT
from surgetank.dashboards.objectives import OBJECTIVES, TPOT_SECONDS, TTFT_SECONDS
from surgetank.dashboards.panels import (
    TOKENS_PER_SECOND,
    Board,
    Kind,
    Panel,
    Query,
    Row,
    here,
    q,
    quantiles,
    recorded,
)
from surgetank.dashboards.promql import nonzero, ratio
from surgetank.dashboards.recordings import bad_share

_FIRING = 'ALERTS{alertstate="firing",severity=~"critical|warning"}'
_NONE_FIRES = f'label_replace(vector(0), "alertname", "none", "", "") unless on () {_FIRING}'
_ended = here.rate("requests_total", "outcome")
_failed = here.rate("request_failures_total", "reason")


def _target(slo: str) -> Query:
    """What the quantiles beside it are judged against, as each instance is configured."""
    return q(here.gauge("max", "slo_target_seconds", slo=slo), "target")


_NOW = Row(
    "Now",
    (
        VERDICT,
        Panel(
            title="Firing alerts",
            means="Alerts of this product that fire now.",
            do="Each has a runbook of its name: Meaning, Impact, Diagnosis, Mitigation.",
            queries=(
                q(
                    f"count by (alertname, severity) ({_FIRING}) or {_NONE_FIRES}",
                    "{{alertname}} {{severity}}",
                ),
            ),
            unit="short",
            kind=Kind.STAT,
            newest=True,
            width=8,
            bad=1,
        ),
        Panel(
            title="Engines connected",
            means="Backends that answer their sidecar, of all that should.",
            do="When one is missing: the alert BackendDown or BackendLeftOut.",
            queries=(
                q(here.gauge("sum", "backend_up"), "connected"),
                q(f"count({here.select('backend_up')})", "expected"),
            ),
            unit="short",
            kind=Kind.STAT,
            newest=True,
            width=4,
        ),
        Panel(
            title="In flight",
            means="Requests received and not yet ended, by lane.",
            do="A retry lane near the size of the first lane: the Overload board.",
            queries=(q(here.gauge("sum", "requests_in_flight", "lane"), "{{lane}}"),),
            unit="short",
            kind=Kind.STAT,
            width=4,
        ),
        Panel(
            title="Outcomes",
            means="How requests end. ok is goodput; everything else is named by its one outcome.",
            do="overload and retry_budget are the gate at work. internal, backend_down never are.",
            queries=(q(nonzero(_ended, "outcome"), "{{outcome}}"),),
            unit="reqps",
            stacked=True,
        ),
        SHARES,
    ),
)

_PROMISES = Row(
    "Promises",
    (
        Panel(
            title="Bad share of the error budget's requests (1 h)",
            means=(
                "Share of judged requests that broke their promise in the last hour. At most "
                + ", ".join(f"{1 - target:.1%} ({slo})" for slo, target in OBJECTIVES.items())
                + " may. Our refusals for load and clients' mistakes are not judged."
            ),
            do="Above its share the month's budget shrinks too fast: see the verdict.",
            queries=tuple(q(bad_share("1h", slo), slo) for slo in OBJECTIVES),
            unit="percentunit",
            lowest=0,
        ),
        Panel(
            title="Judged requests",
            means="Requests judged against each target, good and bad.",
            do="No judged requests: nothing is promised to anybody, and no burn alert can fire.",
            queries=(q(here.rate("slo_events_total", "slo", "result"), "{{slo}} {{result}}"),),
            unit="reqps",
        ),
        Panel(
            title="Time to first token",
            means="From an admitted request's headers to its first token. The refused have none.",
            do="Above the line: it is the queue (Queue and batch board) or prefill (Compute).",
            queries=(*quantiles("request_time_to_first_token_seconds"), _target("ttft")),
            unit="s",
        ),
        Panel(
            title="Time to first token by class (p99)",
            means="Higher classes must not wait longer than lower ones.",
            do="If they do: the alert PriorityInversion.",
            queries=tuple(quantiles("request_time_to_first_token_seconds", "priority", of=(0.99,))),
            unit="s",
            bad=TTFT_SECONDS,
        ),
        Panel(
            title="Time per output token",
            means="Mean pace of each answer after its first token.",
            do="Above the line steps take too long: the Compute board.",
            queries=(*quantiles("request_time_per_output_token_seconds"), _target("tpot")),
            unit="s",
        ),
        Panel(
            title="Gaps between tokens",
            means="What a reader feels: the time between one choice's tokens, stalls included.",
            do="A p99 far above p50: single steps spike (StepTimeSpike) or requests are preempted.",
            queries=tuple(quantiles("inter_token_latency_seconds")),
            unit="s",
            bad=TPOT_SECONDS,
        ),
    ),
)

_TRAFFIC = Row(
    "Traffic",
    (
        Panel(
            title="Why requests were not served",
            means="The one cause behind each request that did not end ok.",
            do="The Overload board splits the gate's reasons by class and lane.",
            queries=(q(nonzero(_failed, "reason", "no failure"), "{{reason}}"),),
            unit="reqps",
        ),
        Panel(
            title="Received",
            means="Requests whose headers arrived. It equals outcomes plus what is in flight.",
            do="More received than ended for long: requests pile up.",
            queries=(
                q(here.rate("requests_received_total"), "received"),
                q(here.rate("requests_total"), "ended"),
            ),
            unit="reqps",
        ),
        Panel(
            title="Tokens",
            means="Prompt tokens computed, prompt tokens found in the cache, tokens produced.",
            do="Output falling while requests do not: answers got shorter, or decoding slower.",
            queries=(q(here.rate("tokens_total", "kind"), "{{kind}}"),),
            unit=TOKENS_PER_SECOND,
        ),
        Panel(
            title="Request duration",
            means="From headers to end, whatever the outcome; refusals take milliseconds.",
            do="Read it beside the outcomes: many quick refusals make it look good.",
            queries=tuple(quantiles("request_duration_seconds")),
            unit="s",
        ),
        Panel(
            title="Shed share by class",
            means="Share of each class turned away for load or dropped from the queue, 2 minutes.",
            do="sheddable and batch go first, by design. critical or default for long: ShedHigh.",
            queries=(
                q(
                    f"avg by (priority) ({recorded('instance_priority:shed:ratio2m')})",
                    "{{priority}}",
                ),
            ),
            unit="percentunit",
            lowest=0,
            highest=1,
        ),
        Panel(
            title="Success share",
            means="Share of ended requests that ended ok, by lane.",
            do="first high and retry low is what a gate should do in a storm.",
            queries=(
                q(
                    ratio(
                        here.rate("requests_total", "lane", outcome="ok"),
                        here.rate("requests_total", "lane"),
                    ),
                    "{{lane}}",
                ),
            ),
            unit="percentunit",
            lowest=0,
            highest=1,
        ),
    ),
)

OVERVIEW = Board(
    "surgetank-overview",
    "Surgetank / Overview and SLO",
    "Are clients served as promised, and if not, what stands in the way?",
    (_NOW, _PROMISES, _TRAFFIC),
)
