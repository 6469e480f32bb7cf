"""A real sidecar before two engines, one of which fails in its way: clients notice little of it."""

import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from tests.control.sidecar_process import Sidecar, until
from tests.e2e.behind.stub_engine import WAIT, StubEngine, stub_engine
from tests.e2e.faults.plant import commands

from surgetank.control.cli import main

pytestmark = pytest.mark.e2e
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@dataclass
class Two:
    """Two engines, called a and b, behind one sidecar."""

    a: StubEngine
    b: StubEngine
    folder: Path
    sidecar: Sidecar = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """A sidecar to which both are up."""
        engines = [
            f"backends.{at}.{key}={value}"
            for at, (name, engine) in enumerate({"a": self.a, "b": self.b}.items())
            for key, value in (("name", name), ("url", engine.url))
        ]
        self.sidecar = Sidecar(
            self.folder, *engines, "routing.slow_start=0", "routing.affinity_characters=0"
        )
        until(lambda: all(each["up"] for each in self.looks().values()), "both are found")

    def looks(self) -> dict[str, dict[str, Any]]:
        """What `surgetank backends` tells, by name."""
        return {each["name"]: each for each in self.sidecar.look("/backends")["backends"]}

    def is_in(self, **states: str) -> None:
        """Wait until the engines are in these states."""
        until(lambda: {name: self.looks()[name]["state"] for name in states} == states, f"{states}")

    def drain(self, name: str) -> None:
        """By the admin API, as an operator does."""
        url = f"{self.sidecar.listeners['admin']}/backends/{name}/drain"
        httpx.post(url, json={"who": "ann", "why": "a new driver"}).raise_for_status()

    def stream(self, client: httpx.Client) -> Iterator[str]:
        """The lines of a stream that has begun."""
        url = f"{self.sidecar.listeners['http']}/v1/chat/completions"
        request = client.build_request("POST", url, json={**ASK, "stream": True})
        lines = client.send(request, stream=True).iter_lines()
        assert "hel" in next(lines)
        return lines

    def statuses(self, count: int) -> set[int]:
        """Of so many completions, one after the other, each of something else."""
        url = f"{self.sidecar.listeners['http']}/v1/completions"
        asks = (
            {"model": "default", "prompt": f"{number}", "max_tokens": 4} for number in range(count)
        )
        return {httpx.post(url, json=ask, timeout=WAIT).status_code for ask in asks}


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    with stub_engine() as a, stub_engine() as b:
        both = Two(a, b, tmp_path)
        try:
            yield both
        finally:
            both.sidecar.kill()


def test_both_get_requests(two: Two) -> None:
    assert two.statuses(8) == {200}
    assert (len(two.a.seen), len(two.b.seen)) == (4, 4)


def test_one_that_is_slow_gets_less(two: Two) -> None:
    two.a.slowness = 0.2
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: two.sidecar.ask().status_code, range(30)))
    assert set(answers) == {200}
    assert len(two.b.seen) >= 2 * len(two.a.seen) >= 2


def test_one_that_is_full_costs_nobody_an_answer(two: Two) -> None:
    """Its 429 moves the request on, and is no fault; few go by way of it, however idle it is."""
    two.a.status = 429
    assert two.statuses(20) == {200}
    assert len(two.a.seen) < 10
    look = two.looks()["a"]
    assert look["state"] == "up"
    assert look["routed"]["moved_away"] == len(two.a.seen) == look["pushbacks"] > 0
    assert (look["ejections"], look["faults"]) == (0, 0)


def test_one_that_fails_is_left_out_and_comes_back(two: Two) -> None:
    two.a.status = 500
    assert two.statuses(20) == {200, 500}
    assert len(two.a.seen) == 5  # routing.eject_after
    look = two.looks()["a"]
    assert (look["state"], look["ejections"]) == ("ejected", 1)
    assert 0 < look["back_in"] <= 30
    assert two.statuses(4) == {200}
    assert len(two.a.seen) == 5


@pytest.mark.parametrize(
    ("runbook", "status", "state"),
    [("BackendLeftOut", 500, "ejected"), ("BackendRestarting", 200, "up")],
)
def test_the_runbook_for_it_can_be_followed(
    two: Two, monkeypatch: pytest.MonkeyPatch, runbook: str, status: int, state: str
) -> None:
    two.a.status = status
    two.statuses(12)
    two.is_in(a=state, b="up")
    monkeypatch.setenv("SURGETANK_URL", two.sidecar.listeners["admin"])

    def states_after(section: str) -> list[str]:
        states = []
        for command in commands(runbook, section):
            words = shlex.split(command.replace("NAME", "a"))[1:]
            done = CliRunner().invoke(main, words, input="", catch_exceptions=False)
            assert done.exit_code == 0, f"$ {command}\n{done.output}"
            states.append(two.looks()["a"]["state"])
        return states

    assert set(states_after("Diagnosis")) == {state}
    assert states_after("Mitigation") == [state, "draining", state]


def test_one_that_dies_costs_no_new_request(two: Two) -> None:
    two.a.dead = True
    assert two.statuses(8) == {200}
    two.is_in(a="down", b="up")
    two.a.dead = False
    two.is_in(a="up", b="up")


def test_what_one_has_begun_to_answer_ends_with_it_and_the_other_goes_on(two: Two) -> None:
    for engine in (two.a, two.b):
        engine.free.clear()
    with httpx.Client(timeout=WAIT) as client:
        streams = [two.stream(client) for _ in range(2)]
        assert (len(two.a.seen), len(two.b.seen)) == (1, 1)
        two.a.dead = True
        two.b.free.set()
        said = ["".join(lines) for lines in streams]
    assert sorted(('"lo"' in each, "engine_lost" in each) for each in said) == [
        (False, True),
        (True, False),
    ]


def test_one_that_falls_silent_in_a_stream_gets_no_more(two: Two) -> None:
    two.a.free.clear()
    with httpx.Client(timeout=WAIT) as client:
        streams = [two.stream(client)]
        while not two.a.seen:
            streams.append(two.stream(client))
        before = len(two.b.seen)
        assert two.statuses(6) == {200}
        assert (len(two.a.seen), len(two.b.seen) - before) == (1, 6)


def test_both_full_is_one_refusal_with_our_hint(two: Two) -> None:
    two.a.status = two.b.status = 503
    answer = two.sidecar.ask()
    assert answer.status_code == 429
    assert answer.headers["x-surgetank-reason"] == "engine_full"
    assert int(answer.headers["retry-after-ms"]) >= 50
    assert (len(two.a.seen), len(two.b.seen)) == (1, 1)


def test_one_that_drains_gets_nothing_also_after_a_crash_of_the_sidecar(two: Two) -> None:
    two.drain("a")
    assert two.statuses(4) == {200}
    assert (len(two.a.seen), len(two.b.seen)) == (0, 4)
    two.sidecar.kill()
    two.start()
    assert two.looks()["a"]["drain"]["who"] == "ann"
    assert two.statuses(4) == {200}
    assert (len(two.a.seen), len(two.b.seen)) == (0, 8)


def test_one_with_another_model_gets_nothing(two: Two) -> None:
    two.a.dead = True
    two.is_in(a="down")
    two.a.model, two.a.dead = "another", False
    two.is_in(a="other_model", b="up")
    assert two.statuses(4) == {200}
    assert len(two.a.seen) == 0
