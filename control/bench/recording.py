"""`surgetank bench telemetry`: what it costs to tell a step, and the gap that a scrape tears."""

import asyncio
import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import uvloop

from surgetank.control.bench.document import Table, document
from surgetank.control.bench.inside_engine import built_engine, config_of, decode_steps
from surgetank.control.bench.workload import prompts
from surgetank.engine.api import StepOutput
from surgetank.engine.build import Built
from surgetank.engine.model.load import open_checkpoint
from surgetank.engine.model.locate import resolve
from surgetank.engine.observer import Observer
from surgetank.engine.report import record
from surgetank.engine.ring import RingWriter, writer_of
from surgetank.telemetry.buckets import DURATION
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.engine_recorder import EngineRecorder
from surgetank.telemetry.exporter import Exporter
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.registry import Registry
from surgetank.telemetry.tracecontext import SpanId
from surgetank.telemetry.vocabulary import Operator, Priority, Reason

BATCH, PROMPT = 32, 128
REPEATS = 5000  # of what takes microseconds
COST_GOAL = 0.01  # of step time
GAP_GOAL = 0.005  # seconds
SERIES = 3000
SCRAPES = 50
TICK = 0.0005  # seconds between looks at the event loop


def observe(
    model: str,
    dtype: str,
    threads: int | None,
    steps: int,
    clock: Clock,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Measure both. Raises ModelError, BuildError."""
    config = config_of(model, dtype, BATCH, PROMPT, operator_sampling=64)
    built = built_engine(config, threads, clock)
    layers = open_checkpoint(resolve(model)).config.num_layers
    say(f"{steps} decode steps at batch {BATCH}")
    asked = prompts(BATCH, PROMPT, random.Random(1), built.card.vocab_size)
    step, building, outputs = _steps(built, asked, steps)
    say("recording them again and again")
    parts = {
        "building the record": building,
        "metrics, ring, sampling decision": _recording(built, outputs, clock),
        "operator timing, spread over all steps": _sampling(
            built, layers, config.operator_sampling
        ),
    }
    share = sum(parts.values()) / step
    say(f"scrapes of {SERIES} series")
    gaps = uvloop.run(_gaps(clock))
    figures = {
        "step_seconds": round(step, 6),
        "cost_seconds": {name: round(value, 9) for name, value in parts.items()},
        "share": round(share, 6),
        "share_goal": COST_GOAL,
        "share_holds": share <= COST_GOAL,
        **gaps,
        "gap_goal": GAP_GOAL,
        "gap_holds": gaps["gap_worst_seconds"] <= GAP_GOAL,
    }
    settings = {"dtype": dtype, "threads": threads or "physical cores", "batch": BATCH}
    return document("telemetry", clock, settings, figures, _tables(figures))


@contextmanager
def _timed(spent: list[float]) -> Iterator[None]:
    """Keeps how long the step loop takes to build each record."""

    def timed(*args: Any) -> Any:
        begun = time.perf_counter()
        try:
            return record(*args)
        finally:
            spent.append(time.perf_counter() - begun)

    with patch("surgetank.engine.loop.record", timed):
        yield


def _steps(
    built: Built, asked: list[list[int]], steps: int
) -> tuple[float, float, Sequence[StepOutput]]:
    """Medians of a step and of building its record; the outputs."""
    spent: list[float] = []
    with _timed(spent):
        outputs = list(decode_steps(built, asked, steps))
    records = [each.record for each in outputs if each.record is not None]
    step = statistics.median(each.schedule + each.forward + each.sample for each in records)
    return step, statistics.median(spent), outputs


def _recording(built: Built, outputs: Sequence[StepOutput], clock: Clock) -> float:
    """Mean seconds of what the engine process does with a finished step."""
    recorder = EngineRecorder(Registry(Process.ENGINE), built.sizes)
    with (
        tempfile.TemporaryDirectory(prefix="surgetank-bench-") as folder,
        RingWriter(Path(folder) / "ring", 4096, writer_of(built.card, clock)) as ring,
    ):
        observer = Observer(built.meter, recorder, ring)
        begun = time.perf_counter()
        for number in range(REPEATS):
            observer.before_step()
            observer.after_step(outputs[number % len(outputs)])
        return (time.perf_counter() - begun) / REPEATS


def _sampling(built: Built, layers: int, every: int) -> float:
    """Seconds a step, of timing every piece of one in `every`: per layer four products, two norms
    and attention; beside them the head and its norm."""
    timed = built.meter.wrap(Operator.OTHER, lambda: None)
    begun = time.perf_counter()
    for _ in range(REPEATS):
        timed()
    return (time.perf_counter() - begun) / REPEATS * (7 * layers + 3) / every


async def _gaps(clock: Clock) -> dict[str, Any]:
    """The longest time that the event loop did not turn, as it is scraped the product's way, and
    as long without a scrape, in turn."""
    registry = Registry(Process.SIDECAR)
    recorder, exporter = Recorder(registry), Exporter(registry, clock)
    models = 0
    while (series := _series(exporter)) < SERIES:
        models += 1
        recorder.allow_model(f"model-{models}")
        _exemplify(recorder, f"model-{models}", clock.wall())
    gaps: list[float] = []
    watching = asyncio.create_task(_watch(gaps))
    rest, scraped, took = [], [], []
    for _ in range(SCRAPES):
        begun = clock.monotonic()
        await asyncio.to_thread(exporter.begin("application/openmetrics-text"))
        took.append(clock.monotonic() - begun)
        await asyncio.sleep(2 * TICK)
        scraped.append(max(gaps))
        gaps.clear()
        await asyncio.sleep(took[-1] + 2 * TICK)
        rest.append(max(gaps))
        gaps.clear()
    watching.cancel()
    await asyncio.wait([watching])
    return {
        "series": series,
        "scrapes": SCRAPES,
        "scrape_seconds": round(statistics.median(took), 6),
        **_worst("gap_at_rest", rest),
        **_worst("gap", scraped),
    }


def _exemplify(recorder: Recorder, model: str, now: float) -> None:
    """Every bucket has an example that leads to a trace: no page is longer."""
    span = SpanId("0123456789abcdef" * 2, "0123456789abcdef")
    for priority, seconds in itertools.product(Priority, DURATION.edges):
        times = {"duration": seconds, "ttft": seconds, "tpot": seconds / 10, "gap": seconds / 10}
        times["wait"] = seconds
        recorder.exemplify(
            model=model, reason=Reason.NONE, priority=priority, span=span, at=now, **times
        )


def _worst(name: str, gaps: Sequence[float]) -> dict[str, float]:
    return {
        f"{name}_seconds": round(statistics.median(gaps), 6),
        f"{name}_worst_seconds": round(max(gaps), 6),
    }


async def _watch(gaps: list[float]) -> None:
    last = time.perf_counter()
    while True:
        await asyncio.sleep(TICK)
        now = time.perf_counter()
        gaps.append(max(0.0, now - last - TICK))
        last = now


def _series(exporter: Exporter) -> int:
    body = exporter.render()[1]
    return sum(1 for line in body.splitlines() if line and not line.startswith(b"#"))


def _tables(figures: dict[str, Any]) -> list[Table]:
    step = figures["step_seconds"]
    costs = [
        [name, f"{value * 1e6:.1f}", f"{value / step:.3%}"]
        for name, value in figures["cost_seconds"].items()
    ]
    whole = sum(figures["cost_seconds"].values())
    costs.append(["all", f"{whole * 1e6:.1f}", f"{whole / step:.3%} (goal {COST_GOAL:.0%})"])
    gaps = [
        [when, *(f"{figures[f'{name}{which}_seconds'] * 1e3:.2f}" for which in ("", "_worst"))]
        for when, name in (("without a scrape", "gap_at_rest"), ("during a scrape", "gap"))
    ]
    title = f"Telling a step of {step * 1e3:.1f} ms at batch {BATCH}"
    return [
        Table(title=title, columns=["what", "microseconds", "share of the step"], rows=costs),
        Table(
            title=f"Longest gap of the sidecar's event loop, {figures['series']:,} series, "
            f"{figures['scrapes']} scrapes of {figures['scrape_seconds'] * 1e3:.0f} ms",
            columns=["when", "median, ms", f"worst, ms (goal {GAP_GOAL * 1e3:.0f})"],
            rows=gaps,
        ),
    ]
