"""The metrics that the sidecar exports of each engine behind its gate, by the engine's name."""

from surgetank.telemetry.metricspec import (
    BACKEND,
    MAKER,
    Declare,
    Layer,
    MetricSpec,
    Process,
    closed,
)

_control = Declare(Process.SIDECAR, Layer.CONTROL)

BACKEND_METRICS: tuple[MetricSpec, ...] = (
    _control.gauge("backend_up", "1 while that engine is connected, else 0.", BACKEND),
    _control.gauge(
        "backend_info",
        "1; who made the engine of that name, and what it does of a request.",
        BACKEND,
        MAKER,
        closed("role", "both", "prefill", "decode"),
    ),
    _control.gauge(
        "backend_state",
        "1 for whether an engine gets requests, or why not.",
        BACKEND,
        closed(
            "state",
            *("up", "slow_start", "draining", "ejected", "down", "other_model", "prefill_only"),
        ),
    ),
    _control.gauge("backend_running_sequences", "Sequences in that engine.", BACKEND),
    _control.gauge(
        "backend_slots",
        "Sequences that it may have now, by the limits, what was learned of it and slow start.",
        BACKEND,
    ),
    _control.gauge(
        "backend_wait_seconds",
        "How long an average request, sent there now, would wait until its prompt is read.",
        BACKEND,
        unit="seconds",
    ),
    _control.source_counter(
        "backend_requests_total",
        "Requests that went to an engine, and why there: no other had room, the least wait, the "
        "beginning of its prompt was read there before.",
        BACKEND,
        closed("why", "only", "wait", "affinity"),
    ),
    _control.source_counter(
        "backend_moves_total",
        "Requests that another engine got after this one was lost or turned them away.",
        BACKEND,
    ),
    _control.source_counter(
        "backend_ejections_total",
        "Times that an engine was left out for faults in a row; that it was full is none.",
        BACKEND,
    ),
    _control.source_counter(
        "backend_restarts_total",
        "Times that an engine came back after it was lost, or was seen to be another process.",
        BACKEND,
    ),
    _control.gauge(
        "backend_metrics_age_seconds",
        "Since the embedded engine last reported a step, or another's metrics were last read; "
        "absent before the first.",
        BACKEND,
        unit="seconds",
    ),
    _control.gauge(
        "backend_signal_available",
        "1 while another maker's engine tells this of itself, else 0.",
        BACKEND,
        closed(
            "signal",
            *("running", "waiting", "kv_used"),
            *("prompt_tokens", "output_tokens", "preemptions"),
        ),
    ),
)
