"""The engine as a process: exit codes, signals, its parent's death, a user's mistakes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine.model.checkpoints import reference_model, write_folder
from tests.engine.socket_client import SocketClient
from tests.engine.tiny_engine import greedy, prompt_of

from surgetank.engine.link import Link, LinkError
from surgetank.telemetry.clock import SystemClock
from surgetank.telemetry.vocabulary import FinishReason

MAIN = """
import logging, sys
from surgetank.engine.config import EngineConfig
from surgetank.engine.server import serve
logging.basicConfig(level=logging.INFO)
sys.exit(serve(EngineConfig.model_validate_json(sys.argv[1])))
"""
pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("model"), reference_model())


class Process:
    """An engine process; its stderr is read line by line."""

    def __init__(self, folder: Path, env: dict[str, str] | None = None, **settings: Any) -> None:
        self.socket = folder / "engine.sock"
        values = {"socket": str(self.socket), "metrics_port": 0, "threads": 1, **settings}
        command = [sys.executable, "-c", MAIN, json.dumps(values)]
        self.popen = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
        )

    def line(self, part: str) -> str:
        """Read stderr up to a line with `part` in it."""
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            if part in line:
                return line
        raise AssertionError(f"the engine ended without saying {part!r}")

    def end(self) -> tuple[int, str]:
        """Exit code and what is left of stderr."""
        _, rest = self.popen.communicate(timeout=60)
        return self.popen.returncode, rest


@pytest.fixture
def start(tmp_path: Path, model: Path) -> Iterator[Any]:
    begun: list[Process] = []

    def begin(**settings: Any) -> Process:
        begun.append(Process(tmp_path, **{"model": str(model), **settings}))
        return begun[-1]

    yield begin
    for process in begun:
        if process.popen.poll() is None:
            process.popen.kill()
        process.popen.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0_in_the_middle_of_work(start: Any, number: signal.Signals) -> None:
    engine = start()
    url = engine.line("metrics at ").rsplit(" ", 1)[1].strip()
    with SocketClient(engine.socket) as client:
        client.hello()
        client.submit(1, prompt_of(9), greedy(3))
        assert client.until_finish(1)[-1].finish is FinishReason.LENGTH
        metrics = urllib.request.urlopen(url, timeout=20).read().decode()
        assert 'surgetank_batch_scheduled_tokens_total{phase="prefill"} 9.0' in metrics
        assert 'surgetank_batch_scheduled_tokens_total{phase="decode"} 2.0' in metrics
        client.submit(2, prompt_of(9), greedy(200))
        client.read()
        engine.popen.send_signal(number)
        assert client.closed()
    assert engine.end()[0] == 0
    assert not engine.socket.exists()


def test_a_killed_engines_socket_file_is_replaced_by_the_next(start: Any) -> None:
    engine = start()
    engine.line("serving")
    engine.popen.kill()
    engine.end()
    assert engine.socket.exists()
    again = start()
    again.line("serving")
    with SocketClient(again.socket) as client:
        assert client.hello().card.pid == again.popen.pid


def test_a_live_engines_socket_is_not_taken(start: Any) -> None:
    engine = start()
    engine.line("serving")
    code, error = start().end()
    assert code == 2
    last = error.splitlines()[-1]
    assert last == (
        f"surgetank engine: socket {engine.socket}: another engine is listening there; "
        f"stop it first"
    )


def test_it_ends_when_its_parent_is_another(start: Any) -> None:
    engine = start(env={"SURGETANK_PARENT_PID": "1"})
    assert "process 1, which started this engine, is gone" in engine.line("is gone")
    assert engine.end()[0] == 0


def test_it_stays_while_its_parent_lives(start: Any) -> None:
    engine = start(env={"SURGETANK_PARENT_PID": str(os.getpid())})
    engine.line("serving")
    with SocketClient(engine.socket) as client:
        client.hello()
        client.submit(1, prompt_of(9), greedy(3))
        client.until_finish(1)
    engine.popen.send_signal(signal.SIGTERM)
    assert engine.end()[0] == 0


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"model": "/nowhere/model.gguf"}, "/nowhere/model.gguf: no such file or folder"),
        ({"kv_bytes": 5}, "kv_bytes is 5; allowed: at least 8192, one block of 16 tokens"),
        ({"metrics_host": "203.0.113.1"}, "metrics on 203.0.113.1:0: Cannot assign"),
    ],
)
def test_a_users_mistake_is_one_sentence_and_exit_code_2(
    start: Any, settings: dict[str, Any], sentence: str
) -> None:
    code, error = start(**settings).end()
    assert code == 2
    assert error.startswith(f"surgetank engine: {sentence}")
    assert len(error.splitlines()) == 1


def test_the_metrics_port_in_use_is_told(start: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, error = start(metrics_port=port).end()
    assert code == 2
    assert f"metrics on 127.0.0.1:{port}: Address already in use" in error


def test_an_idle_engine_uses_no_processor_time(start: Any) -> None:
    engine = start(threads=2)
    engine.line("serving")
    with SocketClient(engine.socket) as client:
        client.hello()
        client.submit(1, prompt_of(9), greedy(30))
        client.until_finish(1)
        before, begun = cpu_seconds(engine.popen.pid), time.monotonic()
        client.socket.settimeout(0.8)
        with pytest.raises(TimeoutError):
            client.read()
        spent, passed = cpu_seconds(engine.popen.pid) - before, time.monotonic() - begun
    assert spent < 0.2 * passed


def cpu_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def test_a_file_in_the_way_and_a_path_too_long_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not ours")
    for path, reason in (
        (tmp_path / "file", "a file that is no socket is in the way"),
        (tmp_path / ("x" * 200), "AF_UNIX path too long"),
    ):
        with pytest.raises(LinkError, match=reason):
            Link(path, b"", 1, 1.0, SystemClock())
    assert (tmp_path / "file").read_text() == "not ours"


def test_without_torch_it_says_what_to_install(tmp_path: Path) -> None:
    command = [sys.executable, "-c", f"import sys; sys.modules['torch'] = None\n{MAIN}", "{}"]
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "surgetank engine: torch is not installed; the engine needs: "
        "pip install 'surgetank[engine]'\n"
    )
