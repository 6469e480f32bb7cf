"""`surgetank bench engine` from its options to its document."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surgetank.control.bench import plots
from surgetank.control.bench.document import BenchError, document
from surgetank.control.bench.startlist import (
    PEERS,
    Course,
    Variant,
    physical_cores,
    start_list,
)
from surgetank.control.bench.throughput import (
    Schedule,
    measure,
    ratio_table,
    ratios,
    speed_table,
    speeds,
    stage_table,
    stages,
    started,
)
from surgetank.control.bench.workload import prompts
from surgetank.engine.model.load import open_checkpoint
from surgetank.engine.model.locate import resolve
from surgetank.telemetry.clock import Clock


@dataclass(frozen=True, slots=True)
class Wishes:
    """The command's options; None stands for the default."""

    quick: bool
    batches: tuple[int, ...] | None
    rounds: int | None
    peers: tuple[str, ...] | None
    variants: tuple[str, ...]
    model: str
    dtype: str
    threads: int | None
    out: Path

    def schedule(self, vocabulary: int) -> Schedule:
        """What is run. Quick: fewer batches and rounds, shorter outputs."""
        batches = (1, 16, 32, 64) if self.quick else (1, 8, 16, 32, 64)
        return Schedule(
            batches=self.batches or batches,
            rounds=self.rounds or (2 if self.quick else 3),
            output=24 if self.quick else 48,
            vocabulary=vocabulary,
        )

    def peer_names(self) -> tuple[str, ...]:
        """Raises BenchError for one that is not known."""
        if self.peers is None:
            return PEERS
        wanted = () if self.peers == ("none",) else self.peers
        for name in wanted:
            if name not in PEERS:
                raise BenchError(f"peer is {name!r}; allowed: {', '.join(PEERS)}, none")
        return wanted


def race(wishes: Wishes, clock: Clock, say: Callable[[str], None]) -> dict[str, Any]:
    """Run it. Raises BenchError, ModelError, OSError."""
    vocabulary = open_checkpoint(resolve(wishes.model)).config.vocab_size
    schedule = wishes.schedule(vocabulary)
    course = Course(
        model=wishes.model,
        dtype=wishes.dtype,
        threads=wishes.threads or physical_cores(),
        sequences=max(schedule.batches),
        tokens=max(max(schedule.batches) * schedule.prompt, schedule.prefill),
        folder=(wishes.out / "bench-engines").absolute(),
        peers=wishes.peer_names(),
    )
    course.folder.mkdir(parents=True, exist_ok=True)
    variants = [Variant.parse(text) for text in wishes.variants]
    entries, absent = start_list(course, variants)
    with started(entries, say) as up:
        versions = {rival.name: rival.version for _, rival in up}
        samples = measure(up, schedule, prompts, say)
    found, against = speeds(samples, schedule), ratios(samples, schedule, entries)
    split = stages(samples, schedule)
    plots.speeds(found, wishes.out / "bench-engine.png")
    tables = [speed_table(found)]
    tables += [ratio_table(against)] if against else []
    tables += [stage_table(split)] if split else []
    settings = {
        "dtype": course.dtype,
        "threads": course.threads,
        "rounds": schedule.rounds,
        "prompt tokens": schedule.prompt,
        "output tokens": schedule.output,
    }
    figures = {"ratios": against, "phases": found, "stages": split, "versions": versions}
    return document("engine", clock, settings, figures, tables, absent)
