"""Simulated sidecars over one simulated Redis: limits hold over all, whatever becomes of it."""

import random
from collections.abc import Callable, Iterable
from functools import partial

import pytest

from surgetank.admission.leases.config import LeasesConfig, TenantQuota
from surgetank.admission.leases.quotas import Mode, Quota, Quotas, Taken
from surgetank.control.lab.shared import SharedState
from surgetank.control.lab.timeline import Timeline

RATE, BURST, SLOTS, FLOOR = 100.0, 1000.0, 8, 1.0  # tokens/s, tokens, requests, engine-seconds/s
CONFIG = LeasesConfig(
    sidecars=3,
    retry_floor=FLOOR,
    default=TenantQuota(tokens_per_minute=60 * RATE, concurrency=SLOTS),
)
EARNS = 2.0  # engine-seconds/s that each sidecar's first attempts earn
Used = list[tuple[float, float]]  # when, and how much


def most_over(used: Iterable[tuple[float, float]], rate: float) -> float:
    """The most that any window holds beyond its seconds times `rate`."""
    level = most = last = 0.0
    for at, amount in used:
        level = max(0.0, level - rate * (at - last)) + amount
        most, last = max(most, level), at
    return most


class Three:
    """Three sidecars that are asked for more than there is, every tenth of a second."""

    def __init__(self, seed: int = 0) -> None:
        self.timeline = Timeline()
        self.shared = SharedState(CONFIG, self.timeline)
        self.sides = [self.shared.join(random.Random(f"{seed}:{n}")) for n in range(3)]
        self.wants = [True] * 3
        self.tokens: list[Used] = [[], [], []]
        self.retries: Used = []
        self.earned: Used = []
        self.running = 0
        self.most_running = 0
        self.seen: list[tuple[float, list[Mode], list[float]]] = []
        self._tick()

    def run(self, until: float, faults: dict[float, Callable[[], None]] | None = None) -> None:
        for at, strike in (faults or {}).items():
            self.timeline.call_at(at, strike)
        self.timeline.run(until)
        self.shared.close()

    def between(self, begin: float, end: float, *sides: int) -> float:
        """Tokens that those sidecars (all, if none is named) let through."""
        chosen = [self.tokens[side] for side in sides or range(3)]
        return sum(amount for used in chosen for at, amount in used if begin <= at < end)

    def _tick(self) -> None:
        now = self.timeline.monotonic()
        for number, side in enumerate(self.sides):
            if self.wants[number]:
                self._ask(number, side, now)
        shares = [dict(side.pools()) for side in self.sides]
        told = [each["a:tokens_per_minute"].share for each in shares if len(each) > 1]
        self.seen.append((now, [side.mode for side in self.sides], told))
        self.timeline.call_later(0.1, self._tick)

    def _ask(self, number: int, side: Quotas, now: float) -> None:
        while isinstance(side.take("a", {Quota.TOKENS: 10.0}), Taken):
            self.tokens[number].append((now, 10.0))
        while isinstance(taken := side.take("a", {Quota.CONCURRENCY: 1.0}), Taken):
            self.running += 1
            self.timeline.call_later(0.35 + 0.1 * number, partial(self._end, taken))
        self.most_running = max(self.most_running, self.running)
        side.earn(EARNS / 10)
        self.earned.append((now, EARNS / 10))
        while isinstance(side.take("", {Quota.RETRIES: 0.5}), Taken):
            self.retries.append((now, 0.5))

    def _end(self, taken: Taken) -> None:
        taken.end()
        self.running -= 1

    def holds(self) -> None:
        """No limit was exceeded in any window."""
        all_tokens = sorted(each for used in self.tokens for each in used)
        assert most_over(all_tokens, RATE) <= BURST + 10.0
        assert self.most_running <= SLOTS
        earned, spent = [(at, -amount) for at, amount in self.earned], self.retries
        # Ten seconds may be spent at once, and what was earned is spread over the next ten.
        assert most_over(sorted(earned + spent), FLOOR) <= 2 * 10 * (FLOOR + 3 * EARNS)
        assert sum(amount for _, amount in spent) >= -0.6 * sum(amount for _, amount in earned)


@pytest.mark.parametrize("seed", range(3))
def test_a_limit_is_that_of_all_together(seed: int) -> None:
    three = Three(seed)
    three.run(60.0)
    three.holds()
    assert three.between(20.0, 60.0) >= 0.95 * RATE * 40
    assert all(three.between(20.0, 60.0, side) >= 0.3 * RATE * 40 for side in range(3))


@pytest.mark.parametrize("seed", range(3))
def test_lost_the_last_shares_go_on_and_then_equal_parts(seed: int) -> None:
    three = Three(seed)
    three.wants[2] = False
    faults = {
        20.0: lambda: three.shared.lose(30.0),
        25.0: lambda: three.wants.__setitem__(2, True),  # too late to be told of
    }
    three.run(90.0, faults)
    three.holds()
    modes = {round(at, 1): modes for at, modes, _ in three.seen}
    shares = {round(at, 1): shares for at, _, shares in three.seen}
    assert modes[19.9] == [Mode.SHARED] * 3
    assert modes[22.0] == modes[29.9] == [Mode.HOLDING] * 3
    assert modes[31.1] == modes[49.9] == [Mode.ALONE] * 3
    assert modes[52.0] == modes[89.9] == [Mode.SHARED] * 3
    assert shares[29.9][:2] == shares[20.0][:2]
    assert sum(shares[20.0][:2]) == pytest.approx(RATE, rel=0.05)
    assert shares[40.0] == pytest.approx([RATE / 3] * 3)
    assert three.between(32.0, 50.0) == pytest.approx(RATE * 18, rel=0.03)
    assert max(sum(each) for each in shares.values()) <= RATE * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("away", [0.0, 5.0, 20.0])
def test_restarted_it_gives_nothing_twice(seed: int, away: float) -> None:
    three = Three(seed)
    begun = three.timeline.wall()
    three.run(90.0, {at: lambda: three.shared.restart(away) for at in (20.0, 50.0)})
    three.holds()
    (born,) = three.shared.store.memory["{surgetank}:sidecars"]["@born"]
    assert 50.0 + away <= born / 1e6 - begun < 51.0 + away
    assert three.between(75.0, 90.0) >= 0.95 * RATE * 15


@pytest.mark.parametrize("fault", ["lose", "restart"])
def test_an_unused_share_is_lent_out_again_after_the_return(fault: str) -> None:
    three = Three()
    strike = getattr(three.shared, fault)
    three.run(
        120.0,
        {
            30.0: lambda: strike(20.0),
            60.0: lambda: three.wants.__setitem__(slice(1, 3), [False] * 2),
        },
    )
    three.holds()
    assert three.between(40.0, 50.0, 0) <= RATE * 10 / 3 * 1.2
    assert three.between(80.0, 120.0, 0) >= 0.97 * RATE * 40
    assert three.between(80.0, 120.0, 1, 2) == 0.0


def test_the_same_seed_is_the_same_run() -> None:
    def played(seed: int) -> object:
        three = Three(seed)
        three.run(
            40.0, {10.0: lambda: three.shared.lose(15.0), 30.0: lambda: three.shared.restart(0.0)}
        )
        return three.tokens, three.retries, three.seen

    assert played(1) == played(1)
    assert played(1) != played(2)
