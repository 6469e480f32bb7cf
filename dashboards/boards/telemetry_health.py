"""The telemetry about itself: is everything scraped, read, and within its bounds."""

from surgetank.dashboards.panels import Board, Kind, Panel, Row, here, q, quantiles
from surgetank.dashboards.prometheus import JOBS
from surgetank.dashboards.promql import nonzero

_OURS = f'job=~"{"|".join(JOBS)}",instance=~"$instance"'

_folded = here.rate("telemetry_label_overflow_total", "label")

_SCRAPES = Row(
    "Scrapes",
    (
        Panel(
            title="Targets",
            means="1 for each process that answered its last scrape.",
            do="0: the alert MetricsAbsent. Nothing at all: Prometheus has no targets.",
            queries=(q(f"up{{{_OURS}}}", "{{job}} {{instance}}"),),
            unit="short",
            kind=Kind.STAT,
            texts=((0, "silent", "red"), (1, "answers", "green")),
        ),
        Panel(
            title="What runs",
            means="Versions of every process.",
            do="More than one version in a fleet: a rollout is under way, or stuck.",
            queries=(
                q(
                    f"count by (instance, job, version, python) ({here.select('build_info')})",
                    "",
                ),
            ),
            unit="short",
            kind=Kind.TABLE,
        ),
        Panel(
            title="Time to answer a scrape",
            means="As the process itself measures it.",
            do="Above the line scrapes cost the service: look for too many series.",
            queries=tuple(quantiles("telemetry_scrape_seconds", "job", of=(0.5, 0.99))),
            unit="s",
            bad=0.2,
        ),
        Panel(
            title="Series per process",
            means="Samples in each scrape.",
            do="Growing without new models or limits: a label runs away.",
            queries=(q(f"scrape_samples_scraped{{{_OURS}}}", "{{job}} {{instance}}"),),
            unit="short",
            bad=3000,
        ),
    ),
)

_FAULTS = Row(
    "Faults",
    (
        Panel(
            title="Label values folded into `other`",
            means="Values that were not on a label's list, or past its cap.",
            do="A flood: LabelOverflow. A trickle: a client asks for a model that is not served.",
            queries=(q(nonzero(_folded, "label"), "{{label}}"),),
            unit="eps",
        ),
        Panel(
            title="Headers that were not followed",
            means="Request headers that were there, and why the gate did not do as they say.",
            do="untrusted: clients claim what they may not. malformed: a client library is broken.",
            queries=(
                q(
                    nonzero(here.rate("headers_ignored_total", "header", "problem"), "header"),
                    "{{header}} {{problem}}",
                ),
            ),
            unit="eps",
        ),
        Panel(
            title="HTTP requests turned away unread",
            means="Ended before their headers were read, so that no other number counts them.",
            do="header_timeout: slow or hostile clients. bad_request: no HTTP, or smuggling tried.",
            queries=(q(here.rate("http_unread_requests_total", "reason"), "{{reason}}"),),
            unit="eps",
        ),
        Panel(
            title="Faults of the control plane",
            means="Policies that raised, and changes that the journal's file did not get.",
            do="Any: the alerts PolicyFailing and JournalFailing.",
            queries=(
                q(here.rate("control_policy_errors_total", "instance"), "policies {{instance}}"),
                q(here.rate("journal_write_failures_total", "instance"), "journal {{instance}}"),
            ),
            unit="eps",
        ),
        Panel(
            title="Gauges that could not be read",
            means="Each leaves a hole where the gauge should be.",
            do="Any: a defect; the process' log has the traceback.",
            queries=(
                q(
                    nonzero(here.rate("telemetry_source_errors_total", "metric"), "metric"),
                    "{{metric}}",
                ),
            ),
            unit="eps",
        ),
    ),
)

_TRACES = Row(
    "Traces",
    (
        Panel(
            title="Spans that reached the collector",
            means="Parts of kept requests, exported.",
            do="0 with a collector configured: nothing ended, or see the panel beside it.",
            queries=(q(here.rate("trace_spans_exported_total", "instance"), "{{instance}}"),),
            unit="eps",
        ),
        Panel(
            title="Spans lost on their way",
            means="unreachable, queue_full: the collector is away or slow; nobody waits for it.",
            do="For long: TraceSpansDropped. A storm of refusals may need a larger tracing.queue.",
            queries=(q(here.rate("trace_spans_dropped_total", "reason"), "{{reason}}"),),
            unit="eps",
        ),
    ),
)

TELEMETRY_HEALTH = Board(
    "surgetank-telemetry",
    "Surgetank / Telemetry health",
    "Is everything scraped, read, and within its bounds?",
    (_SCRAPES, _FAULTS, _TRACES),
)
