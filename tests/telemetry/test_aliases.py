"""One name for what engines call differently, whichever generation of names they export."""

from surgetank.telemetry.aliases import ALIASES, ENGINES, SGLANG, STEERING, VLLM

BY_NAME = {alias.name: alias for alias in ALIASES}


def test_the_newest_name_is_taken_where_both_are_exported() -> None:
    kv = BY_NAME["kv_used_ratio"]
    both = {"vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"}
    assert kv.found(VLLM, both) == "vllm:kv_cache_usage_perc"
    assert kv.found(VLLM, {"vllm:gpu_cache_usage_perc"}) == "vllm:gpu_cache_usage_perc"
    assert kv.found(VLLM, {"vllm_kv_cache_usage_perc"}) == "vllm_kv_cache_usage_perc"
    assert kv.found(SGLANG, {"sglang:token_usage"}) == "sglang:token_usage"
    assert kv.found(SGLANG, both) is None


def test_a_histogram_is_found_by_its_buckets_and_named_without_them() -> None:
    gaps = BY_NAME["inter_token_latency_seconds"]
    for old in ("vllm:time_per_output_token_seconds", "vllm_time_per_output_token_seconds"):
        assert gaps.found(VLLM, {f"{old}_bucket", f"{old}_count", f"{old}_sum"}) == old


def test_names_are_unique_and_told_by_every_engine() -> None:
    assert len(BY_NAME) == len(ALIASES)
    assert all(alias.candidates(engine) for alias in ALIASES for engine in ENGINES)


def test_a_gate_steers_by_load_and_memory() -> None:
    assert [alias.name for alias in STEERING] == [
        "running_requests",
        "waiting_requests",
        "kv_used_ratio",
    ]
