"""The same cell in the lab: equal calls and clients, and a simulated engine of the fitted model."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from surgetank.admission.gate import GateConfig
from surgetank.control.bench.scenarios.plan import (
    GRPC,
    OPENAI,
    Call,
    Capacity,
    Cell,
    mean_sizes,
    traffic,
)
from surgetank.control.bench.scenarios.rows import Figures, Prices, Row, figures
from surgetank.control.lab.behaviour import BEHAVIOURS, Behaviour
from surgetank.control.lab.faults import Fault, FaultKind
from surgetank.control.lab.inputs import Item
from surgetank.control.lab.steptime import EngineSpec
from surgetank.control.lab.world import Run, Scenario, play
from surgetank.telemetry.slo import SloTargets
from surgetank.telemetry.vocabulary import Priority

_WARM_LOAD, _WARM, _GAP = 0.8, 15.0, 5.0  # before the cell: the real gate has seen traffic, too


@dataclass(frozen=True, slots=True)
class Ground:
    """What the lab is told of the real thing."""

    spec: EngineSpec
    gate: GateConfig
    slo: SloTargets
    capacity: float  # calls per second
    path: float  # seconds from engine to caller that are no step: doors, link, client
    timeout: float
    deadline: float

    @property
    def offer(self) -> Capacity:
        """What loads are shares of."""
        prices = self.prices
        unit = prices.cost(*mean_sizes())
        return Capacity(self.capacity, lambda prompt, output: prices.cost(prompt, output) / unit)

    @property
    def prices(self) -> Prices:
        """By the fitted model."""
        batch = self.spec.batch(*mean_sizes(), self.slo.tpot)
        return Prices(self.spec.model, batch, self.slo, self.gate.laws)

    @property
    def full_step(self) -> float:
        """Seconds of a step in which all slots decode calls of average size."""
        slots, (prompt, output) = self.spec.max_num_seqs, mean_sizes()
        return self.spec.model.seconds(0, slots, round(slots * (prompt + output / 2)))

    def slower(self, factor: float) -> "Ground":
        """The same on an engine whose every step takes so many times as long."""
        old = self.spec.model
        model = old.model_copy(update={k: v * factor for k, v in old.model_dump().items()})
        spec = self.spec.model_copy(update={"model": model})
        return replace(self, spec=spec, capacity=self.capacity / factor)

    def clients(self) -> tuple[tuple[Behaviour, float], ...]:
        """The models of the real clients."""
        return tuple(
            (each.model_copy(update=self._patience(each)), 1.0) for each in BEHAVIOURS.values()
        )

    def _patience(self, kind: Behaviour) -> dict[str, float]:
        if kind.name == GRPC:
            return {"patience": self.deadline}
        return {"timeout": self.timeout} if kind.timeout is not None else {}


def predicted(cell: Cell, ground: Ground, prices: Prices, seeds: Sequence[int]) -> list[Figures]:
    """The cell's figures with each seed; only the hints' and the clients' dice differ."""
    found = []
    for seed in seeds:
        rows, grpc_attempts = simulate(cell, ground, seed)
        judged = prices.judge(cell.calls, rows)
        found.append(figures(cell, judged, ground.timeout, grpc_attempts))
    return found


def simulate(cell: Cell, ground: Ground, seed: int) -> tuple[list[Row], float]:
    """A row for each call, and the attempts of a gRPC call."""
    before = traffic(_WARM_LOAD, ground.offer, _WARM, {OPENAI: 1.0}, f"{seed}:warm")
    shift = _WARM + _GAP
    items = [*_items(before, 0.0), *_items(cell.calls, shift)]
    run = play(_scenario(cell, ground, seed, shift), items)
    rows, grpc = [], []
    for number, row, attempts in _rows(run, shift, ground.path):
        if number < len(before):
            continue
        if cell.calls[number - len(before)].client == GRPC:
            grpc.append(attempts)
            row = _as_a_whole(row, cell.calls[number - len(before)])
        rows.append(row)
    return rows, sum(grpc) / len(grpc) if grpc else math.nan


def _scenario(cell: Cell, ground: Ground, seed: int, shift: float) -> Scenario:
    stalls = () if cell.stall is None else (_stall(cell.stall, shift),)
    return Scenario(
        engine=ground.spec,
        gate=ground.gate,
        slo=ground.slo,
        clients=ground.clients(),
        faults=stalls,
        seed=seed,
    )


def _stall(between: tuple[float, float], shift: float) -> Fault:
    begin, end = between
    return Fault(kind=FaultKind.STALL, at=begin + shift, seconds=end - begin)


def _items(calls: Sequence[Call], shift: float) -> Iterator[Item]:
    for call in calls:
        yield Item(
            call.at + shift,
            call.prompt,
            call.output,
            call.output,
            priority=Priority(call.priority),
            client=call.client,
        )


def _rows(run: Run, shift: float, path: float) -> Iterator[tuple[int, Row, int]]:
    """Number, row and attempts of each call, in order of arrival; `path` later than the engine."""
    log = run.log.calls
    for at in sorted(range(len(log.number)), key=lambda index: log.number[index]):
        heard, ended = log.heard[at], log.ended[at]
        begun = log.arrived[at] if math.isnan(heard) else heard - log.ttft[at]
        row = Row(
            sent=begun - shift,
            heard=None if math.isnan(heard) else heard - shift + path,
            ended=None if math.isnan(ended) else ended - shift + path,
            ok=bool(log.ok[at]),
            attempts=log.attempts[at],
            let_in=log.admitted[at],
        )
        yield log.number[at], row, log.attempts[at]


def _as_a_whole(row: Row, call: Call) -> Row:
    """As a caller of ModelInfer sees it."""
    return Row(sent=call.at, heard=None, ended=row.ended, ok=row.ok, attempts=0, let_in=0)
