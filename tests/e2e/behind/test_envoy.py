"""Behind the real Envoy, on the example configurations: admitted, refused with hints, given up."""

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from openai import InternalServerError, RateLimitError
from tests.e2e.behind.proxies import ASK, Proxied, leave_stream, proxied
from tests.e2e.behind.stub_engine import WAIT, StubEngine, stub_engine

pytestmark = pytest.mark.e2e
Start = Callable[..., Proxied]


@pytest.fixture
def engine() -> Iterator[StubEngine]:
    with stub_engine() as engine:
        yield engine


UNSEEN, SEEN, PICKER = "answer unseen", "answer seen", "picker"


@pytest.fixture(params=[UNSEEN, SEEN, PICKER])
def behind(engine: StubEngine, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Proxied]:
    """The ways in which bodies reach us."""
    picks = request.param == PICKER
    example = f"envoy/{'endpoint_picker' if picks else 'ext_proc'}.yaml"
    seen = "STREAMED" if request.param == SEEN else "NONE"
    change = ("response_body_mode: NONE", f"response_body_mode: {seen}")
    setting = f"envoy.picks_endpoint={str(picks).lower()}"
    with proxied(engine, tmp_path, example, command, setting, change=change) as proxy:
        yield proxy


def command(program: str, config: Path) -> list[str]:
    quiet = ["--concurrency", "1", "--log-level", "error", "--disable-hot-restart"]
    return [program, "-c", str(config), *quiet]


def test_it_is_admitted_and_counted(behind: Proxied) -> None:
    claims = {"x-smg-priority": "1", "x-gateway-destination-endpoint": "10.0.0.1:1"}
    answer = behind.ask(**claims)
    assert answer.choices[0].message.content == "hello"
    headers, body = behind.engine.seen[0]
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    assert "x-smg-priority" not in headers
    assert headers.get("x-gateway-destination-endpoint") != "10.0.0.1:1"
    behind.hold(0, 0)
    assert behind.outcomes() == {"ok": 1.0}


def test_a_stream_passes(behind: Proxied) -> None:
    with behind.client() as client:
        stream = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "hello"
    behind.hold(0, 0)
    assert behind.outcomes() == {"ok": 1.0}


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
    assert headers["content-type"] == "application/json"
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


def test_a_client_that_leaves_gives_its_slot_back(
    behind: Proxied, request: pytest.FixtureRequest
) -> None:
    behind.engine.free.clear()
    leave_stream(behind.url)
    assert behind.engine.gone.wait(WAIT)
    behind.hold(0, 0)
    unseen = UNSEEN in request.node.name
    assert behind.outcomes() == {"ok" if unseen else "cancelled": 1.0}


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


def test_an_engine_that_is_full_pushes_back_with_our_hints(behind: Proxied) -> None:
    behind.engine.status = 503
    with pytest.raises(RateLimitError) as caught:
        behind.ask()
    assert caught.value.response.headers["x-surgetank-reason"] == "engine_full"
    assert int(caught.value.response.headers["retry-after-ms"]) >= 50
    behind.hold(0, 0)


def test_without_a_sidecar_it_is_as_the_example_says(
    behind: Proxied, request: pytest.FixtureRequest
) -> None:
    behind.sidecar.kill()
    if PICKER in request.node.name:
        with pytest.raises(InternalServerError):
            behind.ask()
    else:
        assert behind.ask().choices[0].message.content == "hello"


def test_a_bad_body_is_refused_before_the_engine(behind: Proxied) -> None:
    with behind.client() as client:
        answer = client._client.post(f"{behind.url}/v1/chat/completions", content=b"[1]")
    assert answer.status_code == 400
    assert answer.headers["x-should-retry"] == "false"
    assert behind.engine.seen == []


def test_other_paths_pass(behind: Proxied, request: pytest.FixtureRequest) -> None:
    if PICKER in request.node.name:
        pytest.skip("only what is for the gate is given an endpoint")
    with behind.client() as client:
        assert [model.id for model in client.models.list()] == ["m"]
    assert behind.outcomes() == {}
