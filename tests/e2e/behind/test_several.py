"""Behind a real proxy, before two engines: each request goes to the one that was chosen for it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.e2e.behind import test_envoy, test_nginx
from tests.e2e.behind.proxies import Proxied, proxied
from tests.e2e.behind.stub_engine import WAIT, StubEngine, stub_engine

pytestmark = pytest.mark.e2e
ENVOY, NGINX = "envoy/endpoint_picker.yaml", "nginx/auth_request.conf"
COMMANDS = {ENVOY: test_envoy.command, NGINX: test_nginx.command}
# What the example says of several engines, done.
CHANGES = {
    ENVOY: ("", ""),
    NGINX: ("http://engine;  # of several: proxy_pass ", ""),
}


@pytest.fixture
def other() -> Iterator[StubEngine]:
    with stub_engine() as engine:
        yield engine


@pytest.fixture(params=[ENVOY, NGINX])
def behind(other: StubEngine, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Proxied]:
    example: str = request.param
    more = ("backends.0.name=a", f"backends.1.url={other.url}", "envoy.picks_endpoint=true")
    change = CHANGES[example]
    with (
        stub_engine() as engine,
        proxied(engine, tmp_path, example, COMMANDS[example], *more, change=change) as proxy,
    ):
        yield proxy


def test_two_at_once_go_to_one_engine_each(behind: Proxied, other: StubEngine) -> None:
    """Each engine has one slot."""
    for engine in (behind.engine, other):
        engine.free.clear()
    answers = [behind.later(), behind.later()]
    behind.hold(2, 0)
    assert (len(behind.engine.seen), len(other.seen)) == (1, 1)
    for engine in (behind.engine, other):
        engine.free.set()
    for answer in answers:
        assert answer.result(WAIT).choices[0].message.content == "hello"
    behind.hold(0, 0)
    assert behind.outcomes() == {"ok": 2.0}


def test_an_engine_that_drains_gets_nothing_new(behind: Proxied, other: StubEngine) -> None:
    act = {"who": "ann", "why": "a new driver"}
    admin = behind.sidecar.listeners["admin"]
    httpx.post(f"{admin}/backends/a/drain", json=act).raise_for_status()
    for _ in range(3):
        assert behind.ask().choices[0].message.content == "hello"
    assert (len(behind.engine.seen), len(other.seen)) == (0, 3)
