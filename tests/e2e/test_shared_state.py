"""Two real sidecars with one real Redis: quotas over both, overrides, losses, and their cost."""

import json
import socket
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from tests.admission.leases.redis_rig import RedisServer
from tests.control.sidecar_process import ASK, Sidecar, until
from tests.e2e.played_engine import PlayedEngine

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]

KEYS = {"acme": "sk-acme-0001", "bolt": "sk-bolt-0001", "free": "sk-free-0001"}
SLOTS = 8  # of acme, over both
RATE, BURST = 4.0, 1.0  # of bolt: requests a second, and seconds of them at once
FORGET = 3.0


class Member:
    """A sidecar, its engine, and requests to it that are kept open."""

    def __init__(self, folder: Path, redis: Path, stack: ExitStack) -> None:
        folder.mkdir()
        self.folder = folder
        self._redis = redis
        self.engine = stack.enter_context(PlayedEngine(folder / "engine.sock"))
        self.open: list[socket.socket] = []
        stack.callback(self.stop)
        self.start()

    def start(self) -> None:
        """Start the sidecar, and wait until it has met its engine."""
        keys = [{"key": key, "tenant": tenant} for tenant, key in KEYS.items()]
        settings = {
            "leases.url": f"unix://{self._redis}",
            "leases.sidecars": 2,
            "leases.term": 0.5,
            "leases.hold": 1.5,
            "leases.forget": FORGET,
            "leases.burst": BURST,
            "leases.tenants": f"{{acme={{concurrency={SLOTS}}},"
            f"bolt={{requests_per_minute={60 * RATE}}}}}",
            "tenants.keys": "[" + ",".join(_toml(key) for key in keys) + "]",
            "fleet.period": 0.1,
            "fleet.lease": 1.0,
            "gate.enforce": "false",  # an engine that holds looks stalled: quotas alone count here
            "log.level": "warning",
        }
        pairs = [f"{name}={value}" for name, value in settings.items()]
        self.sidecar = Sidecar(self.folder, *pairs)
        self.sidecar.until(("ready", 0))

    def stop(self) -> None:
        """Hang up, and end the sidecar."""
        for line in self.open:
            line.close()
        self.sidecar.kill()

    @property
    def mode(self) -> tuple[str, int]:
        """Where its shares come from, and how many sidecars it knows."""
        fleet = self.sidecar.look("/fleet")
        return fleet["mode"], fleet["sidecars"]

    def value(self, limit: str) -> float:
        """A limit as it holds here."""
        limits = self.sidecar.look("/limits")["limits"]
        return float(next(each["value"] for each in limits if each["name"] == limit))

    def hold(self, tenant: str) -> bool:
        """One request that the engine keeps; False when it was refused for the quota."""
        before, body = self.engine.held, json.dumps(ASK)
        url = urlsplit(self.sidecar.listeners["http"])
        line = socket.create_connection((url.hostname or "", url.port or 0))
        line.sendall(
            f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            f"authorization: Bearer {KEYS[tenant]}\r\ncontent-length: {len(body)}\r\n\r\n"
            f"{body}".encode()
        )
        line.settimeout(0.01)
        answer: list[bytes] = []

        def decided() -> bool:
            try:
                answer.append(line.recv(65536))
            except TimeoutError:
                return self.engine.held > before
            return True

        until(decided, "an answer")
        if answer:
            line.close()
            assert b" 429 " in answer[0]
            assert b'"reason":"tenant_quota"' in answer[0]
            return False
        self.open.append(line)
        return True

    def fill(self, tenant: str, slots: int) -> None:
        """Hold requests until so many are held here, for a share grows by being asked for."""
        until(lambda: self.hold(tenant) and self.engine.held >= slots, f"{slots} held")

    def let_go(self) -> None:
        """End the requests that are held."""
        for line in self.open:
            line.close()
        self.open.clear()
        until(lambda: self.engine.held == 0, "all ended")


def bearer(tenant: str) -> dict[str, str]:
    """The headers of that tenant's requests."""
    return {"authorization": f"Bearer {KEYS[tenant]}"}


def _toml(table: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in table.items()) + "}"


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with tempfile.TemporaryDirectory(prefix="redis-") as folder:  # a socket's path must be short
        server = RedisServer(Path(folder))
        server.start()
        yield server
        server.kill()


@pytest.fixture
def pair(redis: RedisServer) -> Iterator[tuple[Member, Member]]:
    """Two that have met."""
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="pair-") as folder:
        first, second = (Member(Path(folder) / name, redis.path, stack) for name in "ab")
        until(lambda: {first.mode, second.mode} == {("shared", 2)}, "both share")
        yield first, second


def test_quotas_hold_over_both_together(pair: tuple[Member, Member]) -> None:
    first, second = pair
    for member in pair:
        member.engine.holds = True
    first.fill("acme", SLOTS - 1)  # the other wants nothing, and keeps one for its first
    second.fill("acme", 1)
    assert not any(member.hold("acme") for member in pair for _ in range(5))
    assert (first.engine.held, second.engine.held) == (SLOTS - 1, 1)
    first.let_go()
    second.fill("acme", SLOTS - 1)
    assert first.engine.held + second.engine.held <= SLOTS
    second.let_go()
    for member in pair:
        member.engine.holds = False
    answers: list[tuple[int, str]] = []
    began, enough = time.monotonic(), threading.Event()

    def hammer(member: Member) -> None:
        url = f"{member.sidecar.listeners['http']}/v1/completions"
        with httpx.Client(timeout=30, headers=bearer("bolt")) as client:
            while not enough.is_set():
                answer = client.post(url, json=ASK)
                reason = "" if answer.status_code == 200 else answer.json()["error"]["reason"]
                answers.append((answer.status_code, reason))

    threads = [threading.Thread(target=hammer, args=(member,)) for member in pair]
    for thread in threads:
        thread.start()
    until(lambda: sum(status == 429 for status, _ in answers) > 40, "far beyond the quota")
    enough.set()
    for thread in threads:
        thread.join(30)
    window = time.monotonic() - began
    counts = Counter(answers)
    assert set(counts) == {(200, ""), (429, "tenant_quota")}
    assert counts[200, ""] <= RATE * window + RATE * BURST
    assert counts[200, ""] >= 0.5 * RATE * BURST


def test_keys_are_asked_for(pair: tuple[Member, Member]) -> None:
    for headers in ({}, {"authorization": "Bearer sk-nobody-1"}):
        answer = pair[0].sidecar.ask(headers)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
    status = pair[0].sidecar.look("/status")
    assert status["requests"]["outcomes"]["unauthenticated"] == 2


def test_an_override_and_a_policy_hold_at_both(
    pair: tuple[Member, Member],
) -> None:
    first, second = pair
    before = second.value("queue_requests")
    act = {"who": "ann", "why": "storm"}
    url = f"{first.sidecar.listeners['admin']}/limits/queue_requests"
    answer = httpx.put(url, json={"value": 9, "ttl": 600, **act}).raise_for_status()
    assert answer.json()["fleet"] is True
    until(lambda: second.value("queue_requests") == 9, "told")
    entry = second.sidecar.look("/journal")["entries"][-1]
    assert (entry["who"], entry["cause"], entry["after"]) == ("ann", "fleet", 9)
    assert entry["why"] == f"storm (told by {first.sidecar.look('/fleet')['name']})"
    leaders = {member.sidecar.look("/fleet")["leader"] for member in pair}
    assert len(leaders) == 1
    promote = f"{second.sidecar.listeners['admin']}/policies/static-queue/promote"
    httpx.post(promote, json={**act, "force": True, "fleet": True}).raise_for_status()
    until(
        lambda: first.sidecar.look("/policies/static-queue")["state"] == "live", "promoted for all"
    )
    second.sidecar.kill()  # its supervisor starts it again
    second.start()
    assert second.value("queue_requests") == 9
    until(lambda: second.sidecar.look("/fleet")["policy"] == "static-queue", "it hears of that too")
    url = f"{second.sidecar.listeners['admin']}/limits/queue_requests"
    httpx.request("DELETE", url, json=act).raise_for_status()
    until(lambda: first.value("queue_requests") == before, "told that it is over")


def test_the_share_of_one_that_died_comes_back(pair: tuple[Member, Member]) -> None:
    first, second = pair
    for member in pair:
        member.engine.holds = True
    first.fill("acme", 4)
    second.fill("acme", 4)
    assert first.engine.held + second.engine.held == SLOTS
    first.sidecar.kill()
    assert not second.hold("acme")  # it may still be using them
    second.fill("acme", SLOTS)
    assert second.mode == ("shared", 1)


def test_redis_lost_and_found_again(redis: RedisServer, pair: tuple[Member, Member]) -> None:
    first, second = pair
    for member in pair:
        member.engine.holds = True
    first.fill("acme", 6)
    redis.kill()
    until(lambda: first.mode[0] == second.mode[0] == "holding", "the loss is noticed")
    assert first.sidecar.look("/fleet")["failures"] > 0
    assert first.engine.held == 6  # what runs goes on
    first.let_go()
    until(lambda: first.hold("acme"), "it goes on with its last share")
    until(lambda: first.mode[0] == second.mode[0] == "alone", "the loss lasts")
    for member in pair:
        member.fill("acme", SLOTS // 2)
        assert not member.hold("acme")
    metrics = httpx.get(f"{first.sidecar.listeners['http']}/metrics").text
    assert 'surgetank_shared_state_mode{mode="alone"} 1' in metrics
    first.let_go()
    redis.start()
    until(lambda: {member.mode for member in pair} == {("shared", 2)}, "both rejoin")
    second.let_go()
    first.fill("acme", SLOTS - 1)


def test_a_frozen_redis_slows_no_request(redis: RedisServer, pair: tuple[Member, Member]) -> None:
    first = pair[0]
    url = f"{first.sidecar.listeners['http']}/v1/completions"

    def median(client: httpx.Client) -> float:
        """Seconds of one request in the middle of a hundred."""
        times = []
        for _ in range(100):
            began = time.monotonic()
            assert client.post(url, json=ASK).status_code == 200
            times.append(time.monotonic() - began)
        return statistics.median(times)

    with httpx.Client(timeout=30, headers=bearer("acme")) as client:
        median(client)  # warm
        calm = median(client)
        redis.freeze()
        until(lambda: first.mode[0] == "holding", "the loss is noticed")
        frozen = median(client)
        redis.thaw()
        until(lambda: first.mode == ("shared", 2), "it answers again")
    # One wait for Redis would be 20 ms, and a hundred requests would have met it a hundred times.
    assert frozen <= calm + 0.01, (calm, frozen)
