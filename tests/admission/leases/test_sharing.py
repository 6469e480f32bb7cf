"""Sidecars sharing limits over a real Redis: never too much together, nothing left idle."""

import random
from collections.abc import AsyncIterator

import pytest
from tests.admission.leases.redis_rig import Line, RedisServer, Side, settings

from surgetank.admission.leases.quotas import Denied, Mode, Quota, Taken
from surgetank.telemetry.clock import ManualClock

TOKENS = "a:tokens_per_minute"
SLOTS = "a:concurrency"
RATE = 100.0  # tokens/s
BURST = 1000.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def sides(line: Line, clock: ManualClock) -> AsyncIterator[list[Side]]:
    sides = [Side(settings(line.url), clock, seed) for seed in range(3)]
    yield sides
    for side in sides:
        await side.link.close()


async def join(sides: list[Side]) -> None:
    """All have met."""
    for side in sides:
        await side.renew()


def take(side: Side, tokens: float) -> bool:
    """Whether tenant a gets so many tokens at that sidecar."""
    return isinstance(side.quotas.take("a", {Quota.TOKENS: tokens}), Taken)


def crowd(side: Side) -> float:
    """Tokens that tenant a gets there when it asks for more than there are."""
    return sum(50 * take(side, 50) for _ in range(40))


async def test_fifty_parallel_on_three_share_one_limit(
    sides: list[Side], clock: ManualClock
) -> None:
    admitted = [take(side, 100) for _ in range(50) for side in sides]
    for _ in range(4):  # no time passes: nothing refills, whoever holds which share
        for side in sides:
            await side.renew()
        admitted += [take(side, 100) for side in sides for _ in range(50)]
    assert 9 <= sum(admitted) <= 10
    assert {side.quotas.mode for side in sides} == {Mode.SHARED}


async def test_what_others_leave_is_lent_out(sides: list[Side], clock: ManualClock) -> None:
    await join(sides)
    used = 0
    for _ in range(400):
        while take(sides[0], 10):
            used += 10
        clock.advance(0.1)
        await sides[0].renew()
        if clock.monotonic() % 1 < 0.1:
            await sides[1].renew()
            await sides[2].renew()
    assert used >= 0.97 * RATE * 40
    assert used <= RATE * 40 + BURST


async def test_two_that_want_all_get_half_each(sides: list[Side], clock: ManualClock) -> None:
    used = [0, 0]
    for step in range(300):
        for index in (0, 1):
            while take(sides[index], 5):
                used[index] += 5
            if step == 50:
                used[index] = 0  # from then on
        clock.advance(0.1)
        for side in sides:
            await side.renew()
    assert sum(used) >= 0.95 * RATE * 25
    assert min(used) >= 0.45 * sum(used)


async def test_a_newcomer_gets_its_fair_share_within_a_term(
    sides: list[Side], clock: ManualClock
) -> None:
    await join(sides)
    for _ in range(50):
        crowd(sides[0])
        clock.advance(0.1)
        await sides[0].renew()
    assert sides[0].share(TOKENS) == pytest.approx(RATE)
    for _ in range(3):  # a term
        for side in sides[:2]:
            crowd(side)
            await side.renew()
        clock.advance(0.3)
    assert sides[1].share(TOKENS) >= 0.45 * RATE


@pytest.mark.parametrize("seed", range(5))
async def test_shares_never_exceed_the_limit_whatever_is_lost(
    sides: list[Side], line: Line, clock: ManualClock, seed: int
) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        side = rng.choice(sides)
        for _ in range(rng.randrange(4)):
            side.quotas.take("a", {Quota.TOKENS: rng.uniform(1, 400), Quota.CONCURRENCY: 1})
        line.loses_answers = rng.random() < 0.2
        side.link._timeout = 0.02 if line.loses_answers else 0.5
        await side.renew()
        clock.advance(rng.uniform(0, 0.05))
        assert sum(side.share(TOKENS) for side in sides) <= RATE * 1.000001
        assert sum(side.share(SLOTS) for side in sides) <= 8


async def test_slots_are_never_oversold_and_are_lent(sides: list[Side], clock: ManualClock) -> None:
    running: list[Taken] = []
    for _ in range(5):
        for _ in range(20):
            taken = sides[0].quotas.take("a", {Quota.CONCURRENCY: 1})
            if isinstance(taken, Taken):
                running.append(taken)
        for side in sides:
            await side.renew()
    assert len(running) == 6  # eight, less one that each of the others may use unasked
    for side in sides[1:]:
        first = side.quotas.take("a", {Quota.CONCURRENCY: 1})
        assert isinstance(first, Taken)
        running.append(first)
        assert isinstance(side.quotas.take("a", {Quota.CONCURRENCY: 1}), Denied)
    for taken in running:
        taken.end()


async def test_retries_are_paid_from_what_all_have_earned(
    sides: list[Side], clock: ManualClock
) -> None:
    spent = 0.0
    for _ in range(400):
        sides[0].quotas.earn(0.4)  # four engine-seconds of retries a second
        while isinstance(sides[1].quotas.take("", {Quota.RETRIES: 0.5}), Taken):
            spent += 0.5
        clock.advance(0.1)
        for side in sides:
            await side.renew()
    floor, earned = 1.0 * 40, 4.0 * 40
    assert spent <= floor + earned + 10.0
    assert spent >= 0.85 * (floor + earned - 40)  # the first ten seconds fill the average


async def test_no_clients_clock_matters(line: Line) -> None:
    clocks = [ManualClock(now, epoch) for now, epoch in ((0, 0), (9e8, 4e9), (-5e5, 1e3))]
    sides = [Side(settings(line.url), clock, seed) for seed, clock in enumerate(clocks)]
    for _ in range(10):
        for side, clock in zip(sides, clocks):
            crowd(side)
            await side.renew()
            clock.advance(0.3)
    shares = [side.share(TOKENS) for side in sides]
    assert sum(shares) <= RATE * 1.000001
    assert min(shares) >= 0.3 * RATE
    for side in sides:
        await side.link.close()


async def test_an_unused_claim_is_given_up(
    sides: list[Side], server: RedisServer, clock: ManualClock
) -> None:
    take(sides[0], 5)
    await sides[0].renew()
    assert b"a:tokens_per_minute" in server.command("KEYS", "*")
    for _ in range(40):
        clock.advance(1.0)
        await sides[0].renew()
    assert b"a:tokens_per_minute" not in server.command("KEYS", "*")
    assert sides[0].share(TOKENS) == 0.0


async def test_who_leaves_gives_back_at_once(
    sides: list[Side], server: RedisServer, clock: ManualClock
) -> None:
    await join(sides)
    server.command("HSET", "{surgetank}:sidecars", "@born", "1")  # it remembers all there are
    for side in sides[:2]:
        crowd(side)
        await side.renew()
    await sides[0].renewer.close()
    for _ in range(3):
        crowd(sides[1])
        await sides[1].renew()
    assert sides[1].share(TOKENS) == pytest.approx(RATE)
