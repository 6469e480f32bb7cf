"""Two real servers of another maker behind one gate: shared, drained, killed, taken back."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.e2e.foreign.engines import LLAMA
from tests.e2e.foreign.two import Two, two_of
from tests.e2e.running import until

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    if why := LLAMA.missing():
        pytest.skip(why)
    with two_of(LLAMA, tmp_path_factory.mktemp) as both:
        yield both


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
