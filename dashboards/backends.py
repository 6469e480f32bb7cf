"""What other engines call their metrics, and the one name that boards know each by.

vLLM and SGLang renamed theirs over time, and a colon in a name may reach Prometheus as an
underscore. Each signal therefore has its candidates, newest first, and a recording rule that takes
the first that exists: a version that exports both names is not counted twice.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from surgetank.dashboards.promql import ratio
from surgetank.dashboards.recordings import now
from surgetank.dashboards.rules import Group, Record
from surgetank.telemetry.catalog import MetricType

NEUTRAL = "surgetank_engine_"  # begins every recorded name; no metric of the product begins so
EMBEDDED, VLLM, SGLANG = "embedded", "vllm", "sglang"
REMOTE = (VLLM, SGLANG)
_GAUGE, _COUNTER, _HISTOGRAM = MetricType.GAUGE, MetricType.COUNTER, MetricType.HISTOGRAM

# Ranks of one model-parallel group all tell the same; data-parallel ones add up.
_SAME_RANKS = "tp_rank, pp_rank, moe_ep_rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One thing to know of any engine, and what each engine calls it, newest name first.

    Counters with their `_total`, histograms without their suffixes. `embedded` is an expression.
    """

    name: str
    type: MetricType
    vllm: tuple[str, ...]
    sglang: tuple[str, ...]
    embedded: str = ""
    combine: str = "sum"  # how one process' series become one; a ratio is averaged, never summed

    @property
    def neutral(self) -> str:
        """As boards name it."""
        return NEUTRAL + self.name

    @property
    def suffixes(self) -> tuple[str, ...]:
        """What its series' names end with."""
        return ("_bucket", "_count") if self.type is _HISTOGRAM else ("",)

    def candidates(self, engine: str) -> tuple[str, ...]:
        """The upstream names, each with its colon and with an underscore instead."""
        names = {VLLM: self.vllm, SGLANG: self.sglang}[engine]
        return tuple(f"{engine}{mark}{name}" for name in names for mark in ":_")


def _whole(counter: str, **match: str) -> str:
    """A counter of our own, summed over its labels; one process' counters start anew together."""
    return f"sum by (instance) ({now.select(counter, **match)})"


SIGNALS = (
    Signal(
        name="running_requests",
        type=_GAUGE,
        vllm=("num_requests_running",),
        sglang=("num_running_reqs",),
        embedded=now.gauge("sum", "batch_running_requests", "instance"),
    ),
    Signal(
        name="waiting_requests",
        type=_GAUGE,
        vllm=("num_requests_waiting",),
        sglang=("num_queue_reqs",),
        embedded=now.gauge("sum", "batch_waiting_requests", "instance"),
    ),
    Signal(
        name="kv_used_ratio",
        type=_GAUGE,
        vllm=("kv_cache_usage_perc", "gpu_cache_usage_perc"),
        sglang=("token_usage",),
        embedded=ratio(
            now.gauge("sum", "memory_kv_blocks", "instance", state="used"),
            now.gauge("sum", "memory_kv_blocks", "instance"),
        ),
        combine="avg",
    ),
    Signal(
        name="preemptions_total",
        type=_COUNTER,
        vllm=("num_preemptions_total",),
        sglang=("num_retracted_requests_total",),
        embedded=_whole("batch_preemptions_total"),
    ),
    Signal(
        name="prompt_tokens_total",
        type=_COUNTER,
        vllm=("prompt_tokens_total",),
        sglang=("prompt_tokens_total",),
        embedded=_whole("batch_scheduled_tokens_total", phase="prefill"),
    ),
    Signal(
        name="generation_tokens_total",
        type=_COUNTER,
        vllm=("generation_tokens_total",),
        sglang=("generation_tokens_total",),
        embedded=_whole("batch_scheduled_tokens_total", phase="decode"),
    ),
    Signal(
        name="prefix_hit_tokens_total",
        type=_COUNTER,
        vllm=("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
        sglang=("cached_tokens_total",),
        embedded=_whole("memory_prefix_tokens_total", result="hit"),
    ),
    Signal(
        name="prefix_query_tokens_total",
        type=_COUNTER,
        vllm=("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
        sglang=("prompt_tokens_total",),
        embedded=_whole("memory_prefix_tokens_total"),
    ),
    Signal(
        name="time_to_first_token_seconds",
        type=_HISTOGRAM,
        vllm=("time_to_first_token_seconds",),
        sglang=("time_to_first_token_seconds",),
    ),
    Signal(
        name="inter_token_latency_seconds",
        type=_HISTOGRAM,
        vllm=("inter_token_latency_seconds", "time_per_output_token_seconds"),
        sglang=("inter_token_latency_seconds", "time_per_output_token_seconds"),
    ),
    Signal(
        name="request_duration_seconds",
        type=_HISTOGRAM,
        vllm=("e2e_request_latency_seconds",),
        sglang=("e2e_request_latency_seconds",),
    ),
    Signal(
        name="queue_wait_seconds",
        type=_HISTOGRAM,
        vllm=("request_queue_time_seconds",),
        sglang=("queue_time_seconds",),
    ),
)
# What the gate steers by: an engine that does not tell these is steered half blind.
STEERING = tuple(signal for signal in SIGNALS if signal.type is _GAUGE)


def _records() -> Iterable[Record]:
    for signal in SIGNALS:
        if signal.embedded:
            yield Record(signal.neutral, signal.embedded, {"backend": EMBEDDED})
        for engine in REMOTE:
            for suffix in signal.suffixes:
                expr = _taken(signal, engine, suffix)
                yield Record(signal.neutral + suffix, expr, {"backend": engine})


def _taken(signal: Signal, engine: str, suffix: str) -> str:
    """The first candidate that exists, one series per instance and model."""
    first = " or ".join(name + suffix for name in signal.candidates(engine))
    once = f"max without ({_SAME_RANKS}) ({first})" if engine == SGLANG else first
    named = f'label_replace({once}, "model", "$1", "model_name", "(.+)")'
    keep = "instance, model, le" if suffix == "_bucket" else "instance, model"
    return f"{signal.combine} by ({keep}) ({named})"


BACKENDS = Group("surgetank_backends", tuple(_records()))


@dataclass(frozen=True, slots=True)
class Missing:
    """A signal that an engine's metrics do not carry, under any name that we know."""

    signal: Signal
    looked_for: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.signal.name}: none of {', '.join(self.looked_for)} is exported"


def missing(engine: str, text: str) -> tuple[Missing, ...]:
    """What boards will lack, told from an engine's /metrics page in the text format."""
    exported = set(re.findall(r"^([a-zA-Z_:][\w:]*)", text, re.MULTILINE))
    return tuple(
        Missing(signal, signal.candidates(engine))
        for signal in SIGNALS
        if not any(name + signal.suffixes[0] in exported for name in signal.candidates(engine))
    )
