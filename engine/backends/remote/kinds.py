"""Who made an engine, told from what its address answers; and the sizes that it tells.

As of vLLM 0.32, SGLang 0.5, llama.cpp b7000, llama-cpp-python 0.3, TensorRT-LLM 1.3, TGI 3.3 and
Ollama 0.13. The first kind whose mark is found counts; whatever lists models is at least `openai`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from surgetank.engine.backends.remote.answers import MODELS, Answers
from surgetank.engine.backends.remote.exposition import read_samples
from surgetank.telemetry.aliases import ALIASES, REPEATED, SGLANG, TOTAL, VLLM

METRICS = "/metrics"


@dataclass(frozen=True, slots=True)
class Sizes:
    """What an engine tells of itself; 0 for what it does not."""

    version: str = ""
    max_num_seqs: int = 0
    max_batch_tokens: int = 0
    context_length: int = 0
    kv_blocks: int = 0
    kv_block_size: int = 0


@dataclass(frozen=True, slots=True)
class Kind:
    """One maker's engine."""

    name: str
    marked: Callable[[Answers], bool]
    sizes: Callable[[Answers], Sizes]
    usual_seqs: int  # requests at once, where it does not tell: its own default
    series: Mapping[str, Sequence[str]] = field(default_factory=dict)  # signal -> names, best first
    metrics: str = METRICS  # the page that has them
    alive: str = MODELS  # the page that is looked at where it has no metrics, or they fail
    repeated: Sequence[str] = ()  # labels of ranks that all tell the same
    total: Mapping[str, str] = field(default_factory=dict)  # labels of the sum, beside its parts
    ignores: Callable[[str], tuple[str, ...]] = lambda version: ()  # fields of a chat, by version
    notes: tuple[str, ...] = ()
    mute: str = ""  # what to do when it tells none of its series


# Signals, as the table of names that boards and scrapes share calls them.
_SIGNALS = {
    "running": "running_requests",
    "waiting": "waiting_requests",
    "kv_used": "kv_used_ratio",
    "prompt_tokens": "prompt_tokens_total",
    "output_tokens": "generation_tokens_total",
    "preemptions": "preemptions_total",
}


def _known(engine: str) -> dict[str, tuple[str, ...]]:
    by_name = {alias.name: alias for alias in ALIASES}
    return {signal: by_name[name].candidates(engine) for signal, name in _SIGNALS.items()}


def _owner(answers: Answers) -> str:
    return str(answers.models[0].get("owned_by", "")) if answers.models else ""


def _model_length(answers: Answers) -> int:
    return _number(answers.models[0].get("max_model_len")) if answers.models else 0


def _number(value: Any) -> int:
    """A whole number above 0, be it written as text; else 0."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return 0
    return max(0, number)


def _object(value: Any) -> dict[str, Any]:
    """A JSON object; empty for anything else."""
    return value if isinstance(value, dict) else {}


def _vllm(answers: Answers) -> Sizes:
    page = answers.pages.get(METRICS, "")
    cache = read_samples(page, ("vllm:cache_config_info",)).get("vllm:cache_config_info")
    labels = cache[0].labels if cache else {}
    return Sizes(
        version=str(answers.json("/version").get("version", "")),
        context_length=_model_length(answers),
        kv_blocks=_number(labels.get("num_gpu_blocks")),
        kv_block_size=_number(labels.get("block_size")),
    )


def _sglang(answers: Answers) -> Sizes:
    """Arguments that were left to it are null; what it made of them stands in its states."""
    info = answers.json("/server_info")
    states = info.get("internal_states")
    state = _object(states[0]) if isinstance(states, list) and states else {}
    memory = _object(state.get("memory_usage"))
    pool = _number(info.get("max_total_num_tokens")) or _number(memory.get("token_capacity"))
    page = _number(info.get("page_size")) or 1
    ranks = _number(info.get("dp_size")) or 1
    each = _number(state.get("effective_max_running_requests_per_dp"))
    return Sizes(
        version=str(info.get("version", "")),
        max_num_seqs=each * ranks or _number(info.get("max_running_requests")),
        max_batch_tokens=_number(info.get("chunked_prefill_size")),
        context_length=_model_length(answers) or _number(info.get("context_length")),
        kv_blocks=pool * ranks // page,
        kv_block_size=page,
    )


def _llama_cpp(answers: Answers) -> Sizes:
    props = answers.json("/props")
    settings = _object(props.get("default_generation_settings"))
    return Sizes(
        version=str(props.get("build_info", "")),
        max_num_seqs=_number(props.get("total_slots")),
        context_length=_number(settings.get("n_ctx")),
    )


def _llama_cpp_python(answers: Answers) -> Sizes:
    about = _object(answers.json("/openapi.json").get("info"))
    return Sizes(version=str(about.get("version", "")), max_num_seqs=1)


def _tgi(answers: Answers) -> Sizes:
    """It takes so many requests at once, and answers 429 above. Up to version 2 it tells how many
    of them fit in a batch, and how many tokens its KV pool has."""
    info = answers.json("/info")
    pool = _number(info.get("max_batch_total_tokens"))
    return Sizes(
        version=str(info.get("version", "")),
        max_num_seqs=_number(info.get("max_batch_size"))
        or _number(info.get("max_concurrent_requests")),
        context_length=_number(info.get("max_total_tokens")),
        kv_blocks=pool,
        kv_block_size=1 if pool else 0,
    )


def _tensorrt_llm(answers: Answers) -> Sizes:
    sizes = {
        "max_num_seqs": "trtllm_max_num_active_requests",
        "max_batch_tokens": "trtllm_max_num_tokens_runtime",
        "kv_blocks": "trtllm_kv_cache_max_blocks",
        "kv_block_size": "trtllm_kv_cache_tokens_per_block",
    }
    found = read_samples(answers.pages.get(TRTLLM_METRICS, ""), sizes.values())
    told = {size: _number(found[name][0].value) for size, name in sizes.items() if name in found}
    return Sizes(version=str(answers.json("/version").get("version", "")), **told)


def _newer_limit(version: str) -> tuple[str, ...]:
    """Their chats know max_tokens alone."""
    return ("max_completion_tokens",)


def _llama_cpp_ignores(version: str) -> tuple[str, ...]:
    """It knows the newer name since early 2026, b8000 or a little later."""
    build = _number(version.partition("-")[0].removeprefix("b"))
    return _newer_limit(version) if 0 < build < 8000 else ()


def _version(path: str) -> Callable[[Answers], Sizes]:
    return lambda answers: Sizes(version=str(answers.json(path).get("version", "")))


def _named(prefix: str, **names: str) -> dict[str, tuple[str, ...]]:
    """A colon in a name may reach us as an underscore."""
    prefixes = dict.fromkeys((prefix, prefix.replace(":", "_")))
    return {signal: tuple(each + name for each in prefixes) for signal, name in names.items()}


TRTLLM_METRICS = "/prometheus/metrics"

KINDS: tuple[Kind, ...] = (
    Kind(
        name=SGLANG,
        marked=lambda answers: bool(
            _owner(answers) == "sglang" or answers.json("/server_info").get("internal_states")
        ),
        sizes=_sglang,
        usual_seqs=64,
        series=_known(SGLANG),
        repeated=REPEATED[SGLANG],
        total=TOTAL[SGLANG],
        mute="start it with --enable-metrics, so that it tells what it does",
    ),
    Kind(
        name=VLLM,
        marked=lambda answers: _owner(answers) == "vllm" or answers.exports("vllm:"),
        sizes=_vllm,
        usual_seqs=256,
        series=_known(VLLM),
        repeated=REPEATED[VLLM],
        total=TOTAL[VLLM],
        mute="start it without --disable-log-stats, so that it tells what it does",
    ),
    Kind(
        name="llama.cpp",
        marked=lambda answers: "total_slots" in answers.json("/props"),
        sizes=_llama_cpp,
        usual_seqs=1,
        series=_named(
            "llamacpp:",
            running="requests_processing",
            waiting="requests_deferred",
            kv_used="kv_cache_usage_ratio",  # until mid-2025
            prompt_tokens="prompt_tokens_total",
            output_tokens="tokens_predicted_total",
        ),
        ignores=_llama_cpp_ignores,
        mute="start it with --metrics, so that it tells what it does",
    ),
    Kind(
        name="llama-cpp-python",
        marked=lambda answers: "llama.cpp Python API" in answers.pages.get("/openapi.json", ""),
        sizes=_llama_cpp_python,
        usual_seqs=1,
        alive="/openapi.json",  # its list of models waits for the answer that it works on
        ignores=_newer_limit,
        notes=(
            "it runs one request at a time; unless it was started with --interrupt_requests "
            "false, every request ends the one before it",
        ),
    ),
    Kind(
        name="tgi",
        marked=lambda answers: "max_concurrent_requests" in answers.json("/info"),
        sizes=_tgi,
        usual_seqs=128,
        series=_named("tgi_", running="batch_current_size", waiting="queue_size"),
    ),
    Kind(
        name="tensorrt-llm",
        marked=lambda answers: _owner(answers).startswith("tensorrt"),
        sizes=_tensorrt_llm,
        usual_seqs=256,
        series=_named(
            "trtllm_",
            running="num_requests_running",
            waiting="num_requests_waiting",
            kv_used="kv_cache_utilization",
            prompt_tokens="prompt_tokens_total",
            output_tokens="generation_tokens_total",
        ),
        metrics=TRTLLM_METRICS,
        mute="start it with return_perf_metrics and enable_iter_perf_stats, so that it tells what "
        "it does",
    ),
    Kind(
        name="ollama",
        marked=lambda answers: "version" in answers.json("/api/version"),
        sizes=_version("/api/version"),
        usual_seqs=1,
        ignores=_newer_limit,
        notes=("its max_num_seqs in [[backends]] should be its OLLAMA_NUM_PARALLEL",),
    ),
    Kind(
        name="openai",
        marked=lambda answers: bool(answers.models),
        sizes=lambda answers: Sizes(),
        usual_seqs=32,
        notes=("its max_num_seqs in [[backends]] should be what it runs at once",),
    ),
)
