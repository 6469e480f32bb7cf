"""`surgetank steps | kv | stacks` on a recorded ring: through the admin API, and without it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from fastapi.testclient import TestClient
from tests.control.service import PlayedService
from tests.fakes import step_record, tiny_card

from surgetank.control.api import create_app
from surgetank.control.cli import main
from surgetank.control.inspection import Inspection
from surgetank.control.stepviews import binding, dominated_by
from surgetank.engine.ring import RingWriter, ring_path, writer_of
from surgetank.engine.stacks import StackFile, stacks_path
from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.steprecord import PREEMPTIONS, StepRecord, tally
from surgetank.telemetry.vocabulary import PreemptionKind, PreemptionReason, Priority

NOWHERE = "http://127.0.0.1:9"
SLOW = step_record(
    step=7,
    at=107.25,
    forward=0.095,
    prefill_tokens=63,
    prefill_seqs=1,
    slots_no_work=0,
    slots_blocked_kv=3,
    waiting=(0, 3, 1, 0),
    kv_used=40,
    kv_free=22,
    kv_stored_tokens=480,
    kv_held=(0, 10, 30, 0),
    prefix_hit_tokens=30,
    prefix_miss_tokens=70,
    preemptions=tally(
        PREEMPTIONS, [(PreemptionKind.RECOMPUTE, PreemptionReason.KV, Priority.BATCH)]
    ),
    preempted_tokens=20,
    allocation_failures=1,
    operators=(0.06, 0.02, 0.005, 0.002, 0.0, 0.01),
)


@pytest.fixture
def socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where an engine died after ten steps, the seventh of them slow."""
    path = tmp_path / "engine.sock"
    monkeypatch.setenv("SURGETANK_ENGINE__SOCKET", str(path))
    monkeypatch.setenv("SURGETANK_URL", NOWHERE)
    writer = writer_of(tiny_card(kv_block_size=16, kv_blocks=64), ManualClock(now=50.0, epoch=1e9))
    with RingWriter(ring_path(path), 64, writer) as ring:
        for step in range(1, 11):
            kept = msgspec.structs.replace(SLOW, at=107.25)
            ring.write(kept if step == 7 else step_record(step=step, at=100.0 + step))
        newest = msgspec.structs.replace(SLOW, step=11, forward=0.015, preemptions=EMPTY, at=111.0)
        ring.write(newest)
    return path


EMPTY = tally(PREEMPTIONS, ())


@pytest.fixture
def api(socket: Path) -> Iterator[TestClient]:
    service = PlayedService()
    service.inspection = Inspection(socket)
    with TestClient(create_app(service), base_url="http://127.0.0.1") as client:
        yield client


Ask = Callable[..., Result]


@pytest.fixture
def ask(socket: Path) -> Ask:
    """A command with no admin API to be reached."""
    return lambda *arguments: CliRunner().invoke(main, arguments)


def as_json(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_steps_of_a_dead_engine_are_a_table(ask: Ask) -> None:
    result = ask("steps", "--last", "3")
    assert result.exit_code == 0, result.output
    first, header, *rows = result.stdout.splitlines()
    assert first == "engine 1 (tiny), has ended; step 11"
    assert header.split()[:3] == ["step", "at", "took"]
    assert [row.split()[0] for row in rows] == ["9", "10", "11"]
    assert " ".join(rows[0].split()[2:]) == "0.02 s 1 decode forward 75% 0 1 0 60 0 no_work"


def test_slow_steps_say_what_bound_them_and_what_took_their_time(ask: Ask) -> None:
    answer = as_json(ask("steps", "--slow", "--json"))
    assert answer["median_seconds"] == pytest.approx(0.02)
    (step,) = answer["steps"]
    assert (step["step"], step["kind"], step["binding"]) == (7, "mixed", "blocked_kv")
    assert step["at"] == pytest.approx(1e9 + 57.25)
    assert step["dominated_by"] == {
        "what": "attention",
        "seconds": 0.06,
        "ratio": pytest.approx(0.6),
    }
    assert step["operators"]["gemm"] == 0.02
    assert step["preemptions"] == {"recompute kv batch": 1}
    assert step["waiting"] == {"critical": 0, "default": 3, "batch": 1, "sheddable": 0}
    table = ask("steps", "--slow").stdout
    assert "attention 60%" in table
    assert table.splitlines()[-1].split()[-1] == "blocked_kv"


def test_the_admin_api_tells_the_same(api: TestClient, ask: Ask) -> None:
    assert api.get("/steps?slow=true").json() == as_json(ask("steps", "--slow", "--json"))
    assert [each["step"] for each in api.get("/steps?last=2").json()["steps"]] == [10, 11]
    assert api.get("/kv").json() == as_json(ask("kv", "--json"))
    assert api.get("/steps?last=0").status_code == 422


def test_the_kv_pool(ask: Ask, socket: Path) -> None:
    answer = as_json(ask("kv", "--json"))
    assert answer["blocks"] == {"used": 40, "cached": 2, "free": 22}
    assert answer["fragmentation"] == pytest.approx(1 - 480 / (40 * 16))
    assert answer["hit_ratio"] == pytest.approx(0.3)
    assert answer["preemptions"] == {"recompute kv batch": 1}
    holders = [(each["priority"], each["blocks"]) for each in answer["holders"]]
    assert holders == [("batch", 30), ("default", 10), ("critical", 0), ("sheddable", 0)]
    table = ask("kv", "--file", str(ring_path(socket))).stdout
    lines = [line.split() for line in table.splitlines()]
    assert ["blocks", "used", "40", "(62.5%)"] in lines
    assert "30.0% of 200 tokens" in table


def test_before_the_first_step_the_pool_is_empty(ask: Ask, socket: Path) -> None:
    with RingWriter(ring_path(socket), 64, writer_of(tiny_card(), ManualClock())):
        answer = as_json(ask("kv", "--json"))
        assert answer["engine"]["alive"]
        assert answer["blocks"]["used"] == 0
        assert (answer["fragmentation"], answer["hit_ratio"]) == (None, None)
        steps = ask("steps")
        assert "no step among those kept" in steps.stdout
        assert "surgetank steps --file" in steps.stdout  # those of the engine before


def test_without_api_and_ring_the_service_is_unreachable(ask: Ask, socket: Path) -> None:
    ring_path(socket).unlink()
    result = ask("steps", "--json")
    assert result.exit_code == 3
    error = json.loads(result.stdout)["error"]
    assert error["code"] == "unreachable"
    assert f"no admin API at {NOWHERE}" in error["message"]
    assert "engine.steps: No such file" in error["message"]


def test_an_api_without_a_ring_says_so(api: TestClient, socket: Path) -> None:
    ring_path(socket).unlink()
    answer = api.get("/kv")
    assert answer.status_code == 503
    assert "engine.steps: No such file" in answer.json()["error"]["message"]


def test_a_file_that_is_no_ring(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"x")
    result = ask("steps", "--file", str(tmp_path / "other"))
    assert result.exit_code == 1
    assert "other is not a step ring" in result.stderr


def test_stacks_of_the_one_that_lives(ask: Ask, api: TestClient, socket: Path) -> None:
    with StackFile(stacks_path(socket, "sidecar"), "sidecar"):
        for answer in (as_json(ask("stacks", "--json")), api.get("/stacks").json()):
            engine, sidecar = answer["processes"]
            assert "no process offers its stacks" in engine["error"]
            assert "test_stacks_of_the_one_that_lives" in sidecar["text"]
        assert "== engine: no process offers its stacks" in ask("stacks").stdout
    result = ask("stacks")
    assert result.exit_code == 3
    assert "sidecar.stacks" in result.stderr


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "no_work"),
        ({"slots_no_work": 0, "slots_filled": 4}, "filled"),
        ({"slots_no_work": 2, "slots_blocked_limit": 1}, "blocked_limit"),
        ({"slots_blocked_token_budget": 1, "slots_blocked_kv": 2}, "blocked_kv"),
    ],
)
def test_the_binding_reason(changes: dict[str, int], said: str) -> None:
    assert binding(step_record(**changes)) == said


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (step_record(), "forward"),
        (step_record(schedule=0.5), "schedule"),
        (step_record(operators=(0.001, 0.01, 0.001, 0.002, 0.0, 0.003)), "gemm"),
        (step_record(emit=0.5, operators=(0.001, 0.01, 0.001, 0.002, 0.0, 0.003)), "emit"),
    ],
)
def test_what_took_most_of_a_step(record: StepRecord, said: str) -> None:
    assert dominated_by(record).what == said
