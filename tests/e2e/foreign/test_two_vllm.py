"""Two real vLLM servers behind one gate: one is killed under load, and no answer is lost."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from tests.e2e.foreign.engines import VLLM
from tests.e2e.foreign.two import Two, two_of
from tests.e2e.running import until

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(1800)]

SETTINGS = (  # both are told to run four at once; on a busy machine all may wait
    "--set=backends.0.max_num_seqs=4",
    "--set=backends.1.max_num_seqs=4",
    "--set=slo.ttft=600",
)
CALLERS, CALLS = 12, 36
TOKENS = 24


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    if why := VLLM.missing():
        pytest.skip(why)
    with two_of(VLLM, tmp_path_factory.mktemp, *SETTINGS) as both:
        yield both


def test_both_are_known_for_what_they_are(two: Two) -> None:
    looks = two.looks()
    assert [look["maker"] for look in looks.values()] == ["vllm", "vllm"]
    assert [look["slots"] for look in looks.values()] == [4, 4]
    assert [look["restarts"] for look in looks.values()] == [0, 0]


def test_one_killed_under_load_costs_no_answer(two: Two) -> None:
    """Plain answers: until they are whole, their clients have heard nothing, and all may move."""
    ask = partial(two.ask, tokens=TOKENS)
    with ThreadPoolExecutor(CALLERS) as pool:
        answers = [pool.submit(ask, f"{number} rivers") for number in range(CALLS)]
        until(lambda: two.looks()["b"]["running"] > 1, "it has work")
        two.engines["b"].kill()
        made = Counter(answer.result() for answer in answers)
    assert made.total() == CALLS
    assert made["a"] >= CALLS // 2
    looks = two.looks()
    assert looks["b"]["state"] == "down"
    assert looks["b"]["routed"]["moved_away"] > 1
    assert (looks["a"]["restarts"], looks["a"]["ejections"]) == (0, 0)


def test_the_one_that_was_started_again_is_taken_back(two: Two) -> None:
    two.engines["b"].start()
    until(lambda: two.looks()["b"]["state"] == "up", "it is back")
    assert two.looks()["b"]["restarts"] == 1
    with ThreadPoolExecutor(CALLERS) as pool:
        made = Counter(pool.map(two.ask, [f"{number} lakes" for number in range(16)]))
    assert made.total() == 16
    assert min(made["a"], made["b"]) >= 3
