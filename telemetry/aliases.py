"""What other engines call what we want to know of any engine: one table, for boards and scrapes.

vLLM and SGLang renamed metrics over time, and a colon in a name may reach us as an underscore. So
each signal has its candidates, newest first, and the first that is there counts: some versions
export the old and the new name side by side.

Names as of vLLM 0.6 to 0.32 (vllm/v1/metrics/loggers.py, before that vllm/engine/metrics.py) and
SGLang 0.4 to 0.5 (python/sglang/srt/observability/metrics_collector.py, before that
python/sglang/srt/metrics/collector.py).
"""

from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

from surgetank.telemetry.metricspec import MetricType

VLLM, SGLANG = "vllm", "sglang"
ENGINES = (VLLM, SGLANG)
_GAUGE, _COUNTER, _HISTOGRAM = MetricType.GAUGE, MetricType.COUNTER, MetricType.HISTOGRAM

# Labels by which an engine repeats one fact: ranks of a model-parallel group all tell the same.
# Data-parallel engines (`engine`, `dp_rank`) tell each their own, and are added up.
REPEATED = {VLLM: (), SGLANG: ("tp_rank", "pp_rank", "moe_ep_rank")}
# SGLang with priorities exports each count once for all (priority "") and again by priority.
TOTAL = {VLLM: {}, SGLANG: {"priority": ""}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """One signal: our name for it and each engine's, newest first, without the engine's prefix.

    Counters with their `_total`, histograms without their suffixes.
    """

    name: str
    type: MetricType
    vllm: tuple[str, ...]
    sglang: tuple[str, ...]
    combine: Literal["sum", "avg"] = "sum"  # of one server's series; a ratio is never summed
    split: bool = False  # SGLang may split it by priority, beside its total

    @property
    def suffixes(self) -> tuple[str, ...]:
        """What its series' names end with."""
        return ("_bucket", "_count") if self.type is _HISTOGRAM else ("",)

    def candidates(self, engine: str) -> tuple[str, ...]:
        """The engine's names for it, each with its colon and with an underscore instead."""
        names = {VLLM: self.vllm, SGLANG: self.sglang}[engine]
        return tuple(f"{engine}{mark}{name}" for name in names for mark in ":_")

    def found(self, engine: str, exported: Container[str]) -> str | None:
        """The name to read among the exported series' names; None when the engine tells none."""
        suffix = self.suffixes[0]
        return next((each for each in self.candidates(engine) if each + suffix in exported), None)


ALIASES: tuple[Alias, ...] = (
    Alias(
        name="running_requests",
        type=_GAUGE,
        vllm=("num_requests_running",),
        sglang=("num_running_reqs",),
        split=True,
    ),
    Alias(
        name="waiting_requests",
        type=_GAUGE,
        vllm=("num_requests_waiting",),
        sglang=("num_queue_reqs",),
        split=True,
    ),
    Alias(
        name="kv_used_ratio",
        type=_GAUGE,
        vllm=("kv_cache_usage_perc", "gpu_cache_usage_perc"),
        sglang=("token_usage",),
        combine="avg",
    ),
    Alias(
        name="preemptions_total",
        type=_COUNTER,
        vllm=("num_preemptions_total",),
        sglang=("num_retracted_requests_total",),
    ),
    Alias(
        name="prompt_tokens_total",
        type=_COUNTER,
        vllm=("prompt_tokens_total",),
        sglang=("prompt_tokens_total",),
    ),
    Alias(
        name="generation_tokens_total",
        type=_COUNTER,
        vllm=("generation_tokens_total",),
        sglang=("generation_tokens_total",),
    ),
    Alias(
        name="prefix_hit_tokens_total",
        type=_COUNTER,
        vllm=("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
        sglang=("cached_tokens_total",),
    ),
    Alias(
        name="prefix_query_tokens_total",
        type=_COUNTER,
        vllm=("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
        sglang=("prompt_tokens_total",),
    ),
    Alias(
        name="time_to_first_token_seconds",
        type=_HISTOGRAM,
        vllm=("time_to_first_token_seconds",),
        sglang=("time_to_first_token_seconds",),
    ),
    Alias(
        name="inter_token_latency_seconds",
        type=_HISTOGRAM,
        vllm=("inter_token_latency_seconds", "time_per_output_token_seconds"),
        sglang=("inter_token_latency_seconds", "time_per_output_token_seconds"),
    ),
    Alias(
        name="request_duration_seconds",
        type=_HISTOGRAM,
        vllm=("e2e_request_latency_seconds",),
        sglang=("e2e_request_latency_seconds",),
    ),
    Alias(
        name="queue_wait_seconds",
        type=_HISTOGRAM,
        vllm=("request_queue_time_seconds",),
        sglang=("queue_time_seconds",),
    ),
)
# What a gate steers by: an engine that does not tell these is steered half blind.
STEERING = tuple(alias for alias in ALIASES if alias.type is _GAUGE)
