"""Several sidecars over one real Redis: the same overrides and policy everywhere, one leader."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from tests.admission.leases.redis_rig import Line, RedisServer

from surgetank.admission.leases.link import Link, LinkError
from surgetank.admission.limits import Limit, Limits
from surgetank.control.fleet.fleet import Fleet, FleetConfig
from surgetank.control.fleet.store import Store
from surgetank.control.journal import Journal
from surgetank.telemetry.clock import ManualClock

NAME = Limit.QUEUE_REQUESTS


class Member:
    """A sidecar's fleet side, with limits and a journal of its own."""

    def __init__(self, url: str, clock: ManualClock, seed: int, lease: float = 3.0) -> None:
        self.clock = clock
        self.limits = Limits()
        self.journal = Journal(clock, None)
        self.policies: list[str] = []
        self.link = Link(url, 0.5)
        self.fleet = Fleet(
            FleetConfig(lease=lease),
            store=Store(self.link, "surgetank"),
            clock=clock,
            rng=random.Random(seed),
            limits=self.limits,
            journal=self.journal,
            use_policy=self.policies.append,
        )

    @property
    def value(self) -> float:
        return self.limits.get(NAME)

    @property
    def ends_in(self) -> float:
        return self.limits.next_expiry - self.clock.monotonic()


@pytest.fixture
async def members(line: Line) -> AsyncIterator[list[Member]]:
    """Three whose clocks disagree by years."""
    clocks = [ManualClock(now, epoch) for now, epoch in ((0, 0), (9e8, 4e9), (5e5, 1e3))]
    members = [Member(line.url, clock, seed) for seed, clock in enumerate(clocks)]
    yield members
    for member in members:
        await member.link.close()


async def look(members: list[Member]) -> None:
    for member in members:
        assert await member.fleet.look()


async def test_an_override_holds_everywhere_for_as_long(members: list[Member]) -> None:
    await look(members)
    before = members[0].value
    await members[0].fleet.override(NAME, 7, ttl=600, who="ann", why="storm")
    await look(members)
    assert [member.value for member in members] == [7, 7, 7]
    for member in members:
        assert member.ends_in == pytest.approx(600, abs=5)
        entry = member.journal.recent()[-1]
        assert (entry.who, entry.why, entry.before, entry.after) == ("ann", "storm", before, 7)
    await look(members)
    assert all(len(member.journal.recent()) == 1 for member in members)  # told once
    await members[1].fleet.clear(NAME)
    await look(members)
    assert [member.value for member in members] == [before] * 3


async def test_who_set_it_here_is_not_told_again(members: list[Member]) -> None:
    first = members[0]
    until = first.clock.monotonic() + 60
    first.limits.override(NAME, 7, until=until, who="ann", why="storm")
    await first.fleet.override(NAME, 7, ttl=60, who="ann", why="storm")
    await look(members)
    assert first.journal.recent() == []
    assert len(members[1].journal.recent()) == 1


async def test_an_override_ends_by_redis_clock(members: list[Member]) -> None:
    await members[0].fleet.override(NAME, 7, ttl=0.05, who="ann", why="brief")
    await look(members[1:])
    assert members[1].value == 7
    await asyncio.sleep(0.06)
    await look(members)
    assert members[0].value == members[1].value != 7


async def test_a_value_that_cannot_hold_here_is_said_and_left(
    members: list[Member], caplog: pytest.LogCaptureFixture
) -> None:
    members[1].limits.set_maximum(NAME, 5, "engine")
    await members[0].fleet.override(NAME, 7, ttl=60, who="ann", why="storm")
    await look(members)
    assert members[0].value == 7
    assert members[1].value == 5
    assert "queue_requests: 7" in caplog.text


async def test_what_all_knew_survives_a_redis_that_forgot(
    members: list[Member], server: RedisServer
) -> None:
    await members[0].fleet.override(NAME, 7, ttl=600, who="ann", why="storm")
    await members[0].fleet.promote("static", who="ann", why="calm")
    await look(members[:2])
    server.kill()
    assert [await member.fleet.look() for member in members[:2]] == [False, False]
    assert members[0].value == 7  # it holds without Redis
    server.start()
    await look(members[:2] * 2)
    await look(members)
    assert [member.value for member in members] == [7, 7, 7]
    assert members[2].ends_in == pytest.approx(600, abs=5)
    assert members[2].policies == ["static"]
    assert all(len(member.journal.recent()) == 1 for member in members)  # never let go between


async def test_one_leads_and_another_takes_over(line: Line) -> None:
    clock = ManualClock()
    members = [Member(line.url, clock, seed, lease=0.1) for seed in range(3)]
    await look(members)
    assert [member.fleet.leads for member in members] == [True, False, False]
    assert await members[0].fleet.decide("static", why="goodput fell")
    assert not await members[1].fleet.decide("other", why="not mine to say")
    clock.advance(0.099)  # the first is stuck for longer than its lease
    assert not members[0].fleet.leads
    await asyncio.sleep(0.11)
    await look(members[1:])
    assert [member.fleet.leads for member in members] == [False, True, False]
    await look(members)
    assert members[2].policies == ["static"]
    for member in members:
        await member.link.close()


async def test_a_late_leader_is_fenced_off(line: Line) -> None:
    clocks = [ManualClock(), ManualClock()]
    old, new = (Member(line.url, clock, seed, lease=0.1) for seed, clock in enumerate(clocks))
    await look([old])
    await asyncio.sleep(0.11)
    await look([new])
    assert old.fleet.leads  # its own clock stood still: it does not know yet
    assert new.fleet.leads
    assert not await old.fleet.decide("static", why="late")
    assert await new.fleet.decide("dynamic", why="in time")
    await look([old])
    assert old.policies == ["dynamic"]
    for member in (old, new):
        await member.link.close()


async def test_who_leaves_leaves_the_lead(members: list[Member]) -> None:
    await look(members)
    await members[0].fleet.close()
    await look(members[1:])
    assert [member.fleet.leads for member in members] == [False, True, False]


async def test_telling_a_redis_that_is_gone_fails(
    members: list[Member], server: RedisServer
) -> None:
    server.kill()
    with pytest.raises(LinkError):
        await members[0].fleet.override(NAME, 7, ttl=60, who="ann", why="storm")
    assert members[0].fleet.leads is False
