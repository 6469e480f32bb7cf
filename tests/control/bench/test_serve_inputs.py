"""What a serving benchmark plays: specs and traces, rates, clients; and settings that compare."""

from itertools import islice
from pathlib import Path

import pytest

from surgetank.control.bench.document import BenchError
from surgetank.control.bench.serve.inputs import calls_of, mix_of, settled
from surgetank.control.bench.serve.wishes import Slo, Wishes, hash_of, parse_clients

TRACE = """{"t": 0.0, "in": 100, "out": 10}
{"t": 2.0, "in": 50, "out": 20}
{"t": 6.0, "in": 7, "out": 1}
"""


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.jsonl"
    path.write_text(TRACE)
    return str(path)


def test_a_trace_keeps_its_times_and_sizes_or_their_multiples(trace: str) -> None:
    calls = list(calls_of(Wishes("", trace)))
    assert [(c.at, c.prompt, c.output) for c in calls] == [(0, 100, 10), (2, 50, 20), (6, 7, 1)]
    calls = list(calls_of(Wishes("", trace, speed=2.0, scale=0.1)))
    assert [(c.at, c.prompt, c.output) for c in calls] == [(0, 10, 1), (1, 5, 2), (3, 1, 1)]


def test_a_trace_is_cut_by_requests_or_by_time(trace: str) -> None:
    assert len(list(calls_of(Wishes("", trace, requests=2)))) == 2
    assert len(list(calls_of(Wishes("", trace, duration=2.0)))) == 1
    assert len(list(calls_of(Wishes("", trace, duration=2.0, concurrency=1)))) == 3


def test_a_rate_gives_a_trace_times_of_its_own(trace: str) -> None:
    calls = list(calls_of(Wishes("", trace, rate=100.0)))
    assert [c.prompt for c in calls] == [100, 50, 7]
    assert 0 < calls[0].at < calls[1].at < calls[2].at < 1.0


def test_a_spec_has_fixed_sizes_unless_a_spread_is_asked_for() -> None:
    calls = list(calls_of(Wishes("", "prompt=30,output=4", rate=10.0, requests=200)))
    assert {(c.prompt, c.output) for c in calls} == {(30, 4)}
    assert 15 < calls[-1].at < 25  # 200 arrivals at 10 per second
    spread = list(calls_of(Wishes("", "prompt=30,prompt_sigma=.5", rate=10.0, requests=200)))
    assert len({c.prompt for c in spread}) > 10
    assert calls == list(calls_of(Wishes("", "prompt=30,output=4", rate=10.0, requests=200)))


def test_a_closed_loop_with_only_a_duration_never_runs_out() -> None:
    wishes = settled(Wishes("", "prompt=3", concurrency=2, duration=1.0))
    assert [c.at for c in islice(calls_of(wishes), 500)] == [0.0] * 500


def test_clients_are_drawn_by_weight() -> None:
    clients = parse_clients("openai=3,no-retry=1")
    calls = list(calls_of(Wishes("", "prompt=3", clients, rate=1.0, requests=400)))
    assert 260 < sum(c.client == "openai" for c in calls) < 340


def test_what_is_not_given_has_defaults() -> None:
    found = settled(Wishes("", "prompt=3"))
    assert (found.concurrency, found.requests) == (8, 100)
    assert settled(Wishes("", "prompt=3", rate=1.0, duration=5.0)).requests is None


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        (Wishes("", "prompt=3", rate=1.0, concurrency=1), "not both"),
        (Wishes("", "prompt=3", speed=2.0), "for traces"),
        (Wishes("", "nowhere.jsonl"), "no such file"),
        (Wishes("", "prompt=x"), "input: prompt_median"),
        (Wishes("", "length=3"), "keys: prompt, output"),
    ],
)
def test_contradictions_and_typing_errors_are_named(wishes: Wishes, words: str) -> None:
    with pytest.raises(BenchError, match=words):
        list(calls_of(settled(wishes)))


def test_slo_and_clients_are_checked() -> None:
    assert Slo.parse("ttft=1,tpot=.1") == Slo(1.0, 0.1, None)
    assert Slo.parse("") == Slo()
    for wrong in ("ttft=0", "itl=1", "ttft"):
        with pytest.raises(BenchError, match="allowed: ttft, tpot, e2el"):
            Slo.parse(wrong)
    for wrong in ("nobody", "openai=0", "openai=x"):
        with pytest.raises(BenchError, match="openai-hasty, httpx, grpc"):
            parse_clients(wrong)


def test_runs_compare_when_all_but_the_address_is_equal(trace: str, tmp_path: Path) -> None:
    def named(wishes: Wishes) -> str:
        return hash_of(wishes.settings("m"))

    first = named(Wishes("http://a", trace))
    moved = tmp_path / "elsewhere" / "trace.jsonl"
    moved.parent.mkdir()
    moved.write_text(TRACE)
    assert named(Wishes("http://b", str(moved))) == first
    moved.write_text(TRACE * 2)
    assert named(Wishes("http://b", str(moved))) != first
    assert named(Wishes("http://a", trace, slo=Slo(ttft=2.0))) != first
    assert hash_of(Wishes("http://a", trace).settings("other")) != first


def test_bursts_come_in_the_first_part_of_each_period() -> None:
    mix = mix_of("prompt=3,arrivals=bursty,burst=4,period=8")
    assert (mix.arrivals, mix.burst, mix.period) == ("bursty", 4.0, 8.0)
