"""The measurements before the scenarios: the engine's step model, its capacity, the way to it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from surgetank.control.bench.document import BenchError
from surgetank.control.bench.load.numbers import quantile
from surgetank.control.bench.scenarios.crew import Crew
from surgetank.control.bench.scenarios.forecast import Ground, simulate
from surgetank.control.bench.scenarios.plan import Call, Cell, endless, mean_sizes
from surgetank.control.bench.scenarios.product import Facts, Product, drift, moving
from surgetank.control.bench.scenarios.rows import Row
from surgetank.control.bench.scenarios.wire import Play
from surgetank.control.config import Config
from surgetank.control.lab.fit import Fit, fit
from surgetank.control.lab.fit import Row as StepRow
from surgetank.control.lab.steptime import EngineSpec

# Shares of the probe's time with one caller, a few, and as many as the engine has slots.
_ALONE, _FEW, _FULL = 0.2, 0.25, 0.55
_RAMP = 0.25  # of the full part: the batch fills
_APART = 6.0  # seconds between the lab's lonely calls
_NORMAL = 1.2533  # standard deviation over mean absolute deviation, of a normal distribution
_MOST = 4096  # calls that a probe may need
_LEAST_STEPS = 50


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was found."""

    fit: Fit
    ground: Ground


async def calibrate(
    product: Product,
    crew: Crew,
    config: Config,
    seconds: float,
    patience: tuple[float, float],
    say: Callable[[str], None],
) -> Calibration:
    """Play callers that never pause, from one to a full engine. `patience`: of an HTTP attempt and
    of a gRPC call. Raises BenchError when nothing can be made of what comes back."""
    facts = product.facts
    say(f"calibration: {seconds:.0f} s of callers that never pause")
    since = await product.newest_step()
    alone, lonely = await _in_turn(crew, 1, _ALONE * seconds, "alone")
    lonely_steps = await product.steps_since(since)
    await _in_turn(crew, max(2, facts.max_num_seqs // 4), _FEW * seconds, "few")
    rate = await _full_rate(product, crew, _FULL * seconds)
    steps = moving(await product.steps_since(since))
    if len(steps) < _LEAST_STEPS or not any(row.ok for row in lonely):
        raise BenchError(f"{len(steps)} steps in {seconds:.0f} s; the engine is too slow for this")
    found = fit(steps)
    http, grpc = patience
    spec = _spec(found, facts, config)
    bare = Ground(spec, config.gate, config.slo, rate / mean_sizes()[1], 0.0, http, grpc)
    path = _path(alone, lonely, bare.slower(drift(lonely_steps, found.model)))
    return Calibration(found, replace(bare, path=path))


async def _full_rate(product: Product, crew: Crew, seconds: float) -> float:
    """Decoded tokens per second of a full engine, between its ramp and the last call's start."""
    calls, marks = endless(_MOST, "full"), [0, 0]

    async def mark(origin: float) -> None:
        now = asyncio.get_running_loop().time
        for place, share in enumerate((_RAMP, 1.0)):
            await asyncio.sleep(origin + share * seconds - now())
            marks[place] = await product.newest_step()

    await crew.play(Play(list(calls), product.facts.max_num_seqs, seconds), mark)
    return decode_rate((await product.steps_since(marks[0]))[: marks[1] - marks[0]])


def decode_rate(steps: Sequence[StepRow]) -> float:
    """Tokens per second. Raises BenchError when there is none."""
    took = sum(seconds for *_, seconds in steps)
    tokens = sum(decoding for _, decoding, *_ in steps)
    if not tokens:
        raise BenchError("the full engine decoded nothing; it is too slow for this")
    return tokens / took


async def _in_turn(
    crew: Crew, width: int, seconds: float, name: str
) -> tuple[tuple[Call, ...], list[Row]]:
    """The calls that were made, and their rows."""
    calls = endless(_MOST, name)
    played = await crew.play(Play(list(calls), width, seconds))
    return calls[: len(played.rows)], played.rows


def _spec(found: Fit, facts: Facts, config: Config) -> EngineSpec:
    engine = config.engine
    return EngineSpec(
        model=found.model,
        max_num_seqs=facts.max_num_seqs,
        max_batch_tokens=engine.max_batch_tokens,
        prefill_share=engine.prefill_share,
        block_size=facts.block_size,
        kv_blocks=facts.kv_blocks,
        kv_spare=engine.kv_spare,
        tpot_target=engine.tpot_target or 0.0,
        min_prefill_tokens=engine.min_prefill_tokens,
        preemption=engine.preemption,
        max_preemptions=engine.max_preemptions,
        context_length=facts.context_length,
        by_priority=engine.policy == "priority",
        displace=engine.displace,
        noise=min(0.5, _NORMAL * found.mape),
    )


def _path(calls: Sequence[Call], rows: Sequence[Row], ground: Ground) -> float:
    """What the TTFT of a lonely call has beyond the lab's, in the median; not below 0."""
    spaced = tuple(
        Call(_APART * number, call.prompt, call.output) for number, call in enumerate(calls)
    )
    cell = Cell("", "alone", spaced, 0.0, _APART * len(spaced), 0.0)
    # The lab's warm-up needs a rate; what it does before these calls does not touch them.
    simulated, _ = simulate(cell, replace(ground, capacity=1.0), seed=0)
    more = [
        _ttft(real) - _ttft(lab)
        for real, lab in zip(rows, simulated)
        if real.heard is not None and lab.heard is not None
    ]
    return max(0.0, quantile(more, 0.5)) if more else 0.0


def _ttft(row: Row) -> float:
    return (row.heard or row.sent) - row.sent
