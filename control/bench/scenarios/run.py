"""`surgetank bench scenarios`: calibrate, play the cells on the real product, then in the lab."""

import asyncio
import importlib.util
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx

from surgetank.control.bench.document import BenchError, document
from surgetank.control.bench.scenarios import cores, report
from surgetank.control.bench.scenarios.calibrate import Calibration, calibrate
from surgetank.control.bench.scenarios.crew import Crew, crew
from surgetank.control.bench.scenarios.forecast import predicted
from surgetank.control.bench.scenarios.plan import (
    FULL,
    GRPC,
    LETTERS,
    QUICK,
    Cell,
    Sizes,
    cells,
    seconds_of,
)
from surgetank.control.bench.scenarios.product import Product, config_of, drift, settings
from surgetank.control.bench.scenarios.report import Seen
from surgetank.control.bench.scenarios.rows import Figures, figures
from surgetank.control.bench.scenarios.verdict import compare, middle, verdicts
from surgetank.control.bench.scenarios.wire import Play, Setup
from surgetank.control.demo.service import ServiceError, running
from surgetank.control.sources import ConfigError
from surgetank.telemetry.clock import Clock

Say = Callable[[str], None]
_DRAIN = 7.0  # seconds between two cells, about
_LAB_SEEDS = {False: range(5), True: range(3)}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What was asked for."""

    letters: str = LETTERS
    quick: bool = False
    seed: int = 1
    settings: tuple[str, ...] = ()

    @property
    def sizes(self) -> Sizes:
        """How much is played."""
        return QUICK if self.quick else FULL


def scenarios(wishes: Wishes, clock: Clock, say: Say) -> dict[str, Any]:
    """The whole run. Raises BenchError; on an interruption every process is ended first."""
    if importlib.util.find_spec("openai") is None:
        raise BenchError("openai is missing; run: pip install 'surgetank[engine,demo]'")
    try:
        calibration, seen = asyncio.run(_interruptible(wishes, wishes.sizes, say))
    except asyncio.CancelledError:
        raise BenchError("it was ended by a signal") from None
    except (ServiceError, ConfigError, httpx.HTTPError) as error:
        raise BenchError(str(error) or type(error).__name__) from error
    return reported(wishes, calibration, seen, clock, say)


async def _interruptible(wishes: Wishes, sizes: Sizes, say: Say) -> tuple[Calibration, list[Seen]]:
    """As measure(); SIGTERM ends it as Ctrl-C does, so that no process stays behind."""
    task = asyncio.ensure_future(measure(wishes, sizes, say))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)


async def measure(wishes: Wishes, sizes: Sizes, say: Say) -> tuple[Calibration, list[Seen]]:
    """Everything that needs the product."""
    given = settings(wishes.settings)
    config = config_of(given)
    say("starting the product")
    async with running(given) as service, httpx.AsyncClient(timeout=60.0) as client:
        product = Product(service, client)
        setup = Setup(
            openai_url=product.facts.openai_url,
            grpc=product.facts.grpc,
            timeout=sizes.timeout,
            deadline=sizes.deadline,
            tokens_per_word=await product.tokens_per_word(),
            seed=wishes.seed,
        )
        async with crew(setup) as load:
            say(cores.part(product.facts.engine_pid, cores.own()))
            patience = sizes.timeout, sizes.deadline
            found = await calibrate(product, load, config, sizes.probe, patience, say)
            say(_words(found))
            planned = cells(wishes.letters, sizes, found.ground.offer, wishes.seed)
            say(f"{len(planned)} cells, about {seconds_of(planned, _DRAIN) / 60:.1f} minutes")
            return found, [await _cell(product, load, each, found, sizes, say) for each in planned]


async def _cell(
    product: Product, load: Crew, cell: Cell, found: Calibration, sizes: Sizes, say: Say
) -> Seen:
    await product.calm()
    since, retries = await product.newest_step(), await product.grpc_retries()
    stalling = None
    if cell.stall is not None:
        begin, end = cell.stall
        stalling = partial(product.stall, begin=begin, end=end)
    played = await load.play(Play(list(cell.calls)), stalling)
    steps = await product.steps_since(since)
    grpc = sum(call.client == GRPC for call in cell.calls)
    more = await product.grpc_retries() - retries
    attempts = 1.0 + more / grpc if grpc else float("nan")
    judged = found.ground.prices.judge(cell.calls, played.rows)
    seen = Seen(
        cell=cell,
        figures=figures(cell, judged, sizes.timeout, attempts),
        strain=played.strain,
        drift=drift(steps, found.fit.model),
        errors=Counter(row.error for row in played.rows if row.error),
    )
    got = seen.figures
    words = f"success {report.shown(got.success)}, p50 TTFT {report.shown(got.ttft_p50)} s"
    say(f"{cell.title}: {got.calls} calls, {words}, goodput {report.shown(got.goodput)}")
    return seen


def reported(
    wishes: Wishes, calibration: Calibration, seen: Sequence[Seen], clock: Clock, say: Say
) -> dict[str, Any]:
    """The lab's part, and the document of both."""
    lab = {}
    for each in seen:
        say(f"lab: {each.cell.title}")
        lab[each.cell.title] = _in_lab(each, calibration, _LAB_SEEDS[wishes.quick])
    played = [each.cell for each in seen]
    measured = {each.cell.title: each.figures for each in seen}
    compared, judged = compare(played, measured, lab), verdicts(played, measured, lab)
    tables = [
        report.verdict_table(judged),
        report.comparison_table(compared),
        report.cell_table(seen, lab),
    ]
    ground, fit = calibration.ground, calibration.fit
    told = {
        "quick": wishes.quick,
        "seed": wishes.seed,
        "capacity, calls/s": round(ground.capacity, 2),
        "step model": {key: float(f"{v:.4g}") for key, v in fit.model.model_dump().items()},
        "its error": round(fit.mape, 4),
        "path, ms": round(1e3 * ground.path, 1),
        "settings": settings(wishes.settings),
    }
    values = report.as_json(seen, lab, compared, judged)
    notes = [*report.notes_of(seen, compared), *report.too_slow(ground.full_step, ground.slo.tpot)]
    return document("scenarios", clock, told, values, tables, notes)


def _in_lab(seen: Seen, calibration: Calibration, seeds: Sequence[int]) -> Figures:
    """The same cell on the calibration's engine at the speed that it had in this cell. Prices stay
    the calibration's, so that goodput means the same on both sides."""
    ground = calibration.ground
    slower = ground if seen.drift != seen.drift else ground.slower(seen.drift)
    return middle(predicted(seen.cell, slower, ground.prices, seeds))


def _words(found: Calibration) -> str:
    model, ground = found.fit.model, found.ground
    return (
        f"step model t0 {1e3 * model.t0:.1f} ms, a {1e3 * model.a:.2f} ms, b {1e3 * model.b:.2f} "
        f"ms, c {1e6 * model.c:.2f} us, error {found.fit.mape:.0%}; capacity "
        f"{ground.capacity:.1f} calls/s; path {1e3 * ground.path:.0f} ms"
    )
