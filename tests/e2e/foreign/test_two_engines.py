"""Two real servers of another maker behind one gate: shared, drained, killed, taken back."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from tests.e2e.foreign.engines import LLAMA, Foreign
from tests.e2e.running import PATIENCE, Running, until

from surgetank.engine.model.locate import default_model

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(900)]

SLOW_START = "--set=routing.slow_start=0"


class Two:
    """The engines, called a and b, and the product before them."""

    def __init__(self, engines: dict[str, Foreign], service: Running) -> None:
        self.engines = engines
        self.service = service

    def looks(self) -> dict[str, dict[str, Any]]:
        """What `surgetank backends` tells, by name."""
        answer = httpx.get(f"{self.service.listeners['admin']}/backends", timeout=PATIENCE)
        return {each["name"]: each for each in answer.json()["backends"]}

    def ask(self, prompt: str) -> str:
        """One completion; the engine that made it."""
        answer = self.service.ask(prompt=prompt, max_tokens=4)
        assert answer.status_code == 200, answer.text
        told = httpx.get(
            f"{self.service.listeners['admin']}/explain/{answer.headers['x-request-id']}",
            timeout=PATIENCE,
        )
        return str(told.json()["backend"])

    def act(self, act: str, name: str) -> None:
        """Drain one, or undrain it."""
        url = f"{self.service.listeners['admin']}/backends/{name}/{act}"
        httpx.post(url, json={"who": "ann", "why": "a new driver"}).raise_for_status()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    if why := LLAMA.missing():
        pytest.skip(why)
    engines: dict[str, Foreign] = {}
    try:
        for name in ("a", "b"):
            engines[name] = Foreign(LLAMA, default_model(), tmp_path_factory.mktemp(name))
            engines[name].start()
        flags = [f"--backend={engine.url}" for engine in engines.values()]
        names = ["--set=backends.0.name=a", "--set=backends.1.name=b"]
        with Running(tmp_path_factory.mktemp("run"), *flags, *names, SLOW_START) as service:
            service.wait_for("ready")
            both = Two(engines, service)
            until(lambda: all(each["up"] for each in both.looks().values()), "both are found")
            yield both
    finally:
        for engine in engines.values():
            engine.kill()


def test_work_is_shared(two: Two) -> None:
    """Each runs one at a time: two at once go to one each."""
    with ThreadPoolExecutor(2) as pool:
        made = Counter(pool.map(two.ask, [f"{number} rivers" for number in range(8)]))
    assert made.total() == 8
    assert min(made["a"], made["b"]) >= 2


def test_prompts_that_begin_alike_go_to_one_engine(two: Two) -> None:
    assert len({two.ask("Once upon a time there was a river that ") for _ in range(4)}) == 1


def test_one_that_drains_gets_nothing_until_it_is_undrained(two: Two) -> None:
    two.act("drain", "a")
    assert {two.ask(f"{number} lakes") for number in range(4)} == {"b"}
    two.act("undrain", "a")
    until(lambda: two.looks()["a"]["state"] == "up", "it gets requests again")


def test_one_that_is_killed_costs_no_answer_and_is_taken_back(two: Two) -> None:
    two.engines["b"].kill()
    assert {two.ask(f"{number} seas") for number in range(6)} == {"a"}
    until(lambda: two.looks()["b"]["state"] == "down", "it is down")
    two.engines["b"].start()
    until(lambda: two.looks()["b"]["state"] == "up", "it is back")
    two.act("drain", "a")
    assert two.ask("one more sea") == "b"
    two.act("undrain", "a")
