"""The proxy bench: its stub and clients agree, losses are seen, ratios are taken round by round."""

import json
import os
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from surgetank.control.bench.document import BenchError
from surgetank.control.bench.proxy import peers
from surgetank.control.bench.proxy import slow as slow_readers
from surgetank.control.bench.proxy.client import Answer, Pool
from surgetank.control.bench.proxy.idle import Idle
from surgetank.control.bench.proxy.process import free_port, start, stub
from surgetank.control.bench.proxy.report import (
    DELAY,
    HELD,
    MEMORY,
    REQUEST,
    TOKEN,
    ratios_of,
    tables_of,
)
from surgetank.control.bench.proxy.side import Side
from surgetank.control.bench.proxy.slow import Slow
from surgetank.control.bench.proxy.wire import AT_ONCE, ask, event, last, plain

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def answer(*parts: bytes) -> Answer:
    return Answer(0.0, data=bytearray(b"".join(parts)))


def test_a_stream_is_whole_with_its_last_chunk_and_in_order() -> None:
    begun = answer(HEAD, event(0), event(1), event(2))
    assert not begun.whole
    begun.data += last(3)
    assert begun.whole
    begun.check(3)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ((HEAD, event(0), event(2), last(2)), "out of order"),
        ((HEAD, event(1), event(0), last(2)), "out of order"),
        ((HEAD, event(0), event(1)[1:], last(2)), "broken"),
        ((b"HTTP/1.1 429 Too Many Requests\r\n\r\n",), "not served"),
    ],
)
def test_what_is_lost_swapped_or_refused_is_seen(parts: tuple[bytes, ...], says: str) -> None:
    with pytest.raises(BenchError, match=says):
        answer(*parts).check(2)


def test_a_plain_answer_is_whole_by_its_length() -> None:
    assert answer(plain()).whole
    assert not answer(plain()[:-1]).whole
    answer(plain()).check(0)


async def test_the_stub_gives_each_stream_an_event_a_step() -> None:
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    with stub(cores) as port:
        pool = Pool(port)
        await pool.ask(0, 0)
        found = await pool.ask(5, 20_000)
        gaps = [after - before for before, after in pairwise(found.reads)]
        pool.close()
    assert found.begun < found.first == found.reads[0]
    assert len(gaps) >= 1
    assert found.reads[-1] - found.first >= 0.04, "four steps of 20 ms, less what came late"


async def test_the_bare_splice_passes_on_whole_answers(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    with stub(cores) as upstream:
        port = free_port()
        planned = peers.plan(peers.SPLICE, upstream, port, tmp_path)
        assert planned is not None
        process = start(planned, port, tmp_path, cores)
        pool = Pool(port)
        try:
            await process.ready()
            for events in (0, 5, 0):
                await pool.ask(events, 1_000)
        finally:
            pool.close()
            process.end()


async def test_slow_readers_lose_nothing_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slow_readers, "STREAMS", 2)
    monkeypatch.setattr(slow_readers, "EVENTS", 20)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    with stub(cores) as port:
        way = Side("direct", Pool(port), None)
        found = await slow_readers.slow(way)
        way.pool.close()
    assert found.bytes == 0, "there is no proxy"
    assert 0 < found.alone < 5
    assert 0 < found.beside < 5
    assert found.caught_up > 0


async def test_who_does_not_read_has_its_first_event_and_later_all_of_them() -> None:
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    with stub(cores) as port:
        pool = Pool(port)
        reader = await pool.connect(32 * 1024)
        await reader.begin(ask(2048, AT_ONCE))
        assert reader.answer is not None
        held = len(reader.answer.data)
        await pool.ask(2, 1000)  # time passes, in which the engine has said all
        assert len(reader.answer.data) == held < 1_000_000
        whole = await reader.finish()
        pool.close()
    whole.check(2048)
    assert len(whole.data) > 3_000_000


def side(name: str, requests: list[float], tokens: list[float], first: list[float]) -> Side:
    unread = [Slow(0.010, 0.0105, 250_000, 0.1), Slow(0.010, 0.0125, 350_000, 0.1)]
    return Side(name, Pool(1), None, 0.0, requests, tokens, [first, first], unread)


def test_ratios_are_taken_within_a_round_and_their_median_counts() -> None:
    direct = side("direct", [], [], [0.001] * 100)
    ours = side("surgetank", [1.0, 4.0, 3.0], [3.0, 2.0, 4.0], [0.0015] * 100)
    nginx = side("nginx", [1.0, 1.0, 1.0], [2.0, 1.0, 4.0], [0.001] * 100)
    ratios = ratios_of([direct, ours, nginx], Idle(streams=5_000, bytes=100_000_000))
    by = {each["measure"]: (each["peer"], each["ratio"], each["goal"]) for each in ratios}
    assert by[TOKEN] == ("nginx", 1.5, 1.2)
    assert by[REQUEST] == ("nginx", 3.0, 2.5)
    assert by["added p99 TTFT at half load"] == ("1 ms", 0.5, 1.0)
    assert by[MEMORY] == ("400 MB", 0.5, 1.0)
    assert by[DELAY] == ("1 ms", 1.5, 1.0)
    assert by[HELD] == ("1 MB", 0.3, 1.0)
    _, beside, judged = tables_of([direct, ours, nginx], ratios)
    assert beside["rows"][0] == ["surgetank", "10.00", "11.50", "0.30", "0.10"]
    assert [row[-1] for row in judged["rows"]] == ["no", "no", "", "yes", "no", "yes", "yes"]


def test_half_load_is_what_takes_half_of_a_cores_time() -> None:
    assert side("x", [400e-6], [25e-6], []).half_load == pytest.approx(0.5 / 800e-6)


def test_absent_proxies_are_none_and_ours_is_told_of_the_stub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path: None)
    absent = [name for name in peers.PEERS if peers.plan(name, 1, 2, tmp_path) is None]
    assert absent == [name for name in peers.PEERS if name != peers.SPLICE]
    ours = peers.plan(peers.OURS, 4711, 4712, tmp_path)
    assert ours is not None
    assert "--set=backends.0.url=http://127.0.0.1:4711" in ours.command


def test_the_peers_are_configured_with_one_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path: f"/opt/{name}")
    for name in peers.PEERS:
        assert peers.plan(name, 4711, 4712, tmp_path) is not None
    envoy = json.loads((tmp_path / "envoy.json").read_text())["static_resources"]
    listener = envoy["listeners"][0]["address"]["socket_address"]
    assert listener["port_value"] == 4712
    assert "worker_processes 1;" in (tmp_path / "nginx.conf").read_text()
