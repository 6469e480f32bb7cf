"""Predicted against reported: the KV pool that a running engine says it has."""

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from surgetank.control.capacity.plan import Plan
from surgetank.control.capacity.report import Line, Section
from surgetank.control.capacity.units import CapacityError


@dataclass(frozen=True, slots=True)
class Reported:
    """An engine's own word on its pool."""

    engine: str
    blocks: int
    block_size: int  # tokens


def read_metrics(text: str) -> Reported:
    """The pool in a /metrics page of a surgetank or vLLM engine.

    CapacityError when the page is not in the text format, or has neither's metrics.
    """
    sums: dict[str, float] = {}
    vllm: dict[str, str] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = sample.name.replace(":", "_")  # exposition formats differ in the colon
                if name == "vllm_cache_config_info":
                    vllm = sample.labels
                elif name.startswith("surgetank_memory_kv_block"):
                    sums[name] = sums.get(name, 0.0) + sample.value
    except (ValueError, KeyError, IndexError) as error:
        raise CapacityError(f"the answer is not a metrics page ({error})") from error
    size = sums.get("surgetank_memory_kv_block_size_tokens")
    blocks = sums.get("surgetank_memory_kv_blocks")
    if size and blocks is not None:
        return Reported("surgetank", int(blocks), int(size))
    if size:
        raise CapacityError("the engine has not counted its blocks yet: send it one request first")
    try:
        return Reported("vllm", int(vllm["num_gpu_blocks"]), int(vllm["block_size"]))
    except (KeyError, ValueError) as error:
        raise CapacityError(
            "the metrics page has neither surgetank_memory_kv_blocks with its block size nor "
            "vllm:cache_config_info with num_gpu_blocks and block_size"
        ) from error


def difference(predicted: int, reported: int) -> float:
    """How far the prediction is off, in percent of what is reported."""
    if reported == 0:
        return 0.0 if predicted == 0 else float("inf")
    return 100 * (predicted - reported) / reported


def compare(plan: Plan, reported: Reported, tolerance: float) -> tuple[Section, bool]:
    """The comparison in blocks of the engine's size, and whether it is within tolerance percent.

    CapacityError when the plan has no pool, or the model's blocks are not comparable.
    """
    if plan.pool is None:
        raise CapacityError("check needs gpu_memory, gpu or kv_memory to predict from")
    if plan.layout.state_bytes:
        raise CapacityError("check cannot compare blocks of a model with recurrent layers")
    predicted = plan.layout.blocks(plan.pool, plan.settings.concurrency)
    off = difference(predicted, reported.blocks)
    good = abs(off) <= tolerance
    return Section("check", tuple(_lines(plan, reported, predicted, off, tolerance, good))), good


def _lines(
    plan: Plan, reported: Reported, predicted: int, off: float, tolerance: float, good: bool
) -> Iterable[Line]:
    size = reported.block_size
    yield Line("predicted_blocks", "predicted", predicted, f"{predicted:,} blocks of {size}")
    yield Line(
        "reported_blocks", f"reported by {reported.engine}", reported.blocks,
        f"{reported.blocks:,} blocks of {size}",
        f"{reported.blocks:,} x {plan.layout.block_bytes:,} B "
        f"= {reported.blocks * plan.layout.block_bytes / 2**30:,.2f} GiB",
    )  # fmt: skip
    yield Line(
        "difference_percent", "difference", off if off != float("inf") else None,
        f"{off:+.2f} %: {'within' if good else 'beyond'} {tolerance:g} %",
        f"100 x ({predicted:,} - {reported.blocks:,}) / {reported.blocks:,}",
    )  # fmt: skip
