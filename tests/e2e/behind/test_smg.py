"""Behind the real smg gateway, which speaks the engine protocol to us: openai client, smg, we."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import BadRequestError, OpenAI, RateLimitError
from tests.control.sidecar_process import Sidecar, until
from tests.e2e.behind.proxies import find, free_port
from tests.e2e.behind.stub_engine import WAIT
from tests.e2e.played_engine import PlayedEngine
from tests.e2e.running import Running

pytestmark = pytest.mark.e2e
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


@dataclass
class Gateway:
    """A smg that routes to one worker."""

    url: str
    metrics_port: int
    worker: str
    client: OpenAI
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4))

    @property
    def model(self) -> str:
        """The one that it found at the worker."""
        return str(httpx.get(f"{self.url}/v1/models").json()["data"][0]["id"])

    def ask(self, **fields: Any) -> Any:
        """One chat completion of the openai client's."""
        return self.client.chat.completions.create(**{"model": self.model, **ASK, **fields})

    def later(self) -> "Future[Any]":
        """The same, meanwhile."""
        return self.pool.submit(self.ask)

    def leave(self, seconds: float) -> None:
        """Ask for a plain answer, and go away when it did not come."""
        body = {"model": self.model, **ASK}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=seconds)

    def told(self, metric: str) -> float:
        """Of the worker, as the gateway's own metrics page has it."""
        page = httpx.get(f"http://127.0.0.1:{self.metrics_port}/metrics").text
        found = re.search(rf'^{metric}\{{worker="{re.escape(self.worker)}".*?\}} (\S+)', page, re.M)
        return -1.0 if found is None else float(found[1])


@contextmanager
def gateway(address: str, folder: Path) -> Iterator[Gateway]:
    """Before the gRPC door at that address. It would retry refusals at once, against our hints."""
    program = find("smg")
    port, metrics_port, worker = free_port(), free_port(), f"grpc://{address}"
    words = (
        *("launch", "--host", "127.0.0.1", "--port", str(port), "--worker-urls", worker),
        *("--disable-retries", "--prometheus-host", "127.0.0.1"),
        *("--prometheus-port", str(metrics_port), "--log-level", "error"),
    )
    environment = {**os.environ, "TOKIO_WORKER_THREADS": "1"}
    with (folder / "smg.log").open("w") as log:
        process = subprocess.Popen([program, *words], stdout=log, stderr=log, env=environment)
    url = f"http://127.0.0.1:{port}"
    client = OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0, timeout=WAIT)
    proxy = Gateway(url, metrics_port, worker, client)
    try:
        until(lambda: _routes(proxy, process), "smg has found its worker and its tokenizer", WAIT)
        yield proxy
    finally:
        proxy.pool.shutdown(wait=True)
        client.close()
        process.kill()  # politely asked, it lingers for seconds
        process.wait(WAIT)


def _routes(proxy: Gateway, process: "subprocess.Popen[bytes]") -> bool:
    """Whether it answers; it says 503 until it has a worker and that worker's tokenizer."""
    if process.poll() is not None:
        raise AssertionError(f"smg ended with {process.returncode}; see smg.log")
    try:
        models = httpx.get(f"{proxy.url}/v1/models", timeout=WAIT).json().get("data")
        if not models:
            return False
        body = {"model": models[0]["id"], "text": "hi"}
        answer = httpx.post(f"{proxy.url}/v1/tokenize", json=body, timeout=WAIT)
    except httpx.TransportError:
        return False
    return answer.status_code != 503


@pytest.fixture
def played(tmp_path: Path) -> Iterator[tuple[Gateway, Sidecar, PlayedEngine]]:
    """A sidecar of one slot and a queue of one, before an engine that only plays."""
    with PlayedEngine(tmp_path / "engine.sock") as engine:
        sidecar = Sidecar(tmp_path, "gate.in_flight_seqs=1", "gate.queue_requests=1")
        try:
            until(lambda: sidecar.look("/status")["state"] == "ready", "the engine is found")
            with gateway(sidecar.listeners["grpc"], tmp_path) as proxy:
                yield proxy, sidecar, engine
                engine.holds = False
                engine.release()
        finally:
            sidecar.kill()


def hold(look: Callable[[], dict[str, Any]], dispatched: int, queued: int) -> None:
    """Wait until so many are in the engine and so many wait at the gate."""

    def reached() -> bool:
        requests = look()["requests"]
        return (requests["dispatched"], requests["queued"]) == (dispatched, queued)

    until(reached, f"{dispatched} in the engine, {queued} queued", WAIT)


def test_the_real_engines_answers_are_those_of_its_own_door(
    service: Running, tmp_path: Path
) -> None:
    fields = {**ASK, "temperature": 0, "max_tokens": 12}
    with (
        gateway(service.listeners["grpc"], tmp_path) as proxy,
        OpenAI(base_url=f"{service.http}/v1", api_key="k", timeout=WAIT) as direct,
    ):
        expected = direct.chat.completions.create(model="default", **fields)
        plain = proxy.ask(**fields)
        assert plain.choices[0].message.content == expected.choices[0].message.content
        assert plain.choices[0].finish_reason == expected.choices[0].finish_reason
        usage, own = plain.usage, expected.usage
        assert own is not None
        counted = (usage.prompt_tokens, usage.completion_tokens)
        assert counted == (own.prompt_tokens, own.completion_tokens)
        parts = list(proxy.ask(**fields, stream=True))
        told = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
        assert told == plain.choices[0].message.content
        assert len(parts) > 3  # token by token, not all at once


def test_a_client_that_leaves_amid_a_stream_gives_its_slot_back(
    service: Running, tmp_path: Path
) -> None:
    with gateway(service.listeners["grpc"], tmp_path) as proxy:
        before = service.status()["requests"]["outcomes"]["cancelled"]
        stream = proxy.ask(max_tokens=1500, stream=True, extra_body={"ignore_eos": True})
        assert next(iter(stream)).choices
        stream.close()
        hold(service.status, 0, 0)
        assert service.status()["requests"]["outcomes"]["cancelled"] == before + 1


def test_refusals_and_hints_reach_the_client(
    played: tuple[Gateway, Sidecar, PlayedEngine],
) -> None:
    proxy, sidecar, engine = played
    engine.holds = True
    waiting = [proxy.later()]
    hold(lambda: sidecar.look("/status"), 1, 0)
    waiting.append(proxy.later())
    hold(lambda: sidecar.look("/status"), 1, 1)
    for stream in (False, True):
        with pytest.raises(RateLimitError) as caught:
            proxy.ask(stream=stream)
        assert re.search(
            r"limit queue_requests is 1 \[reason: queue_requests; request: \S+; "
            r"retry after \d+ ms\]",
            str(caught.value),
        )
    engine.holds = False
    engine.release()
    for each in waiting:
        assert each.result(WAIT).choices[0].finish_reason == "length"
    with pytest.raises(BadRequestError, match="reason: never_fits_context"):
        proxy.ask(max_tokens=4000)


def test_clients_that_leave_while_they_wait_give_their_places_back(
    played: tuple[Gateway, Sidecar, PlayedEngine],
) -> None:
    proxy, sidecar, engine = played
    engine.holds = True
    first = proxy.later()
    hold(lambda: sidecar.look("/status"), 1, 0)
    proxy.leave(0.3)
    hold(lambda: sidecar.look("/status"), 1, 0)
    engine.holds = False
    engine.release()
    first.result(WAIT)
    engine.holds = True
    proxy.leave(0.3)
    hold(lambda: sidecar.look("/status"), 0, 0)
    assert sidecar.look("/status")["requests"]["outcomes"]["cancelled"] == 2


def test_a_sidecar_before_another_speaks_it_to_both_sides(
    played: tuple[Gateway, Sidecar, PlayedEngine], tmp_path: Path
) -> None:
    _, inner, _ = played
    folder = tmp_path / "outer"
    folder.mkdir()
    outer = Sidecar(folder, f"backends.0.url=grpc://{inner.listeners['grpc']}")
    try:
        until(lambda: outer.look("/status")["state"] == "ready", "the engine is found")
        with gateway(outer.listeners["grpc"], folder) as proxy:
            answer = proxy.ask()
        assert (answer.choices[0].message.content, answer.usage.completion_tokens) == ("bbbb", 4)
        for each in (outer, inner):
            assert each.look("/status")["requests"]["outcomes"]["ok"] == 1
        page = httpx.get(f"{outer.listeners['http']}/metrics").text
        assert re.search(r"^surgetank_backend_up\{.*\} 1\.0$", page, re.M)
        (engine,) = outer.look("/backends")["backends"]
        assert (engine["maker"], engine["slots"], engine["model"]) == ("vllm-grpc", 8, "tiny")
    finally:
        outer.kill()


def test_it_is_told_our_load_as_it_changes(
    played: tuple[Gateway, Sidecar, PlayedEngine],
) -> None:
    proxy, sidecar, engine = played
    engine.holds = True
    waiting = [proxy.later()]
    hold(lambda: sidecar.look("/status"), 1, 0)
    waiting.append(proxy.later())
    until(lambda: proxy.told("smg_engine_waiting_requests") == 1, "one waits", WAIT)
    assert proxy.told("smg_engine_running_requests") == 1
    assert proxy.told("smg_kv_event_batches_total") >= 2  # pushed
    engine.holds = False
    engine.release()
    for each in waiting:
        each.result(WAIT)
    until(lambda: proxy.told("smg_engine_running_requests") == 0, "none runs", WAIT)
