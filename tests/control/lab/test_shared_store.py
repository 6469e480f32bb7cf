"""The lab's likeness of the leases' script against the script itself, in a real redis-server."""

import random
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.admission.leases.redis_rig import RedisServer

from surgetank.admission.leases.link import Link, Script
from surgetank.admission.leases.script import LEAVE, RENEW
from surgetank.control.lab.shared_store import SharedStore
from surgetank.telemetry.clock import ManualClock

_TIME = "redis.call('TIME')"
ON_TIME = Script(RENEW.replace(_TIME, "{ARGV[#ARGV - 1], ARGV[#ARGV]}"))  # at a given time
GOODBYE = Script(LEAVE)
ROWS = Script("return redis.call('HGETALL', KEYS[1])")
LEFT = Script("return redis.call('PTTL', KEYS[1])")
FLUSH = Script("return redis.call('FLUSHALL')")
SIDECARS = "{lab}:sidecars"
LIMITS = ("{lab}:limit:a:tokens", "{lab}:limit:a:concurrency", "{lab}:limit::retry_budget")
HOLD, FORGET = 11.0, 60.0  # seconds


class Both:
    """The same questions to both; every answer and all memory must be equal."""

    def __init__(self, link: Link) -> None:
        self.clock = ManualClock()
        self.store = SharedStore(self.clock)
        self.link = link

    async def renew(self, who: str, number: int, known: int, wishes: dict[str, list[int]]) -> None:
        keys, times = [SIDECARS, *wishes], [round(each * 1e6) for each in (HOLD, FORGET)]
        args: list[str | int] = [who, number, known, *times]
        args += (wish for five in wishes.values() for wish in five)
        now = int(self.clock.wall() * 1e6)
        theirs = await self.link.run(ON_TIME, keys, [*args, now // 10**6, now % 10**6])
        assert self.store.run(Script(RENEW), keys, args) == theirs

    async def leave(self, who: str) -> None:
        keys = [SIDECARS, *LIMITS]
        await self.link.run(GOODBYE, keys, [who])
        self.store.run(GOODBYE, keys, [who])

    async def flush(self) -> None:
        await self.link.run(FLUSH, [], [])
        self.store.forget()

    async def compare(self) -> None:
        for key in (SIDECARS, *LIMITS):
            flat = [each.decode() for each in await self.link.run(ROWS, [key], [])]
            theirs = dict(zip(flat[::2], flat[1::2], strict=True))
            ours = self.store.memory.get(key, {})
            assert {name: ":".join(map(str, row)) for name, row in ours.items()} == theirs


@pytest.fixture
async def both() -> AsyncIterator[Both]:
    with tempfile.TemporaryDirectory(prefix="redis-") as folder:  # a socket's path must be short
        server = RedisServer(Path(folder))
        server.start()
        link = Link(f"unix://{server.path}", timeout=1.0)
        yield Both(link)
        await link.close()
        server.kill()


def wish(rng: random.Random) -> list[int]:
    """Total, want, held, earned, spare; often nothing, and sometimes odd numbers."""

    def some(most: float, none: float = 0.3) -> int:
        return 0 if rng.random() < none else rng.randrange(int(most))

    total = rng.choice([1, 7, 8_000_000, 100_000_000, rng.randrange(1, 10**9)])
    spare = rng.choice([0, 0, 1_000_000])
    return [total, some(2 * total), some(1.2 * total + 1), some(total, 0.7), spare]


@pytest.mark.e2e
@pytest.mark.parametrize("seed", range(6))
async def test_the_likeness_answers_and_remembers_as_the_script(both: Both, seed: int) -> None:
    assert ON_TIME.text.count("ARGV[#ARGV]") == 1  # the script still asks for the time, once
    rng, asked = random.Random(seed), dict.fromkeys("pqrs", 0)
    for _ in range(250):
        who = rng.choice("pqrs")
        match rng.choices(["ask", "again", "leave", "flush"], [90, 5, 4, 1])[0]:
            case "leave":
                await both.leave(who)
            case "flush":
                await both.flush()
            case what:
                asked[who] += what == "ask"
                limits = rng.sample(LIMITS, rng.randint(0, 3))
                wishes = {limit: wish(rng) for limit in limits}
                await both.renew(who, max(1, asked[who]), rng.randint(1, 6), wishes)
        await both.compare()
        both.clock.advance(
            rng.choices([0.0, 0.3, HOLD / 2, HOLD + 1, FORGET], [3, 8, 2, 1, 0.3])[0]
        )


@pytest.mark.e2e
async def test_what_is_not_asked_for_lasts_as_long(both: Both) -> None:
    await both.renew("p", 1, 1, {LIMITS[0]: [100, 50, 0, 0, 0]})
    now = int(both.clock.wall() * 1000)
    for key in (SIDECARS, LIMITS[0]):
        lasts = both.store.lasts_until[key] - now
        assert lasts == 2 * FORGET * 1000
        left = await both.link.run(LEFT, [key], [])
        assert lasts - 30_000 < left <= lasts


def test_what_has_expired_is_as_if_it_had_never_been() -> None:
    clock = ManualClock()
    store = SharedStore(clock)
    args: list[str | int] = ["p", 1, 3, 11_000_000, 60_000_000, 90, 90, 0, 0, 0]
    assert store.run(Script(RENEW), [SIDECARS, LIMITS[0]], args) == [3, 30, 90]
    clock.advance(121.0)
    assert store.run(Script(RENEW), [SIDECARS, LIMITS[0]], args) == [3, 30, 90]
