"""The gate at work: who is turned away and why, who retries, and how the limits moved."""

from surgetank.dashboards.boards.policies import POLICIES
from surgetank.dashboards.boards.prediction import PREDICTION
from surgetank.dashboards.panels import Board, Kind, Panel, Row, here, q, quantiles, recorded
from surgetank.dashboards.promql import nonzero, ratio
from surgetank.dashboards.recordings import RETRIED

_refused = here.rate("admission_decisions_total", "reason", decision="refused")

_DECISIONS = Row(
    "Decisions",
    (
        Panel(
            title="Decisions",
            means="Requests let in and refused at the gate.",
            do="Refusals with empty slots in the batch are wrong refusals: see the verdict.",
            queries=(q(here.rate("admission_decisions_total", "decision"), "{{decision}}"),),
            unit="reqps",
            stacked=True,
        ),
        Panel(
            title="Refusals by reason",
            means="Each refusal has one reason, the limit it met, and a hint when to come back.",
            do="queue_* and predicted_wait: load. kv_pressure: memory. retry_budget: a storm.",
            queries=(q(nonzero(_refused, "reason", "no refusal"), "{{reason}}"),),
            unit="reqps",
            stacked=True,
        ),
        Panel(
            title="Refused share by class",
            means="Lower classes go first.",
            do="critical above zero while sheddable gets in: check the classes of the tenants.",
            queries=(
                q(
                    ratio(
                        here.rate("admission_decisions_total", "priority", decision="refused"),
                        here.rate("admission_decisions_total", "priority"),
                    ),
                    "{{priority}}",
                ),
            ),
            unit="percentunit",
            lowest=0,
            highest=1,
        ),
        Panel(
            title="Refused share by lane",
            means="First attempts and retries, apart.",
            do="Retries should be refused long before first attempts are.",
            queries=(
                q(
                    ratio(
                        here.rate("admission_decisions_total", "lane", decision="refused"),
                        here.rate("admission_decisions_total", "lane"),
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

_RETRIES = Row(
    "Retries",
    (
        Panel(
            title="Amplification",
            means="Arrivals per first attempt, two minutes. 1 is calm; 4 is three retries each.",
            do="Above 1.5 clients feed the overload: the alert RetryStorm.",
            queries=(q(recorded("instance:amplification:ratio2m"), "{{instance}}"),),
            unit="short",
            width=8,
            warn=1.2,
            bad=1.5,
            lowest=1,
        ),
        Panel(
            title="Retry share of arrivals",
            means="Share of arrivals that say, or are known, to be retries.",
            do="Above 20 %: find who retries, and whether they wait as they are told.",
            queries=(q(recorded("instance:retries:ratio2m"), "{{instance}}"),),
            unit="percentunit",
            width=8,
            bad=0.2,
            lowest=0,
        ),
        Panel(
            title="Retry share of what was served",
            means="Share of ok requests that were retries: work that a first attempt already cost.",
            do="High in a storm: the retry lane is too wide.",
            queries=(
                q(
                    ratio(
                        here.rate("requests_total", outcome="ok", lane="retry"),
                        here.rate("requests_total", outcome="ok"),
                    ),
                    "retries",
                ),
            ),
            unit="percentunit",
            width=8,
            lowest=0,
        ),
        Panel(
            title="Arrivals by attempt",
            means="0 is a first try. Each further layer of retries multiplies the one before.",
            do="Much at 3plus: more than one layer retries (SDK, proxy, application).",
            queries=(q(here.rate("retry_arrivals_total", "attempt"), "attempt {{attempt}}"),),
            unit="reqps",
            stacked=True,
        ),
        Panel(
            title="Retries by what told us",
            means="Which header stated the attempt: it names the client library that retries.",
            do="Tell that client's owner; `surgetank journal` shows what was changed meanwhile.",
            queries=(
                q(
                    nonzero(
                        here.rate("retry_arrivals_total", "detected_by", attempt=RETRIED),
                        "detected_by",
                    ),
                    "{{detected_by}}",
                ),
            ),
            unit="reqps",
        ),
        Panel(
            title="Retry budget",
            means="Engine-seconds that retries may spend now; first attempts pay in.",
            do="Near zero: retries are refused, which is what protects first attempts.",
            queries=(q(here.gauge("min", "retry_budget_seconds", "instance"), "{{instance}}"),),
            unit="s",
            lowest=0,
        ),
        Panel(
            title="Retries refused for want of budget",
            means="By whose budget was spent: the lane's, one tenant's, or that of all.",
            do="One tenant's: tell that tenant. That of all: a storm.",
            queries=(q(here.rate("retry_budget_denied_total", "reason"), "{{reason}}"),),
            unit="reqps",
        ),
        Panel(
            title="Obedience",
            means="Share of returning clients that waited as long as they were told.",
            do="Low: those clients ignore Retry-After; only the retry lane holds them.",
            queries=(
                q(
                    ratio(
                        here.events("retry_backoff_taken_seconds", advice="obeyed"),
                        here.events("retry_backoff_taken_seconds", advice=("obeyed", "ignored")),
                    ),
                    "obeyed",
                ),
            ),
            unit="percentunit",
            lowest=0,
            highest=1,
        ),
        Panel(
            title="Waits that clients took",
            means="From a failure to the client's return, by what became of the advice.",
            do="Compare with what was asked for, beside it.",
            queries=tuple(
                quantiles("retry_backoff_taken_seconds", "advice", of=(0.5, 0.95)),
            ),
            unit="s",
        ),
        Panel(
            title="Waits that refusals asked for",
            means="The hint in each refusal: when to come back.",
            do="Long waits mean that the next free slot is far away.",
            queries=tuple(quantiles("retry_backoff_advised_seconds")),
            unit="s",
        ),
    ),
)

_OF_HIGHEST = ratio(
    here.gauge("max", "limit", "instance", "limit", bound="current"),
    here.gauge("max", "limit", "instance", "limit", bound="max"),
)
# At the graph's end, so that a limit which moved is drawn from the graph's beginning.
_MOVED = (
    f"max by (instance, limit) (changes({here.select('limit', bound='current')}[1h] @ end())) > 0"
)

_LIMITS = Row(
    "Limits",
    (
        Panel(
            title="Limit usage",
            means="How much of each limit is taken.",
            do="1 is a limit that binds; `surgetank limits show` tells who set it.",
            queries=(q(recorded("instance_limit:used:ratio"), "{{limit}} {{instance}}"),),
            unit="percentunit",
            lowest=0,
            warn=0.9,
            bad=1,
        ),
        Panel(
            title="Limit history",
            means="Limits that moved within the hour, as a share of the highest value allowed.",
            do="A sawtooth is LimitFlapping; a flat line at the bottom is LimitAtFloor.",
            queries=(
                q(f"({_OF_HIGHEST}) and on (instance, limit) {_MOVED}", "{{limit}} {{instance}}"),
            ),
            unit="percentunit",
            lowest=0,
        ),
        Panel(
            title="Limit values",
            means="Each limit in its own unit, as it is in force now.",
            do="Change one for a while: `surgetank limits set NAME VALUE --ttl 10m --why ...`.",
            queries=(q(here.gauge("max", "limit", "instance", "limit", bound="current"), ""),),
            unit="short",
            kind=Kind.TABLE,
            height=10,
        ),
        Panel(
            title="Limit usage, absolute",
            means="What is taken of each limit, in the limit's own unit.",
            do="Compare with the values beside it.",
            queries=(
                q(
                    here.gauge("max", "limit_usage", "instance", "limit"),
                    "{{limit}} {{instance}}",
                ),
            ),
            unit="short",
        ),
        Panel(
            title="Limit changes by cause",
            means="How often each limit moved, and who moved it: a policy, an operator, an expiry.",
            do="`surgetank journal` has each change with who, why, before and after.",
            queries=(
                q(
                    nonzero(
                        here.increase(
                            "limit_changes_total", "limit", "direction", "cause", window="5m"
                        ),
                        "limit",
                    ),
                    "{{limit}} {{direction}} {{cause}}",
                ),
            ),
            unit="short",
        ),
        Panel(
            title="Overridden limits",
            means="1 while an operator's value is in force; none: there is no such value.",
            do="An override that is no longer needed: `surgetank limits clear NAME --why ...`.",
            queries=(
                q(
                    nonzero(here.gauge("max", "limit_override", "instance", "limit"), "limit"),
                    "{{limit}} {{instance}}",
                ),
            ),
            unit="short",
            lowest=0,
            highest=1,
        ),
    ),
)

_SHARED = Row(
    "Shared state",
    (
        Panel(
            title="Where quotas come from",
            means="Sidecars by mode: single by choice, sharing, or without the Redis they share.",
            do="holding or alone for a minute: the alert SharedStateLost; see `surgetank fleet`.",
            queries=(
                q(
                    f"sum by (mode) ({here.gauge('max', 'shared_state_mode', 'instance', 'mode')})",
                    "{{mode}}",
                ),
            ),
            unit="short",
            width=8,
            stacked=True,
            lowest=0,
        ),
        Panel(
            title="Sidecars that share",
            means="How many each of them knows, itself included.",
            do="They should agree; one that counts fewer has just met Redis, or lost it.",
            queries=(q(here.gauge("max", "shared_state_sidecars", "instance"), "{{instance}}"),),
            unit="short",
            width=8,
            lowest=0,
        ),
        Panel(
            title="Leader",
            means="1 for the sidecar that decides for all; at most one, but for a moment.",
            do="None for long: no sidecar reaches Redis.",
            queries=(q(here.gauge("max", "fleet_leader", "instance"), "{{instance}}"),),
            unit="short",
            width=8,
            lowest=0,
            highest=1,
        ),
        Panel(
            title="Unanswered questions to Redis",
            means="It did not answer in time, or at all. No request waits for an answer.",
            do="A few: a slow Redis or network; raise leases.timeout. All: it is gone.",
            queries=(q(here.rate("shared_state_failures_total", "instance"), "{{instance}}"),),
            unit="reqps",
        ),
        Panel(
            title="Refused for a tenant's quota",
            means="Requests beyond what their tenant may use, over all sidecars together.",
            do="`surgetank fleet` shows the tenants' shares; quotas stand in leases.tenants.",
            queries=(
                q(
                    here.rate("request_failures_total", "reason", reason="tenant_quota"),
                    "{{reason}}",
                ),
            ),
            unit="reqps",
        ),
    ),
)

OVERLOAD = Board(
    "surgetank-overload",
    "Surgetank / Overload",
    "Who is turned away and why, who retries, and how the limits moved.",
    (_DECISIONS, _RETRIES, PREDICTION, POLICIES, _LIMITS, _SHARED),
)
