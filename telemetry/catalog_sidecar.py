"""The metrics that the sidecar exports: request, queue, admission, control and retry."""

from surgetank.telemetry.buckets import BACKOFF, DURATION, PER_TOKEN, TTFT, WAIT
from surgetank.telemetry.catalog_backends import BACKEND_METRICS
from surgetank.telemetry.metricspec import (
    CAUSE,
    DETECTED_BY,
    LANE,
    LIMIT,
    MODEL,
    OUTCOME,
    POLICY,
    PRIORITY,
    QUEUE_EXIT,
    REASON,
    Declare,
    Layer,
    MetricSpec,
    Process,
    closed,
)
from surgetank.telemetry.vocabulary import SpanLoss

# The headers that the sidecar reads, and why one may not be followed.
HEADER = closed(
    "header",
    "grpc-previous-rpc-attempts",
    "x-stainless-retry-count",
    "x-envoy-attempt-count",
    "amz-sdk-request",
    "x-surgetank-attempt",
    "grpc-timeout",
    "x-surgetank-timeout",
    "x-stainless-read-timeout",
    "x-stainless-timeout",
    "x-surgetank-priority",
    "x-gateway-inference-objective",
    "x-smg-priority",
    "x-surgetank-tenant",
    "x-gateway-inference-fairness-id",
    "x-smg-tenant-id",
    "authorization",
    "x-api-key",
    "x-request-id",
    "traceparent",
    "tracestate",
)
PROBLEM = closed("problem", "conflict", "malformed", "out_of_range", "raised", "untrusted")

_request = Declare(Process.SIDECAR, Layer.REQUEST)
_queue = Declare(Process.SIDECAR, Layer.BATCH)
_admission = Declare(Process.SIDECAR, Layer.ADMISSION)
_control = Declare(Process.SIDECAR, Layer.CONTROL)
_retry = Declare(Process.SIDECAR, Layer.RETRY)
_tracing = Declare(Process.SIDECAR, Layer.TELEMETRY)

REQUEST_METRICS: tuple[MetricSpec, ...] = (
    _request.counter(
        "requests_received_total",
        "Requests whose headers arrived; equals all outcomes plus those in flight.",
    ),
    _request.counter(
        "http_unread_requests_total",
        "HTTP requests turned away before their headers were read: not among those received.",
        closed("reason", "bad_request", "headers_too_large", "header_timeout", "connections"),
    ),
    _request.counter(
        "requests_total",
        "Requests that ended, each with exactly one outcome; a request for n choices counts once.",
        *(MODEL, OUTCOME, LANE, PRIORITY),
    ),
    _request.counter(
        "request_failures_total",
        "Requests that ended other than ok, by their one cause.",
        REASON,
    ),
    _request.gauge("requests_in_flight", "Requests received and not yet ended.", LANE),
    _request.seconds(
        "request_duration_seconds",
        "From a request's headers to its end, whatever the outcome.",
        *(MODEL, PRIORITY),
        buckets=DURATION,
    ),
    _request.seconds(
        "request_time_to_first_token_seconds",
        "From an admitted request's headers to its first token (TTFT).",
        *(MODEL, PRIORITY),
        buckets=TTFT,
        slo="ttft",
    ),
    _request.seconds(
        "request_time_per_output_token_seconds",
        "Mean time per output token after the first, once per ok request (TPOT).",
        MODEL,
        buckets=PER_TOKEN,
        slo="tpot",
    ),
    _request.seconds(
        "inter_token_latency_seconds",
        "Between one choice's successive tokens; tokens that came together share their gap.",
        MODEL,
        buckets=PER_TOKEN,
        slo="tpot",
    ),
    _request.counter(
        "tokens_total",
        "Prompt tokens computed, prompt tokens found in the prefix cache, and tokens produced.",
        MODEL,
        closed("kind", "input", "input_cached", "output"),
        unit="tokens",
    ),
    _request.counter(
        "slo_events_total",
        "Requests judged against a target. Our refusals and clients' mistakes are not judged.",
        closed("slo", "availability", "ttft", "tpot"),
        closed("result", "good", "bad"),
    ),
    _request.gauge(
        "slo_target_seconds",
        "The latencies that requests are judged against, as configured.",
        closed("slo", "ttft", "tpot"),
        unit="seconds",
    ),
)

QUEUE_METRICS: tuple[MetricSpec, ...] = (
    _queue.gauge("queue_requests", "Requests waiting at the gate.", LANE, PRIORITY),
    _queue.gauge(
        "queue_tokens",
        "Prompt tokens of the requests waiting at the gate; their output is not counted.",
        PRIORITY,
        unit="tokens",
    ),
    _queue.gauge(
        "queue_oldest_age_seconds",
        "How long the longest-waiting request has waited; absent while none waits.",
        PRIORITY,
        unit="seconds",
    ),
    _queue.counter(
        "queue_held_seconds_total",
        "Time in which requests waited at the gate or were refused for load, by what kept the next "
        "one out of the batch.",
        closed("cause", "none", "stall", "compute", "memory", "limit", "token_budget", "dispatch"),
        unit="seconds",
    ),
    _queue.seconds(
        "queue_wait_seconds",
        "Time in the gate's queue, observed on leaving it, by how it was left.",
        *(PRIORITY, QUEUE_EXIT),
        buckets=WAIT,
        slo="ttft",
    ),
)

GATE_METRICS: tuple[MetricSpec, ...] = (
    _admission.counter(
        "admission_decisions_total",
        "What the gate decided about each request that reached it, and why.",
        closed("decision", "admitted", "refused"),
        *(REASON, LANE, PRIORITY),
    ),
    _admission.counter(
        "headers_ignored_total",
        "Request headers that were there and not followed, and why.",
        HEADER,
        PROBLEM,
    ),
    _admission.gauge(
        "predicted_wait_seconds",
        "What an average request would wait for its turn: by slots and KV, by prompts to read, by "
        "the engine's silence, and in all. Absent until the step model is fitted.",
        closed("term", "slot", "prefill", "age", "total"),
        unit="seconds",
    ),
    _admission.gauge(
        "wait_threshold_seconds",
        "The wait above which an average request is refused: kappa times its target.",
        unit="seconds",
    ),
    _admission.gauge(
        "queue_threshold_requests",
        "The same threshold in requests, at the measured drain rate and cost of a request.",
    ),
    _admission.gauge(
        "request_cost_seconds",
        "Engine-seconds of an average request of late.",
        unit="seconds",
    ),
    _admission.gauge(
        "drain_rate",
        "Engine-seconds served per second: 1 while steps take as long as the model says.",
    ),
    _admission.gauge(
        "step_model_fitted", "1 once the gate can predict waits, 0 while only fixed limits hold."
    ),
    _admission.gauge(
        "step_model_error_ratio", "Mean relative error of the gate's step model, of late."
    ),
    _admission.gauge("brownout_level", "Rung of the brown-out ladder; 0: nothing is held back."),
    _control.gauge(
        "ledger_drift",
        "Sequences that the gate had in the engine when it last told, less those that it told of.",
    ),
    _control.gauge(
        "limit",
        "The limit in force now, and the range within which it may be set.",
        LIMIT,
        closed("bound", "current", "min", "max"),
    ),
    _control.gauge("limit_usage", "How much of the limit is taken, in the limit's unit.", LIMIT),
    _control.gauge("limit_override", "1 while an operator's value is in force, else 0.", LIMIT),
    _control.counter(
        "limit_changes_total",
        "Changes of a limit: which way, and who caused it.",
        LIMIT,
        closed("direction", "up", "down", "same"),
        CAUSE,
    ),
    _control.counter(
        "control_policy_errors_total", "Policies that raised; their limits stayed as they were."
    ),
    _control.counter(
        "policy_shadow_decisions_total",
        "Requests about which a policy in the shadow was asked: what was done, what it said.",
        POLICY,
        closed("live", "admitted", "refused"),
        closed("shadow", "admitted", "refused"),
    ),
    _control.counter(
        "policy_rollbacks_total",
        "Policies that were taken back: by an operator, at their end, or for what they did.",
        POLICY,
        closed("cause", "operator", "expiry", "errors", "goodput", "late"),
    ),
    _control.counter(
        "policy_errors_total",
        "Times that a policy on trial, or one of another distribution, raised; another decided.",
        POLICY,
    ),
    _control.gauge(
        "policy_canary_goodput_ratio",
        "Of the engine-seconds offered to each arm, those answered in time; absent without one.",
        closed("arm", "live", "candidate"),
    ),
    _control.counter(
        "journal_write_failures_total", "Changes that the journal's file did not get."
    ),
    _control.gauge(
        "shared_state_mode",
        "1 for where this sidecar's shares of quotas come from: it is the only one, leases renewed "
        "in time, the last shares while Redis is lost, its part of each limit.",
        closed("mode", "single", "shared", "holding", "alone"),
    ),
    _control.gauge("shared_state_sidecars", "Sidecars that share, this one included."),
    _control.counter(
        "shared_state_failures_total", "Questions that Redis did not answer in time, or at all."
    ),
    _control.gauge(
        "fleet_leader", "1 while this sidecar decides for all that share; absent without a Redis."
    ),
    _retry.counter(
        "retry_arrivals_total",
        "Requests by attempt number (0 = first try), and what told it.",
        closed("attempt", "0", "1", "2", "3plus"),
        DETECTED_BY,
    ),
    _retry.gauge(
        "retry_budget_seconds", "Engine-seconds that retries may spend now.", unit="seconds"
    ),
    _retry.counter(
        "retry_budget_denied_total",
        "Retries refused for want of budget: the lane closed, the tenant's account, that of all, "
        "that of all sidecars.",
        closed(
            "reason",
            *("retry_share", "retry_budget_tenant", "retry_budget_all", "retry_budget_fleet"),
        ),
    ),
    _retry.seconds(
        "retry_backoff_taken_seconds",
        "From a failure to its client's return, by what became of the advised wait.",
        closed("advice", "obeyed", "ignored", "none"),
        buckets=BACKOFF,
    ),
    _retry.seconds(
        "retry_backoff_advised_seconds",
        "The waits that refusals asked clients for.",
        buckets=BACKOFF,
    ),
)

TRACE_METRICS: tuple[MetricSpec, ...] = (
    _tracing.counter("trace_spans_exported_total", "Spans that the collector took."),
    _tracing.counter(
        "trace_spans_dropped_total",
        "Spans that were to be kept and never reached the collector, and why.",
        closed("reason", *SpanLoss),
    ),
)

SIDECAR_METRICS = REQUEST_METRICS + QUEUE_METRICS + GATE_METRICS + BACKEND_METRICS + TRACE_METRICS
