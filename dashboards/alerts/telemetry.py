"""Alerts on the telemetry itself: what cannot be seen cannot be alerted on."""

from surgetank.dashboards.backends import NEUTRAL
from surgetank.dashboards.prometheus import BACKEND_JOB, JOBS, SIDECAR_JOB
from surgetank.dashboards.promql import ratio
from surgetank.dashboards.recordings import now
from surgetank.dashboards.rules import Alert, Group
from surgetank.telemetry.catalog import CATALOG, STEERING, MetricType

_jobs = "|".join(JOBS)
_answers = f'(up{{job="{BACKEND_JOB}"}} == 1)'


def _beyond(name: str, edge: float) -> str:
    """Share of observations beyond the last edge, where a quantile can only guess."""
    total = now.events(name, "instance", window="15m")
    inside = total.replace(f"{name}_count", f'{name}_bucket{{le="{float(edge)!r}"}}')
    return f"1 - {ratio(inside, total)}"


_folded = now.increase("telemetry_label_overflow_total", "instance", "label", window="15m")
_lost = now.increase("trace_spans_dropped_total", "instance", "reason", window="5m")
_decided = now.increase("admission_decisions_total", "instance", window="5m")
_histograms = [
    (spec.name, spec.buckets.edges[-1])
    for spec in CATALOG.values()
    if spec.type is MetricType.HISTOGRAM and spec.buckets is not None
]

TELEMETRY = Group(
    "surgetank_telemetry",
    (
        Alert(
            name="MetricsAbsent",
            expr=f'up{{job=~"{_jobs}"}} == 0',
            wait="1m",
            severity="critical",
            labels={"cause": "no_answer"},
            summary="{{ $labels.instance }} does not answer scrapes of {{ $labels.job }}.",
            description="The process is gone, hung, or cannot be reached from Prometheus.",
        ),
        Alert(
            name="MetricsAbsent",
            expr=f'absent(up{{job="{SIDECAR_JOB}"}})',
            wait="5m",
            severity="critical",
            labels={"cause": "no_target"},
            summary="Prometheus has no sidecar to scrape.",
            description=f"No target in the job {SIDECAR_JOB}: every other alert is blind.",
        ),
        Alert(
            name="MetricsAbsent",
            expr=f"{now.increase('telemetry_source_errors_total', 'instance', 'metric')} > 0",
            wait="2m",
            severity="warning",
            labels={"cause": "source"},
            summary="{{ $labels.instance }} cannot read its own {{ $labels.metric }}.",
            description="The gauge is absent from its scrapes; alerts that need it cannot fire.",
        ),
        *(
            Alert(
                name="MetricsAbsent",
                expr=f"{_answers} unless on (instance) {NEUTRAL}{signal.name}",
                wait="5m",
                severity="warning",
                labels={"cause": "unknown_name", "signal": signal.name},
                summary=f"{{{{ $labels.instance }}}} does not tell its {signal.name}.",
                description=(
                    "It answers scrapes, but under none of the names known for this signal: "
                    "another version may have renamed it. Boards and the gate do without."
                ),
            )
            for signal in STEERING
        ),
        Alert(
            name="LabelOverflow",
            expr=f"{_folded} > 100",
            wait="0s",
            severity="warning",
            summary="Unknown values of {{ $labels.label }} flood {{ $labels.instance }}.",
            description=(
                "{{ $value | humanize }} became `other` in 15 minutes. No memory is at risk; "
                "somebody sends junk, or a name is missing from the configuration."
            ),
        ),
        *(
            Alert(
                name="HistogramOverflow",
                expr=f"{_beyond(name, edge)} > 0.01",
                wait="5m",
                severity="warning",
                labels={"metric": name},
                summary=f"{name} of {{{{ $labels.instance }}}} goes beyond its buckets.",
                description=(
                    "{{ $value | humanizePercentage }} of its observations exceed "
                    f"{edge:g} s, so that its p99 reads {edge:g} s whatever it is."
                ),
            )
            for name, edge in _histograms
        ),
        Alert(
            name="TraceSpansDropped",
            expr=f"{_lost} > 0\nand on (instance) {_decided} >= 20",
            wait="10m",
            severity="warning",
            summary="{{ $labels.instance }} loses traces: {{ $labels.reason }}.",
            description=(
                "{{ $value | humanize }} spans in five minutes never reached the collector. No "
                "request waits for that, but the next incident's traces will be missing."
            ),
        ),
        Alert(
            name="Watchdog",
            expr="vector(1)",
            wait="0s",
            severity="none",
            summary="Alerting works.",
            description="Always fires. Somewhere else should notice when it stops.",
        ),
    ),
)
