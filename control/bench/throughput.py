"""`surgetank bench engine`: all engines on the same batches in turn, round after round."""

import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from surgetank.control.bench.document import Table
from surgetank.control.bench.rival import Entry, Rival, Sample
from surgetank.control.bench.startlist import HF, INSIDE, LLAMA, OURS

Key = tuple[str, int, str]  # phase, batch, engine
Say = Callable[[str], None]
# What ours has to reach of a peer's decode speed, by batch.
GOALS = {
    HF: {16: 1.3, 32: 1.3, 64: 1.3},
    LLAMA: {16: 0.8, 32: 0.8, 64: 1.0},
}
SHARE_BATCH, SHARE_GOAL = 32, 0.15  # of step time, for Python and link


@dataclass(frozen=True, slots=True)
class Schedule:
    """What is run, how often."""

    batches: tuple[int, ...] = (1, 8, 16, 32, 64)
    rounds: int = 3
    prompt: int = 128
    output: int = 48
    prefill: int = 512
    seed: int = 1
    vocabulary: int = 49_152

    def tasks(self) -> Iterator[tuple[str, int, int, int]]:
        """Phase, batch, prompt and output tokens."""
        for batch in self.batches:
            yield "decode", batch, self.prompt, self.output
        yield "prefill", 1, self.prefill, 2


@contextmanager
def started(entries: Sequence[Entry], say: Say) -> Iterator[list[tuple[Entry, Rival]]]:
    """All of them up at once; idle unless asked. Ends them however this ends."""
    with ExitStack() as stack:
        up = []
        for entry in entries:
            say(f"starting {entry.name}")
            rival = entry.start()
            stack.callback(rival.close)
            up.append((entry, rival))
        yield up


def measure(
    up: Sequence[tuple[Entry, Rival]],
    schedule: Schedule,
    make: Callable[[int, int, random.Random, int], list[list[int]]],
    say: Say,
) -> dict[Key, list[Sample]]:
    """Samples by task and engine. One unmeasured batch each first; who begins a round changes."""
    rng = random.Random(schedule.seed)
    for entry, rival in up:
        say(f"warming {entry.name}")
        rival.ask(make(2, schedule.prompt, rng, schedule.vocabulary), 4)
    samples: dict[Key, list[Sample]] = defaultdict(list)
    for number in range(schedule.rounds):
        say(f"round {number + 1} of {schedule.rounds}")
        for phase, batch, length, output in schedule.tasks():
            asked = make(batch, length, rng, schedule.vocabulary)
            turn = number % len(up)
            for entry, rival in [*up[turn:], *up[:turn]]:
                samples[phase, batch, entry.name].append(rival.ask(asked, output))
    return samples


def speeds(samples: dict[Key, list[Sample]], schedule: Schedule) -> list[dict[str, Any]]:
    """Tokens per second: the median, and all values."""
    found = []
    for (phase, batch, name), each in samples.items():
        if phase == "decode":
            values = [sample.decoded / sample.decode for sample in each]
        else:
            values = [batch * schedule.prefill / sample.prefill for sample in each]
        found.append(
            {
                "phase": phase,
                "batch": batch,
                "engine": name,
                "tokens_per_second": round(statistics.median(values), 1),
                "values": [round(value, 1) for value in values],
            }
        )
    return found


def ratios(
    samples: dict[Key, list[Sample]], schedule: Schedule, entries: Sequence[Entry]
) -> list[dict[str, Any]]:
    """Ours against each peer, the median of the rounds' own ratios; of a peer with two settings
    the one that is faster at this batch."""
    found = []
    for batch in schedule.batches:
        for peer in dict.fromkeys(entry.peer for entry in entries if entry.peer):
            names = [entry.name for entry in entries if entry.peer == peer]
            best = min(
                names,
                key=lambda name: statistics.median(
                    sample.decode for sample in samples["decode", batch, name]
                ),
            )
            ours, theirs = samples["decode", batch, OURS], samples["decode", batch, best]
            ratio = statistics.median(
                (a.decoded / a.decode) / (b.decoded / b.decode) for a, b in zip(ours, theirs)
            )
            goal = GOALS.get(peer, {}).get(batch)
            found.append(
                {
                    "batch": batch,
                    "peer": peer,
                    "setting": best,
                    "ratio": round(ratio, 2),
                    "goal": goal,
                    "holds": None if goal is None else ratio >= goal,
                }
            )
    return found


def stages(samples: dict[Key, list[Sample]], schedule: Schedule) -> dict[str, Any] | None:
    """Where the time of ours went at batch 32 (or the largest), of the decode time on the wall."""
    batch = SHARE_BATCH if SHARE_BATCH in schedule.batches else max(schedule.batches)
    runs = samples.get(("decode", batch, OURS), [])
    if not runs:
        return None
    shares = {
        stage: statistics.median(run.stages[stage] / run.decode for run in runs)
        for stage in runs[0].stages
    }
    shares["link and waiting"] = max(0.0, 1.0 - sum(shares.values()))
    share = 1.0 - shares["forward"]
    inside = samples.get(("decode", batch, INSIDE), [])
    link = [ours.decode / alone.decode - 1.0 for ours, alone in zip(runs, inside)]
    return {
        "batch": batch,
        "shares": {stage: round(value, 4) for stage, value in shares.items()},
        "python_and_link": round(share, 4),
        "goal": SHARE_GOAL,
        "holds": share <= SHARE_GOAL,
        "link_alone": round(statistics.median(link), 4) if link else None,
    }


def speed_table(found: Sequence[dict[str, Any]]) -> Table:
    """Engines by rows, batches by columns."""
    by_place = {(f["phase"], f["batch"], f["engine"]): f["tokens_per_second"] for f in found}
    places = list(dict.fromkeys((f["phase"], f["batch"]) for f in found))
    rows = [
        [name, *(f"{by_place[*place, name]:,.0f}" for place in places)]
        for name in dict.fromkeys(f["engine"] for f in found)
    ]
    columns = ["tokens/s", *(f"{phase} {batch}" for phase, batch in places)]
    return Table(title="Tokens per second, medians", columns=columns, rows=rows)


def ratio_table(found: Sequence[dict[str, Any]]) -> Table:
    """Ours divided by each peer."""
    verdict = {None: "", True: "yes", False: "no"}
    rows = [
        [
            str(each["batch"]),
            each["setting"],
            f"{each['ratio']:.2f}",
            "-" if each["goal"] is None else f"{each['goal']:.1f}",
            verdict[each["holds"]],
        ]
        for each in found
    ]
    columns = ["batch", "peer", "ours / peer", "goal", "holds"]
    return Table(title="Decode speed against the peers", columns=columns, rows=rows)


def stage_table(found: dict[str, Any]) -> Table:
    """Shares of a step's time on the wall."""
    rows = [[stage, f"{share:.1%}"] for stage, share in found["shares"].items()]
    rows.append(["all but forward", f"{found['python_and_link']:.1%} (goal {found['goal']:.0%})"])
    title = f"A decode step at batch {found['batch']}, over the link"
    return Table(title=title, columns=["stage", "share of the step"], rows=rows)
