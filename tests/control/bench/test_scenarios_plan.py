"""What is planned: as much work as the load says, the same calls for what is to be compared."""

import random

import pytest

from surgetank.control.bench.load.words import WORDS, prompt_of
from surgetank.control.bench.scenarios.plan import (
    FULL,
    GRPC,
    HASTY,
    HIGH,
    LOW,
    OBEYING,
    OPENAI,
    QUICK,
    Call,
    Capacity,
    cells,
    seconds_of,
    traffic,
)


def by_tokens(prompt: int, output: int) -> float:
    return (prompt + 4 * output) / 150


CAPACITY = Capacity(rate=5.0, cost=by_tokens)


def work(calls: tuple[Call, ...]) -> float:
    return sum(by_tokens(call.prompt, call.output) for call in calls)


@pytest.mark.parametrize("load", [0.5, 0.95, 10.0])
def test_traffic_brings_the_work_that_its_load_says(load: float) -> None:
    calls = traffic(load, CAPACITY, 20.0, OBEYING, "seed")
    dearest = max(by_tokens(call.prompt, call.output) for call in calls)
    assert load * 5.0 * 20.0 <= work(calls) <= load * 5.0 * 20.0 + dearest
    assert all(0 <= call.at < 20.0 for call in calls)
    assert [call.at for call in calls] == sorted(call.at for call in calls)


def test_equal_seeds_give_equal_calls_and_clients_by_weight() -> None:
    calls = traffic(10.0, CAPACITY, 20.0, OBEYING, "seed")
    assert calls == traffic(10.0, CAPACITY, 20.0, OBEYING, "seed")
    assert calls != traffic(10.0, CAPACITY, 20.0, OBEYING, "other")
    share = sum(call.client == GRPC for call in calls) / len(calls)
    assert 0.2 < share < 0.3


def test_a_stall_meets_the_same_calls_whether_hints_are_obeyed_or_not() -> None:
    obeyed, ignored = cells("b", QUICK, CAPACITY, 1)
    assert [(c.at, c.prompt, c.output) for c in obeyed.calls] == [
        (c.at, c.prompt, c.output) for c in ignored.calls
    ]
    assert {call.client for call in ignored.calls} == {HASTY}
    assert {call.client for call in obeyed.calls} == {OPENAI, GRPC}
    assert obeyed.stall == (QUICK.b_before, QUICK.b_before + QUICK.b_stall)


def test_the_high_class_is_the_same_alone_and_beside_the_low_one() -> None:
    alone, *loaded = cells("d", FULL, CAPACITY, 1)
    assert [cell.load for cell in loaded] == [5.0, 10.0]
    for cell in loaded:
        assert tuple(call for call in cell.calls if call.priority == HIGH) == alone.calls
        low = tuple(call for call in cell.calls if call.priority == LOW)
        assert work(low) == pytest.approx(cell.load * 5.0 * cell.end, rel=0.02)


def test_every_scenario_asked_for_is_planned_and_fits_its_time() -> None:
    assert [cell.title for cell in cells("a", QUICK, CAPACITY, 1)] == [
        "a load 0.5x",
        "a load 1x",
        "a load 10x",
    ]
    assert seconds_of(cells("abd", FULL, CAPACITY, 1), 8.0) + FULL.probe < 10.5 * 60
    assert seconds_of(cells("abd", QUICK, CAPACITY, 1), 8.0) + QUICK.probe < 4.5 * 60


def test_prompts_have_their_tokens_and_no_common_beginning() -> None:
    rng = random.Random(1)
    first, second = (prompt_of(40, 1.0, rng).split() for _ in range(2))
    assert len(first) == len(second) == 40
    assert first[:3] != second[:3]
    assert len(prompt_of(40, 2.0, rng).split()) == 20
    assert prompt_of(1, 3.0, rng).strip() in WORDS
