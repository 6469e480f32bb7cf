"""The engine behind a real unix socket, its loop in a thread: sidecars come, go and misbehave."""

import logging
import signal
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.socket_client import SocketClient
from tests.engine.tiny_engine import alone, greedy, prompt_of, tiny_config, tiny_model

from surgetank.engine.api import Commands, Hello, Settings, StepOutput
from surgetank.engine.build import Built, assemble
from surgetank.engine.link import Link
from surgetank.engine.observer import Observer
from surgetank.engine.ring import RingWriter, read_ring, ring_path, writer_of
from surgetank.engine.server import Server, StopFlag
from surgetank.engine.wire import encode
from surgetank.telemetry.clock import SystemClock
from surgetank.telemetry.engine_recorder import EngineRecorder
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.registry import Registry
from surgetank.telemetry.stepmodel import step_seconds
from surgetank.telemetry.vocabulary import FinishReason

UNREAD = 256 * 1024


def test_a_signal_while_the_model_is_loading_ends_the_process_at_once() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        StopFlag()
        for number in before:
            with pytest.raises(SystemExit) as ended:
                signal.raise_signal(number)
            assert ended.value.code == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Running:
    """An engine at work in a thread of its own."""

    def __init__(self, path: Path) -> None:
        clock = SystemClock()
        self.path = path
        self.built: Built = assemble(tiny_config(), tiny_model(), clock)
        self.link = Link(path, encode(Hello(1, self.built.card)), UNREAD, 0.3, clock)
        self.recorder = EngineRecorder(Registry(Process.ENGINE), self.built.sizes)
        self.ring = RingWriter(ring_path(path), 1024, writer_of(self.built.card, clock))
        observer = Observer(self.built.meter, self.recorder, self.ring)
        self.server = Server(self.built.loop, self.link, observer, clock)
        self.thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        with self.link, self.ring:
            self.server.run()

    def used_blocks(self) -> int:
        return self.built.loop.roster.view.kv.pool.used


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    engine = Running(tmp_path / "engine.sock")
    engine.thread.start()
    yield engine
    engine.server.stop()
    engine.thread.join(20)
    assert not engine.thread.is_alive()
    assert not engine.path.exists()


def test_hello_then_tokens_as_they_come_then_one_finish(running: Running) -> None:
    prompt = prompt_of(20)
    with SocketClient(running.path) as client:
        card = client.hello().card
        assert (card.name, card.vocab_size, card.kv_blocks) == ("tiny", 264, 64)
        client.submit(7, prompt, greedy(9))
        heard = client.until_finish(7)
    assert [len(tokens.token_ids) for tokens in heard] == [1] * 9
    assert [token for tokens in heard for token in tokens.token_ids] == alone(prompt, greedy(9))
    assert [tokens.finish for tokens in heard] == [None] * 8 + [FinishReason.LENGTH]


def test_only_this_user_may_connect(running: Running) -> None:
    assert stat.S_IMODE(running.path.stat().st_mode) == 0o600


def test_a_cancelled_request_says_nothing_more(running: Running) -> None:
    with SocketClient(running.path) as client:
        client.hello()
        client.submit(1, prompt_of(20), greedy(400))
        client.submit(2, prompt_of(5), greedy(60))
        assert isinstance(client.read(), StepOutput)
        client.send(Commands(cancel=[(1, -1)]))
        client.until_finish(2)
        client.submit(3, prompt_of(6), greedy(3))
        last = client.until_finish(3)
        assert running.used_blocks() == 0
        assert last[-1].finish is FinishReason.LENGTH


def test_a_lost_sidecars_requests_are_dropped_and_the_next_one_is_served(running: Running) -> None:
    with SocketClient(running.path) as client:
        client.hello()
        for request_id in range(12):
            client.submit(request_id, prompt_of(30), greedy(400))
        client.read()
    with SocketClient(running.path) as client:
        client.hello()
        client.submit(3, prompt_of(8), greedy(4))  # an id that the lost one had used
        heard = client.until_finish(3)
        assert [token for each in heard for token in each.token_ids] == alone(
            prompt_of(8), greedy(4)
        )
        assert running.used_blocks() == 0


def test_a_second_sidecar_is_turned_away_and_the_first_does_not_notice(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with SocketClient(running.path) as first:
        first.hello()
        with SocketClient(running.path) as second:
            assert second.closed()
        first.submit(1, prompt_of(4), greedy(2))
        assert first.until_finish(1)[-1].finish is FinishReason.LENGTH
    assert "a second sidecar was turned away: one at a time" in caplog.text


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x03abc",
        b"\x00\x00\x00\x01\x80",
        encode(Hello(1, assemble(tiny_config(), tiny_model(), SystemClock()).card)),
    ],
)
def test_a_malformed_frame_ends_the_connection_and_not_the_engine(
    running: Running, noise: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with SocketClient(running.path) as client:
        client.hello()
        client.submit(1, prompt_of(4), greedy(400))
        client.socket.sendall(noise)
        client.socket.shutdown(1)
        assert client.closed()
    with SocketClient(running.path) as client:
        client.hello()
        client.submit(1, prompt_of(4), greedy(2))
        assert len(client.until_finish(1)) == 2
    assert "connection to the sidecar ended" in caplog.text


def test_an_id_used_twice_ends_the_connection(running: Running) -> None:
    with SocketClient(running.path) as client:
        client.hello()
        client.submit(1, prompt_of(4), greedy(400))
        client.submit(1, prompt_of(4), greedy(400))
        assert client.closed()


def test_half_a_frame_waits_for_the_other_half(running: Running) -> None:
    frame = encode(Commands(settings=Settings(max_num_seqs=3)))
    with SocketClient(running.path) as client:
        client.hello()
        client.socket.sendall(frame[:9])
        client.socket.sendall(frame[9:])
        client.submit(1, prompt_of(4), greedy(1))
        client.until_finish(1)
    assert running.built.loop.budget.sequences == 3


def test_a_sidecar_that_never_reads_is_given_up_and_memory_stays_bounded(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    sampling = greedy(500, logprobs=264)  # kilobytes a token
    with SocketClient(running.path) as client:
        client.hello()
        for request_id in range(8):
            client.submit(request_id, [request_id + 3], sampling)
        given_up = threading.Event()
        handler = logging.Handler()
        handler.emit = lambda record: given_up.set()  # type: ignore[method-assign]
        logging.getLogger("surgetank.engine.link").addHandler(handler)
        assert given_up.wait(60)
        logging.getLogger("surgetank.engine.link").removeHandler(handler)
        assert running.built.loop.steps < 500
    with SocketClient(running.path) as client:
        client.hello()
        client.submit(1, prompt_of(4), greedy(2))
        assert client.until_finish(1)[-1].finish is FinishReason.LENGTH
    unread = int(caplog.text.split("ended: ")[1].split()[0])
    assert UNREAD < unread < UNREAD + 8 * 264 * 20


def test_an_idle_engine_runs_no_steps_and_stops_at_once(running: Running) -> None:
    with SocketClient(running.path) as client:
        client.hello()
        client.submit(1, prompt_of(4), greedy(2))
        client.until_finish(1)
        steps = running.built.loop.steps
        client.send(Commands(cancel=[(99, -1)]))  # nothing to do: it has just ended
        client.send(Commands())
        running.server.stop()
        assert client.closed()
    running.thread.join(20)
    assert running.built.loop.steps == steps


def test_every_step_is_in_the_ring_and_the_stages_sum_to_wall_time(running: Running) -> None:
    with SocketClient(running.path) as client:
        client.hello()
        for request_id in range(6):
            client.submit(request_id, prompt_of(30, request_id), greedy(40))
            client.until_finish(request_id)
    found = read_ring(ring_path(running.path))
    assert found.alive
    assert found.writer.kv_blocks == 64
    first, *others = found.records
    assert [record.step for record in found.records] == list(range(1, found.newest + 1))
    sampled = [record.step for record in found.records if any(record.operators)]
    assert sampled == list(range(64, found.newest + 1, 64))
    stages = running.recorder.registry.counter("compute_loop_seconds_total").children()
    told = sum(stage.value for stage in stages.values())
    wall = others[-1].at - first.at
    assert told - first.idle - step_seconds(first) == pytest.approx(wall, rel=0.02)
    assert sum(record.idle + step_seconds(record) for record in others) <= 1.02 * wall
