"""The sidecar process: without an engine, with one that hangs, on a taken port, and its ends."""

import json
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tests.control.sidecar_process import Sidecar
from tests.fakes import tiny_card
from tests.fakes_collector import BlackHole, Collector

from surgetank.engine.api import PROTOCOL, Hello
from surgetank.engine.wire import encode

pytestmark = pytest.mark.e2e

Start = Callable[..., Sidecar]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Sidecar] = []

    def begin(*settings: str, parent: int | None = None) -> Sidecar:
        started.append(Sidecar(tmp_path, *settings, parent=parent))
        return started[-1]

    yield begin
    for sidecar in started:
        sidecar.kill()


@pytest.fixture
def hanging_engine(tmp_path: Path) -> Iterator[None]:
    """An engine that says hello, and then nothing."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "engine.sock"))
        listener.listen()
        peers = []

        def greet() -> None:
            peer, _ = listener.accept()
            peers.append(peer)
            peer.sendall(encode(Hello(PROTOCOL, tiny_card())))

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        yield
        for peer in peers:
            peer.close()


def test_without_an_engine_it_serves_refusals_and_drains_at_once(start: Start) -> None:
    sidecar = start()
    assert sidecar.state() == ("backend_down", 0)
    refused = sidecar.ask()
    assert refused.status_code == 503
    assert refused.json()["error"]["outcome"] == "backend_down"
    http = sidecar.listeners["http"]
    assert httpx.get(f"{http}/health/live").status_code == 200
    assert httpx.get(f"{http}/health/ready").status_code == 503
    assert "surgetank_backend_up" in httpx.get(f"{http}/metrics").text
    sidecar.process.send_signal(signal.SIGTERM)
    assert sidecar.finish()[0] == 0


@pytest.mark.parametrize("door", ["http", "grpc", "admin"])
def test_a_taken_port_is_one_sentence_and_exit_code_2(start: Start, door: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sidecar = start(f"{door}.port={port}", "log.level=error")
        code, errors = sidecar.finish()
    assert code == 2
    assert sidecar.line == ""
    unknown = "taken, or not an address of this machine"
    reason = unknown if door == "grpc" else "address already in use"
    assert errors == (
        f"surgetank sidecar: {door}: cannot listen on 127.0.0.1:{port} ({reason}); "
        f"choose another with --set {door}.port=N\n"
    )


def test_it_ends_when_its_parent_is_gone(start: Start) -> None:
    code, errors = start(parent=1).finish()
    assert code == 0
    assert "the process that started this one is gone" in errors


@pytest.mark.usefixtures("hanging_engine")
def test_what_does_not_finish_in_time_is_cut_off_and_told(start: Start) -> None:
    sidecar = start("control.drain_timeout=0.2")
    sidecar.until(("ready", 0))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(sidecar.ask)
        sidecar.until(("ready", 1))
        sidecar.process.send_signal(signal.SIGTERM)
        answer = asked.result(30)
    assert answer.status_code == 503
    assert answer.json()["error"]["outcome"] == "draining"
    code, errors = sidecar.finish()
    assert code == 0
    assert "not drained within 0.2 s" in errors


@pytest.mark.usefixtures("hanging_engine")
def test_a_second_signal_does_not_wait(start: Start) -> None:
    sidecar = start("control.drain_timeout=3600")
    sidecar.until(("ready", 0))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(sidecar.ask)
        sidecar.until(("ready", 1))
        sidecar.process.send_signal(signal.SIGTERM)
        sidecar.until(("draining", 1))
        sidecar.process.send_signal(signal.SIGTERM)
        assert asked.result(30).status_code == 503
    assert sidecar.finish()[0] == 1


def test_its_traces_and_its_log_have_the_same_ids(start: Start) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    with Collector() as collector:
        sidecar = start(f"tracing.endpoint={collector.url}", "log.format=json")
        assert sidecar.ask({"traceparent": f"00-{trace}-00f067aa0ba902b7-00"}).status_code == 503
        sidecar.process.send_signal(signal.SIGTERM)
        code, errors = sidecar.finish()
    assert code == 0
    assert [span.name for span in collector.spans] == ["POST /v1/completions", "admission"]
    (line,) = (each for each in map(json.loads, errors.splitlines()) if "request_id" in each)
    assert line["trace_id"] == trace == collector.spans[0].trace_id.hex()
    assert line["span_id"] == collector.spans[0].span_id.hex()
    assert line["outcome"] == "backend_down"


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_silent_collector_does_not_keep_it(protocol: str, start: Start) -> None:
    with BlackHole() as hole:
        to = f"tracing.endpoint={hole.url}"
        sidecar = start(to, f"tracing.protocol={protocol}", "tracing.timeout=60")
        assert sidecar.ask().status_code == 503
        with hole.wait():
            sidecar.process.send_signal(signal.SIGTERM)
            code, errors = sidecar.finish()
    assert code == 0
    assert "2 spans were not through to the collector" in errors


def test_an_open_drain_outlives_a_crash_and_not_an_orderly_end(start: Start) -> None:
    act = {"who": "ann", "why": "kernel"}
    first = start()
    httpx.post(f"{first.listeners['admin']}/drain", json=act).raise_for_status()
    first.process.kill()
    second = start()
    assert second.state()[0] == "draining"
    entry = second.look("/journal")["entries"][-1]
    assert (entry["who"], entry["why"], entry["cause"]) == ("ann", "kernel", "restart")
    second.process.send_signal(signal.SIGTERM)
    assert second.finish()[0] == 0
    assert start().state()[0] == "backend_down"


def test_a_file_of_keys_that_cannot_be_used_is_one_sentence(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    code, errors = start(f"tenants.keys_file={file}", "log.level=error").finish()
    assert code == 2
    assert errors == (f"surgetank sidecar: tenants.keys_file {file}: No such file or directory\n")
