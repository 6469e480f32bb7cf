"""The race's arithmetic: speeds, ratios against the better setting, shares of a step, and turns."""

import random
from functools import partial

import pytest

from surgetank.control.bench.rival import Entry, Rival, Sample
from surgetank.control.bench.startlist import HF, INSIDE, LLAMA, OURS
from surgetank.control.bench.throughput import (
    Schedule,
    measure,
    ratio_table,
    ratios,
    speeds,
    stages,
    started,
)

SCHEDULE = Schedule(batches=(1, 32), rounds=2, prompt=4, output=5, prefill=8)


class ScriptedRival:
    """Takes as long as it is told per decoded token, and notes what it is asked."""

    version = "1"

    def __init__(self, name: str, seconds: float, asked: list[tuple[str, int]]) -> None:
        self.name = name
        self.closed = False
        self._seconds = seconds
        self._asked = asked

    def ask(self, prompts: object, output: int) -> Sample:
        assert isinstance(prompts, list)
        self._asked.append((self.name, len(prompts)))
        decoded = len(prompts) * (output - 1)
        decode = decoded * self._seconds
        return Sample(0.5, decode, decoded, {"forward": 0.8 * decode, "sample": 0.1 * decode})

    def close(self) -> None:
        self.closed = True


def make(count: int, length: int, rng: random.Random, vocabulary: int) -> list[list[int]]:
    return [[1] * length for _ in range(count)]


def _itself(rival: Rival) -> Rival:
    return rival


def field(asked: list[tuple[str, int]]) -> list[tuple[Entry, ScriptedRival]]:
    speed = {OURS: 0.010, INSIDE: 0.008, "llama/off": 0.009, "llama/on": 0.012, HF: 0.020}
    peers = {"llama/off": LLAMA, "llama/on": LLAMA, HF: HF}
    made = []
    for name, seconds in speed.items():
        rival = ScriptedRival(name, seconds, asked)
        made.append((Entry(name, peers.get(name, ""), partial(_itself, rival)), rival))
    return made


def test_everyone_gets_each_batch_in_turn() -> None:
    asked: list[tuple[str, int]] = []
    up: list[tuple[Entry, Rival]] = [(entry, rival) for entry, rival in field(asked)]
    measure(up, SCHEDULE, make, lambda text: None)
    after_warming = asked[len(up) :]
    assert [name for name, _ in after_warming[:5]] == [OURS, INSIDE, "llama/off", "llama/on", HF]
    assert {batch for _, batch in after_warming[:5]} == {1}
    second = after_warming[len(after_warming) // 2 :]
    assert second[0][0] == INSIDE  # another begins the next round
    assert len(after_warming) == 2 * 3 * len(up)  # rounds x (two decode tasks, one prefill)


def test_speeds_ratios_and_shares() -> None:
    up: list[tuple[Entry, Rival]] = [(entry, rival) for entry, rival in field([])]
    samples = measure(up, SCHEDULE, make, lambda text: None)
    found = {(f["phase"], f["batch"], f["engine"]): f for f in speeds(samples, SCHEDULE)}
    assert found["decode", 32, OURS]["tokens_per_second"] == 100.0
    assert found["prefill", 1, OURS]["tokens_per_second"] == 16.0  # 8 tokens in half a second
    against = ratios(samples, SCHEDULE, [entry for entry, _ in up])
    by_place = {(each["batch"], each["peer"]): each for each in against}
    llama = by_place[32, LLAMA]
    assert (llama["setting"], llama["ratio"], llama["goal"]) == ("llama/off", 0.9, 0.8)
    assert llama["holds"] is True
    assert by_place[32, HF]["ratio"] == 2.0
    assert by_place[1, HF]["goal"] is None
    assert by_place[1, HF]["holds"] is None
    split = stages(samples, SCHEDULE)
    assert split is not None
    assert split["batch"] == 32
    assert split["shares"] == {"forward": 0.8, "sample": 0.1, "link and waiting": 0.1}
    assert split["python_and_link"] == 0.2
    assert split["holds"] is False
    assert split["link_alone"] == 0.25
    assert ratio_table(against)["rows"][-1] == ["32", HF, "2.00", "1.3", "yes"]


def test_all_are_ended_when_one_does_not_start() -> None:
    made = field([])

    def broken() -> Rival:
        raise OSError("no such program")

    entries = [made[0][0], Entry("broken", HF, broken)]
    with pytest.raises(OSError, match="no such program"), started(entries, lambda text: None):
        pass
    assert made[0][1].closed
