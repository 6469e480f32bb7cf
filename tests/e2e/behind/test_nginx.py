"""Behind the real nginx, by its auth_request: admitted, refused with hints, given up."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from openai import InternalServerError, RateLimitError
from tests.e2e.behind.proxies import ASK, Proxied, leave_stream, proxied
from tests.e2e.behind.stub_engine import WAIT, StubEngine, stub_engine

pytestmark = pytest.mark.e2e


@pytest.fixture
def engine() -> Iterator[StubEngine]:
    with stub_engine() as engine:
        yield engine


@pytest.fixture
def behind(engine: StubEngine, tmp_path: Path) -> Iterator[Proxied]:
    with proxied(engine, tmp_path, "nginx/auth_request.conf", command) as proxy:
        yield proxy


def command(program: str, config: Path) -> list[str]:
    return [program, "-p", str(config.parent), "-c", str(config), "-e", "stderr"]


def test_it_is_admitted_and_released_at_its_end(behind: Proxied) -> None:
    for _ in range(2):
        assert behind.ask().choices[0].message.content == "hello"
        behind.hold(0, 0)
    assert behind.outcomes() == {"ok": 2.0}
    headers, _ = behind.engine.seen[0]
    assert len(headers["x-request-id"]) == 32


def test_what_waits_goes_on_and_what_is_too_much_gets_our_hints(behind: Proxied) -> None:
    behind.engine.free.clear()
    first = behind.later()
    behind.hold(1, 0)
    second = behind.later()
    behind.hold(1, 1)
    assert len(behind.engine.seen) == 1
    with pytest.raises(RateLimitError) as caught:
        behind.ask()
    headers = caught.value.response.headers
    assert headers["x-surgetank-reason"] == "queue_requests"
    assert headers["x-should-retry"] == "true"
    assert int(headers["retry-after-ms"]) >= 50
    assert int(headers["retry-after"]) >= 1
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["limit_name"] == "queue_requests"
    over = behind.refused()
    assert (over.status_code, over.type, over.error_code) == (
        529,
        "overloaded_error",
        "queue_requests",
    )
    assert over.response.headers["x-should-retry"] == "true"
    behind.engine.free.set()
    for each in (first, second):
        assert each.result(WAIT).choices[0].message.content == "hello"
    behind.hold(0, 0)
    assert behind.outcomes() == {"ok": 2.0, "overload": 2.0}


def test_a_client_that_leaves_gives_its_slot_back(behind: Proxied) -> None:
    behind.engine.free.clear()
    leave_stream(behind.url)
    assert behind.engine.gone.wait(WAIT)
    behind.hold(0, 0)


def test_a_client_that_leaves_the_queue_gives_its_place_back(behind: Proxied) -> None:
    behind.engine.free.clear()
    first = behind.later()
    behind.hold(1, 0)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{behind.url}/v1/chat/completions", json=ASK, timeout=0.3)
    behind.hold(1, 0)
    behind.engine.free.set()
    first.result(WAIT)
    behind.hold(0, 0)
    assert len(behind.engine.seen) == 1


def test_an_engine_that_is_full_pushes_back(behind: Proxied) -> None:
    behind.engine.status = 503
    with pytest.raises(InternalServerError):
        behind.ask()
    behind.hold(0, 0)
    assert behind.outcomes() == {"overload": 1.0}


def test_without_a_sidecar_every_request_goes_on(behind: Proxied) -> None:
    behind.sidecar.kill()
    assert behind.ask().choices[0].message.content == "hello"


def test_other_paths_pass_and_the_question_itself_is_not_for_clients(behind: Proxied) -> None:
    with behind.client() as client:
        assert [model.id for model in client.models.list()] == ["m"]
    assert behind.outcomes() == {}
    for path in ("/surgetank/admit", "/release"):
        assert httpx.get(f"{behind.url}{path}").status_code == 404
