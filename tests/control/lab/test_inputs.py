"""Traces of both forms, and synthetic calls whose means and rates are what was asked for."""

import random
from pathlib import Path

import pytest

from surgetank.control.lab.inputs import InputError, Mix, merged, read_trace, synthetic
from surgetank.telemetry.vocabulary import Priority


def read(path: Path, *, speed: float = 1.0, max_tokens: int = 100) -> list[tuple[float, int, int]]:
    items = read_trace(path, speed=speed, max_tokens=max_tokens, rng=random.Random(0))
    return [(round(item.at, 6), item.prompt, item.output) for item in items]


def test_replay_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.replay.jsonl"
    path.write_text('{"t": 5, "in": 10, "out": 200}\n\n{"t": 7.0, "in": 3, "out": 0}\n')
    items = read_trace(path, speed=2.0, max_tokens=100, rng=random.Random(0))
    assert [(i.at, i.prompt, i.output, i.max_tokens) for i in items] == [
        (0.0, 10, 200, 200),
        (1.0, 3, 1, 100),
    ]


def test_replay_lines_may_name_tenant_and_class(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"t": 0, "in": 1, "out": 1, "tenant": "x", "priority": "batch"}\n')
    item = read_trace(path, speed=1.0, max_tokens=1, rng=random.Random(0))[0]
    assert (item.tenant, item.priority) == ("x", Priority.BATCH)


def test_azure_table_with_seven_digits_of_a_second(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n"
        "2023-11-16 18:17:04.0319600,3180,8\n"
    )
    assert read(path) == [(0.0, 4808, 10), (0.052, 3180, 8)]


def test_equal_times_are_spread_until_the_next(tmp_path: Path) -> None:
    path = tmp_path / "rounded.jsonl"
    rows = ['{"t": 0, "in": 1, "out": 1}'] * 50 + ['{"t": 3, "in": 1, "out": 1}'] * 50
    path.write_text("\n".join(rows))
    times = [at for at, _, _ in read(path)]
    assert len(set(times)) == 100
    assert sum(0 <= at < 3 for at in times) == 50
    assert max(times) < 6


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.jsonl", '{"t": 0, "in": 5}\n', "line 1: expected"),
        ("a.jsonl", '{"t": 0, "in": -5, "out": 1}\n', "allowed: >= 0"),
        ("a.jsonl", "\n", "holds no request"),
        ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n", "line 2: expected"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=said):
        read(tmp_path / name)


@pytest.mark.parametrize("arrivals", ["poisson", "gamma", "bursty"])
def test_synthetic_calls_come_at_the_rate_asked_for(arrivals: str) -> None:
    mix = Mix.model_validate({"arrivals": arrivals, "cv": 2.0})
    items = synthetic(mix, 50.0, 10.0, 210.0, random.Random(1))
    assert len(items) / 200 == pytest.approx(50.0, rel=0.08)
    assert all(10.0 <= item.at < 210.0 for item in items)
    prompt, output = mix.means()
    assert sum(item.prompt for item in items) / len(items) == pytest.approx(prompt, rel=0.05)
    assert sum(item.output for item in items) / len(items) == pytest.approx(output, rel=0.05)


def test_bursts_hold_all_arrivals_of_their_period() -> None:
    mix = Mix(arrivals="bursty", burst=5.0, period=10.0)
    items = synthetic(mix, 20.0, 0.0, 100.0, random.Random(1))
    assert all(item.at % 10.0 <= 2.0 for item in items)


def test_streams_are_merged_by_time() -> None:
    one = synthetic(Mix(tenant="a"), 5.0, 0.0, 10.0, random.Random(1))
    two = synthetic(Mix(tenant="b"), 5.0, 0.0, 10.0, random.Random(2))
    both = merged(one, two)
    assert [item.at for item in both] == sorted(item.at for item in both)
    assert len(both) == len(one) + len(two)
