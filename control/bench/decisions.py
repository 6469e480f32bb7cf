"""`surgetank bench admission`: the CPU time of one decision at the real desk, by what waits."""

import itertools
import logging
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from surgetank.admission.api import Ask, Call, Delta, End
from surgetank.admission.desk import FrontDesk
from surgetank.admission.gate import GateConfig
from surgetank.admission.laws_config import LawsConfig
from surgetank.admission.outcome import Refused
from surgetank.admission.text_adapter import TextAdapter
from surgetank.control.bench.document import Table, document
from surgetank.control.bench.records import step_record
from surgetank.engine.api import (
    GenerateRequest,
    ModelCard,
    SamplingParams,
    Settings,
    Sink,
    StepOutput,
)
from surgetank.engine.backends.remote.found import Vitals
from surgetank.telemetry.clock import Clock, ManualClock
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.registry import Registry
from surgetank.telemetry.slo import SloTargets
from surgetank.telemetry.steprecord import StepRecord
from surgetank.telemetry.vocabulary import Priority

LENGTHS = (1, 100, 1_000, 10_000)
SPREADS = ((1, 1), (100, 1), (1, 4), (100, 4))  # tenants, classes
GOAL = 50.0  # microseconds, at GOAL_LENGTH
GOAL_LENGTH = 1_000
PROMPT = 200  # tokens
OPEN = GateConfig(
    queue_requests=1_000_000,
    queue_tokens=1_000_000_000,
    queue_wait=3600.0,
    laws=LawsConfig(patience_critical=1000.0, patience_default=1000.0, patience_batch=1000.0),
)
STRICT = GateConfig(queue_requests=1_000_000, queue_tokens=1_000_000_000)
PATIENT = SloTargets(ttft=600.0)


class FullEngine:
    """A backend that takes what it is given and answers nothing."""

    def __init__(self) -> None:
        self.card: ModelCard | None = small_card()
        self.last_step: StepRecord | None = None
        self.vitals = Vitals()

    def submit(self, request: GenerateRequest, sink: Sink) -> None:
        """Kept for ever."""

    def cancel(self, request_id: int, index: int = -1) -> None:
        """Nothing to stop."""

    def apply(self, settings: Settings) -> None:
        """Nothing to set."""

    def stalled_for(self, now: float) -> float | None:
        """It steps all the time."""
        return 0.0


class _Deaf:
    def on_delta(self, delta: Delta) -> None:
        """Nobody reads."""

    def on_end(self, end: End) -> None:
        """Nobody reads."""


class _NoTimer:
    def cancel(self) -> None:
        """It never fires."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Among how many tenants and classes the requests are spread."""

    tenants: int
    classes: int

    def of(self, number: int) -> tuple[str, Priority]:
        """The tenant and class of a request."""
        order = (Priority.DEFAULT, Priority.BATCH, Priority.CRITICAL, Priority.SHEDDABLE)
        return f"tenant-{number % self.tenants}", order[number % self.classes]


class Counter:
    """A desk before a full engine, with so many waiting."""

    def __init__(self, config: GateConfig, targets: SloTargets, spread: Spread) -> None:
        clock = ManualClock()
        self._spread = spread
        self._numbers = itertools.count()
        self.desk = FrontDesk(
            adapter=TextAdapter(FullEngine()),
            recorder=Recorder(Registry(Process.SIDECAR, targets)),
            clock=clock,
            rng=random.Random(1),
            call_later=lambda delay, callback: _NoTimer(),
            config=config,
        )
        self.desk.engines.watchers[0].on_up(small_card())

    def fill(self, waiting: int) -> None:
        """Fill the engine and the queue while nothing is known of the engine's speed; then let the
        laws learn it, so that they decide on what follows."""
        while sum(level for level in self._waiting()) < waiting:
            self.decide()
        for step in range(200):
            record = step_record(step, prefill=(step % 5) * 64, decode=32 - step % 7)
            self.desk.engines.watchers[0].on_step(StepOutput([], [], record))

    def decide(self) -> tuple[int, Call | None]:
        """CPU nanoseconds of one decision, from a checked request to its place in the queue or
        its refusal with a hint; and the call if it was admitted."""
        number = next(self._numbers)
        tenant, priority = self._spread.of(number)
        served = self.desk.find("default")
        ask = Ask([number % 40_000] * PROMPT, SamplingParams(max_tokens=64))
        headers = (("x-request-id", f"bench-{number}"), ("x-stainless-retry-count", "0"))
        ticket = self.desk.arrive("http", headers)
        ticket.tenant, ticket.priority = tenant, priority
        begun = time.thread_time_ns()
        try:
            call = self.desk.submit(ticket, served, ask, _Deaf())
        except Refused:
            return time.thread_time_ns() - begun, None
        return time.thread_time_ns() - begun, call

    def _waiting(self) -> list[int]:
        return [sum(level.requests.values()) for level in self.desk.snapshot().queue]


@contextmanager
def _unwarned() -> Iterator[None]:
    """The gate would warn of these settings each time: they are odd, and meant to be."""
    logger = logging.getLogger("surgetank.admission")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@_unwarned()
def decide(
    lengths: Sequence[int], decisions: int, clock: Clock, say: Callable[[str], None]
) -> dict[str, Any]:
    """Measure each length with each spread, where the gate says yes and where it says no."""
    rows = []
    for length, (tenants, classes) in itertools.product(lengths, SPREADS):
        say(f"{length} queued, {tenants} tenants, {classes} classes")
        spread = Spread(tenants, classes)
        row: dict[str, Any] = {"queued": length, "tenants": tenants, "classes": classes}
        for name, config, targets in (
            ("admitted", OPEN, PATIENT),
            ("refused", STRICT, SloTargets(ttft=0.05)),
        ):
            row |= _measure(Counter(config, targets, spread), length, decisions, name)
        rows.append(row)
    at_goal = [row["admitted_p50_us"] for row in rows if row["queued"] == GOAL_LENGTH]
    worst = max(at_goal) if at_goal else None
    figures = {
        "rows": rows,
        "goal_us": GOAL,
        "worst_p50_us_at_1000": worst,
        "holds": None if worst is None else worst <= GOAL,
    }
    notes = [] if worst is None else [f"worst median at 1,000 queued: {worst} us (goal {GOAL:g})"]
    settings = {"decisions each": decisions, "prompt tokens": PROMPT}
    return document("admission", clock, settings, figures, [_table(rows)], notes)


def _measure(counter: Counter, length: int, decisions: int, wanted: str) -> dict[str, Any]:
    counter.fill(length)
    spent: dict[str, list[int]] = {"admitted": [], "refused": []}
    for _ in range(decisions):
        nanoseconds, call = counter.decide()
        spent["refused" if call is None else "admitted"].append(nanoseconds)
        if call is not None:
            call.cancel()  # the queue keeps its length
    values = [value / 1000 for value in spent[wanted]]
    if len(values) < 2:
        return {f"{wanted}_p50_us": None, f"{wanted}_p99_us": None}
    return {
        f"{wanted}_p50_us": round(statistics.median(values), 1),
        f"{wanted}_p99_us": round(statistics.quantiles(values, n=100)[98], 1),
    }


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    columns = ["queued", "tenants", "classes", "admit p50", "admit p99", "refuse p50", "refuse p99"]
    keys = ("admitted_p50_us", "admitted_p99_us", "refused_p50_us", "refused_p99_us")
    cells = [
        [f"{row['queued']:,}", str(row["tenants"]), str(row["classes"])]
        + ["-" if row[key] is None else f"{row[key]:.0f}" for key in keys]
        for row in rows
    ]
    return Table(title="CPU time of one decision, microseconds", columns=columns, rows=cells)


def small_card() -> ModelCard:
    """A small engine that runs 32 sequences."""
    return ModelCard(
        name="default",
        context_length=2048,
        vocab_size=49_152,
        eos_token_ids=(2,),
        tokenizer=_bytes_tokenizer(),
        chat_template="",
        bos_token="",
        eos_token="",
        add_bos=False,
        architecture="llama",
        parameters=135_000_000,
        dtype="float32",
        device="cpu",
        kv_block_size=16,
        kv_blocks=4096,
        kv_bytes_per_token=46_080,
        max_num_seqs=32,
        max_batch_tokens=512,
        engine_version="bench",
        pid=0,
    )


def _bytes_tokenizer() -> str:
    """The smallest that there is: one token for each byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer.to_str()
