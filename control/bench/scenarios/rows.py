"""What became of each call, measured and simulated alike, and the figures that follow. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from surgetank.admission.laws_config import LawsConfig
from surgetank.control.bench.load.numbers import mean, quantile
from surgetank.control.bench.scenarios.plan import GRPC, HIGH, Call, Cell
from surgetank.control.lab.steptime import StepModel
from surgetank.telemetry.slo import SloTargets
from surgetank.telemetry.vocabulary import Priority

WINDOW, STEP = 5.0, 0.5  # seconds
BACK = 0.95  # of the goodput before
HEALTHY = 0.5  # share that was good before a stall, else there is nothing to go back to
_ROUNDING = 1e-9


class Row(msgspec.Struct, frozen=True):
    """One call's fate. Times in seconds since the cell began; None: it never came.

    A gRPC call is made by one ModelInfer: its library retries unseen, and the answer comes as a
    whole. So it has one `sent`, no `heard`, and 0 for the counts of attempts.
    """

    sent: float  # when the last attempt left
    heard: float | None  # its first token
    ended: float | None
    ok: bool
    attempts: int
    let_in: int  # attempts that were not refused at the door
    error: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """A call beside its fate. `cost` in engine-seconds."""

    call: Call
    row: Row
    cost: float
    good: bool
    at_once: bool  # good although counted from its arrival, refusals and waits included

    @property
    def ttft(self) -> float | None:
        """Of the attempt that was served; seconds."""
        return None if self.row.heard is None or not self.row.ok else self.row.heard - self.row.sent

    @property
    def wait(self) -> float | None:
        """From the call's arrival to its first token, refusals and waits included."""
        return None if self.row.heard is None or not self.row.ok else self.row.heard - self.call.at


@dataclass(frozen=True, slots=True)
class Prices:
    """What a call costs the engine, and what it was promised."""

    model: StepModel
    batch: float  # that decodes together, on average
    slo: SloTargets
    laws: LawsConfig

    def cost(self, prompt: float, output: float) -> float:
        """Engine-seconds."""
        return self.model.cost(prompt, output, self.batch)

    def judge(self, calls: Sequence[Call], rows: Sequence[Row]) -> list[Judged]:
        """Each call with its fate, in order of arrival."""
        return [
            Judged(
                call,
                row,
                self.cost(call.prompt, call.output),
                good=self._good(call, row, row.sent),
                at_once=self._good(call, row, call.at),
            )
            for call, row in zip(calls, rows, strict=True)
        ]

    def _good(self, call: Call, row: Row, since: float) -> bool:
        """Answered, its first token and its later ones within its class's targets; an answer that
        comes as a whole has both targets together."""
        if not row.ok or row.ended is None:
            return False
        first = self.slo.ttft * self.laws.patience(Priority(call.priority))
        later = self.slo.tpot * (call.output - 1) + _ROUNDING
        if call.client == GRPC:
            return row.ended - since <= first + later
        if row.heard is None:
            return False
        return row.heard - since <= first and row.ended - row.heard <= later


@dataclass(frozen=True, slots=True)
class Figures:
    """One cell in numbers; nan where there is nothing to say. Goodput in engine-seconds of good
    calls per second; TTFT of the attempt that was served, and from the call's arrival."""

    calls: int
    success: float
    goodput: float
    offered: float
    ttft_p50: float
    ttft_p99: float
    wait_p50: float
    wait_p99: float
    attempts: float  # per call, of the clients that tell
    grpc_attempts: float  # per call, as the server counted them
    quartiles: tuple[float, ...]  # success by size of prompt, the smallest first
    recovery: float  # seconds after the stall
    times_let_in: float  # per call that the stall touched and that was let in at all
    high_ttft_p99: float
    high_success: float
    low_share: float  # of the served work


def figures(cell: Cell, calls: Sequence[Judged], timeout: float, grpc_attempts: float) -> Figures:
    """Reduce a cell; all but goodput look at the calls that came after its warm-up. `timeout`: the
    seconds after which an HTTP client gives an attempt up."""
    judged = [each for each in calls if each.call.at >= cell.warm]
    high = [each for each in judged if each.call.priority == HIGH]
    span = cell.end - cell.warm
    counted = [each for each in judged if each.row.attempts]
    return Figures(
        calls=len(judged),
        success=_share(judged),
        goodput=sum(e.cost for e in calls if e.good and _within(e, cell.warm, cell.end)) / span,
        offered=sum(each.cost for each in judged) / span,
        ttft_p50=quantile([each.ttft for each in judged], 0.5),
        ttft_p99=quantile([each.ttft for each in judged], 0.99),
        wait_p50=quantile([each.wait for each in judged], 0.5),
        wait_p99=quantile([each.wait for each in judged], 0.99),
        attempts=mean([each.row.attempts for each in counted]),
        grpc_attempts=grpc_attempts,
        quartiles=quartiles(judged),
        recovery=recovery(cell, calls, timeout),
        times_let_in=times_let_in(cell, calls, timeout),
        high_ttft_p99=quantile([each.ttft for each in high], 0.99),
        high_success=_share(high),
        low_share=low_share(judged),
    )


def quartiles(calls: Sequence[Judged]) -> tuple[float, ...]:
    """Success in each quarter of the calls by size of prompt; nothing of fewer than four."""
    if len(calls) < 4:
        return ()
    by_size = sorted(calls, key=lambda each: each.call.prompt)
    cuts = [round(part * len(by_size) / 4) for part in range(5)]
    return tuple(_share(by_size[begin:end]) for begin, end in pairwise(cuts))


def recovery(cell: Cell, calls: Sequence[Judged], timeout: float) -> float:
    """Seconds from the stall's end until the load has its goodput back, by cohorts of arrivals.

    A cohort has it back when BACK of the share that was good before the stall is good at once: the
    first token within its target of the arrival, refusals and waits included. The answer is the
    first moment from which the next WINDOW seconds have it back, and all that is left together.
    Infinite when that never comes; nan without a stall, or where less than HEALTHY was good before.
    """
    if cell.stall is None:
        return math.nan
    begin, until = cell.stall
    end = cell.end - STEP
    before = _at_once(calls, cell.warm, begin - timeout)
    if not before >= HEALTHY:
        return math.nan
    at = until
    while at + WINDOW <= end + 1e-9:
        if min(_at_once(calls, at, at + WINDOW), _at_once(calls, at, end)) >= BACK * before:
            return at - until
        at += STEP
    return math.inf


def _at_once(calls: Sequence[Judged], begin: float, end: float) -> float:
    """Share of a cohort's work that was good at once; nan of none."""
    cohort = [each for each in calls if begin <= each.call.at < end]
    whole = sum(each.cost for each in cohort)
    return sum(each.cost for each in cohort if each.at_once) / whole if whole else math.nan


def times_let_in(cell: Cell, calls: Sequence[Judged], timeout: float) -> float:
    """How often a call was let in, of those that the stall touched and that were at all."""
    if cell.stall is None:
        return math.nan
    begin, until = cell.stall[0] - timeout, cell.stall[1] + WINDOW
    touched = [e.row.let_in for e in calls if begin <= e.call.at < until and e.row.let_in]
    return mean(touched)


def low_share(calls: Sequence[Judged]) -> float:
    """The lower class's part of the work that was served; nan without such calls."""
    low = [each for each in calls if each.call.priority != HIGH]
    if not low:
        return math.nan
    served = sum(each.cost for each in calls if each.row.ok)
    return sum(each.cost for each in low if each.row.ok) / served if served else math.nan


def typical(values: Sequence[float]) -> float:
    """The median; nan when most of the values are."""
    known = [value for value in values if not math.isnan(value)]
    return quantile(known, 0.5) if 2 * len(known) > len(values) else math.nan


def _within(each: Judged, begin: float, end: float) -> bool:
    return each.row.ended is not None and begin <= each.row.ended < end


def _share(calls: Sequence[Judged]) -> float:
    return mean([each.good for each in calls])
