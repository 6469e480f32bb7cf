"""Redis frozen, killed, restarted, flushed, cut off: nobody waits, nobody takes more."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from tests.admission.leases.redis_rig import Line, RedisServer, Side, settings

from surgetank.admission.leases.quotas import Mode, Quota, Taken
from surgetank.telemetry.clock import ManualClock, SystemClock

TOKENS = "a:tokens_per_minute"
RATE = 100.0
BURST = 1000.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def sides(line: Line, clock: ManualClock) -> AsyncIterator[list[Side]]:
    """Three that have met and want all of tenant a's tokens."""
    sides = [Side(settings(line.url), clock, seed) for seed in range(3)]
    for _ in range(4):
        for side in sides:
            crowd(side)
            await side.renew()
    yield sides
    for side in sides:
        await side.link.close()


def take(side: Side, tokens: float) -> bool:
    """Whether tenant a gets so many tokens at that sidecar."""
    return isinstance(side.quotas.take("a", {Quota.TOKENS: tokens}), Taken)


def crowd(side: Side) -> float:
    """Tokens that tenant a gets there when it asks for more than there are."""
    return sum(50 * take(side, 50) for _ in range(40))


async def load(sides: list[Side], clock: ManualClock, seconds: float) -> float:
    """Tokens that all get while each asks for as many as there are."""
    used = 0.0
    for _ in range(round(seconds * 10)):
        for side in sides:
            while take(side, 10):
                used += 10
        clock.advance(0.1)
    return used


async def test_without_redis_the_shares_go_on_and_then_an_equal_part(
    sides: list[Side], server: RedisServer, clock: ManualClock
) -> None:
    server.kill()
    shares = [side.share(TOKENS) for side in sides]
    modes = []
    used = 0.0
    clock.advance(0.01)
    for _ in range(30):
        used += await load(sides, clock, 1.0)
        await asyncio.gather(*(side.renew() for side in sides))
        modes.append(sides[0].quotas.mode)
        if modes[-1] is Mode.HOLDING:
            assert [side.share(TOKENS) for side in sides] == shares
    assert modes == [Mode.HOLDING] * 10 + [Mode.ALONE] * 20
    assert [side.share(TOKENS) for side in sides] == [pytest.approx(RATE / 3)] * 3
    assert 0.95 * RATE * 30 <= used <= 1.0 * RATE * 30 + BURST


async def test_a_restarted_redis_is_joined_again(
    sides: list[Side], server: RedisServer, clock: ManualClock
) -> None:
    server.kill()
    used = await load(sides, clock, 20.0)
    await asyncio.gather(*(side.renew() for side in sides))
    assert sides[0].quotas.mode is Mode.ALONE
    server.start()
    for _ in range(5):
        for side in sides:
            await side.renew()
            assert sum(each.share(TOKENS) for each in sides) <= 1.2 * RATE
        used += await load(sides, clock, 0.2)
    assert {side.quotas.mode for side in sides} == {Mode.SHARED}
    assert sum(side.share(TOKENS) for side in sides) == pytest.approx(RATE)
    assert used <= RATE * 21 + BURST


async def test_killed_under_load_nobody_waits_or_takes_more(
    server: RedisServer, line: Line
) -> None:
    clock = SystemClock()
    fast = settings(line.url, timeout=0.02, term=0.2, burst=1)
    sides = [Side(fast, clock, n) for n in range(3)]
    for side in sides:
        await side.renew()
    tasks = [asyncio.create_task(side.renewer.run()) for side in sides]
    began, used, waits, killed = clock.monotonic(), 0.0, [], False
    while (passed := clock.monotonic() - began) < 0.9:
        if passed > 0.3 and not killed:
            server.kill()
            killed = True
        for side in sides:
            asked = time.perf_counter()
            used += 10 * take(side, 10)
            waits.append(time.perf_counter() - asked)
        await asyncio.sleep(0.001)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [side.quotas.mode for side in sides] == [Mode.HOLDING] * 3
    assert sorted(waits)[int(0.99 * len(waits))] < 0.05
    assert used <= 1.2 * (RATE * passed + RATE)  # a second's worth at once
    for side in sides:
        await side.link.close()


async def test_a_frozen_redis_costs_the_renewal_its_timeout_and_nobody_else(
    sides: list[Side], line: Line
) -> None:
    side = sides[0]
    side.link._timeout = 0.02
    line.freeze()
    asked = time.monotonic()
    renewal = asyncio.create_task(side.renewer.renew())
    await asyncio.sleep(0)
    take(side, 1)
    assert not renewal.done()
    assert await renewal is False
    assert time.monotonic() - asked < 1.0  # redis-py alone would have tried for seconds
    assert side.renewer.failures == 1
    line.thaw()
    side.link._timeout = 0.5
    await side.renew()
    assert side.renewer.failures == 1


async def test_flushed_scripts_are_sent_again(sides: list[Side], server: RedisServer) -> None:
    assert server.command("SCRIPT", "FLUSH") == b"+OK\r\n"
    for side in sides:
        await side.renew(2)
    assert [side.renewer.failures for side in sides] == [0, 0, 0]
    assert server.calls("eval") == 2  # once at the very first, once more now


async def test_a_lost_answer_is_not_counted_twice(
    sides: list[Side], server: RedisServer, line: Line
) -> None:
    first = sides[0]
    line.loses_answers = True
    first.link._timeout = 0.05
    before = first.renewer.failures
    row = server.command("HGET", "{surgetank}:limit:" + TOKENS, first.renewer.name)
    for _ in range(3):
        await first.renew()  # Redis does it, and nobody hears
    line.loses_answers = False
    assert first.renewer.failures == before + 3
    again = server.command("HGET", "{surgetank}:limit:" + TOKENS, first.renewer.name)
    assert int(again.split(b":")[2]) == int(row.split(b":")[2])  # the bound is what it was
    first.link._timeout = 0.5
    for side in sides:
        await side.renew()
    assert sum(side.share(TOKENS) for side in sides) == pytest.approx(RATE)


async def test_a_command_that_was_stuck_changes_nothing_any_more(
    sides: list[Side], server: RedisServer, line: Line
) -> None:
    first = sides[0]
    first.link._timeout = 0.02
    line.freeze()
    await first.renew()  # stuck on the old connection
    direct = Side(settings(f"unix://{server.path}"), first.quotas._clock)
    first.renewer._link = direct.link
    await first.renew()
    name = "{surgetank}:limit:" + TOKENS
    row = server.command("HGET", name, first.renewer.name)
    calls = server.calls("evalsha")
    line.thaw()
    for _ in range(1000):
        await asyncio.sleep(0.001)
        if server.calls("evalsha") > calls:
            break  # the stuck command has arrived
    assert server.command("HGET", name, first.renewer.name) == row
    await direct.link.close()


async def test_one_that_is_cut_off_keeps_its_share_for_a_while(
    server: RedisServer, line: Line
) -> None:
    away = Line(server)
    await away.start()
    clock = SystemClock()
    short = {"term": 0.1, "hold": 0.3, "sidecars": 2}
    lost = Side(settings(away.url, **short), clock, 1)
    rest = Side(settings(line.url, **short), clock, 2)
    for _ in range(4):
        for side in (lost, rest):
            crowd(side)
            await side.renew()
    held = lost.share(TOKENS)
    assert held == pytest.approx(RATE / 2)
    away.freeze()
    lost.link._timeout = 0.01
    seen = set()
    until = clock.monotonic() + 0.6
    while clock.monotonic() < until:
        crowd(rest)
        crowd(lost)
        await lost.renew()
        await rest.renew()
        seen.add(lost.quotas.mode)
        assert lost.share(TOKENS) + rest.share(TOKENS) <= RATE * 1.000001
        await asyncio.sleep(0.02)
    assert seen >= {Mode.HOLDING, Mode.ALONE}
    assert lost.share(TOKENS) == pytest.approx(RATE / 2)
    for side in (lost, rest):
        await side.link.close()
    await away.close()
