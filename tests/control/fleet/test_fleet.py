"""Several sidecars over one real Redis: the same overrides and policy everywhere, one leader."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.admission.leases.redis_rig import Line, RedisServer
from tests.control.fleet.member import Member

from surgetank.admission.leases.link import LinkError, Script
from surgetank.admission.limits import Limit, Override
from surgetank.control.fleet.store import Entry, Store
from surgetank.telemetry.clock import ManualClock

NAME = Limit.QUEUE_REQUESTS


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
    members[0].override(7, ttl=600)
    await look(members)
    assert [member.value for member in members] == [7, 7, 7]
    why = f"storm (told by {members[0].fleet.name})"
    for member in members[1:]:
        assert member.ends_in == pytest.approx(600, abs=5)
        entry = member.journal.recent()[-1]
        assert (entry.who, entry.why, entry.before, entry.after) == ("ann", why, before, 7)
        assert entry.cause == "fleet"
    await look(members)
    assert [len(member.journal.recent()) for member in members] == [0, 1, 1]  # told once
    members[1].limits.clear(NAME)
    members[1].fleet.tell_override(NAME, None)
    await look(members[1:])
    await look(members)
    assert [member.value for member in members] == [before] * 3


async def test_a_newer_word_of_ours_is_not_undone_by_an_older_of_theirs(
    members: list[Member], line: Line
) -> None:
    members[0].override(7, ttl=60)
    await look(members[:2])
    line.freeze()
    members[1].override(9, ttl=60, why="more")
    assert not await members[1].fleet.look()
    assert (members[1].value, members[1].fleet.untold) == (9, 1)
    line.thaw()
    while not await members[1].fleet.look():
        """What was stuck in the line comes out first."""
    await look(members)
    assert [member.value for member in members] == [9, 9, 9]
    assert members[1].fleet.untold == 0


async def test_what_is_said_during_a_look_is_newer_than_what_it_sees(
    members: list[Member],
) -> None:
    first, second, _ = members
    first.override(7, ttl=60)
    await look([first])
    looking = asyncio.create_task(second.fleet.look())
    await asyncio.sleep(0)  # its question is on the way
    second.override(9, ttl=60, why="more")
    assert await looking
    assert second.value == 9
    await look([second, first])
    assert first.value == 9


async def test_what_was_over_before_it_could_be_told_is_not_told(members: list[Member]) -> None:
    members[0].override(7, ttl=60)
    members[0].clock.advance(61)
    await look(members)
    assert members[1].value != 7
    assert members[0].fleet.untold == 0


async def test_a_drain_is_for_all_where_it_was_asked_for_all(members: list[Member]) -> None:
    await look(members)
    first, second, third = members
    first.drain.begin("ann", "kernel", None)
    first.fleet.tell_drain(first.drain.hold)
    await look(members)
    assert [member.drain.active for member in members] == [True] * 3
    assert len(first.journal.recent()) == 1
    assert second.journal.recent()[0].why == f"kernel (told by {first.fleet.name})"
    third.drain.end("bob", "this one is done")  # it goes ahead, and stays so
    first.override(7, ttl=60)
    await look(members)
    assert [member.drain.active for member in members] == [True, True, False]
    first.drain.end("ann", "done")
    first.fleet.tell_drain(None)
    await look(members)
    assert [member.drain.active for member in members] == [False] * 3
    assert second.journal.recent()[-1].cause == "fleet"


async def test_an_override_ends_by_redis_clock(members: list[Member]) -> None:
    members[0].override(7, ttl=0.05)
    await look(members)
    assert members[1].value == 7
    await asyncio.sleep(0.06)
    await look(members)
    assert members[1].value != 7
    assert [entry.cause for entry in members[1].journal.recent()] == ["fleet", "fleet"]


async def test_a_value_that_cannot_hold_here_is_said_and_left(
    members: list[Member], caplog: pytest.LogCaptureFixture
) -> None:
    members[1].limits.set_maximum(NAME, 5, "engine")
    members[0].override(7, ttl=60)
    await look(members)
    assert members[0].value == 7
    assert members[1].value == 5
    assert "queue_requests: 7" in caplog.text


async def test_what_all_knew_survives_a_redis_that_forgot(
    members: list[Member], server: RedisServer
) -> None:
    members[0].override(7, ttl=600)
    members[0].fleet.tell_policy("static", until=None, who="ann", why="calm")
    await look(members[:2])
    server.kill()
    assert [await member.fleet.look() for member in members[:2]] == [False, False]
    assert members[0].value == 7  # it holds without Redis
    server.start()
    await look(members[:2] * 2)
    await look(members)
    assert [member.value for member in members] == [7, 7, 7]
    assert members[2].ends_in == pytest.approx(600, abs=5)
    assert members[2].policies.used == ["static"]
    assert [len(member.journal.recent()) for member in members] == [0, 1, 1]  # never let go


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
    assert members[2].policies.used == ["static"]
    for member in members:
        await member.link.close()


async def test_what_falls_at_the_leader_is_rolled_back_everywhere(members: list[Member]) -> None:
    members[1].fleet.tell_policy("bold", until=None, who="ann", why="it did well")
    await look(members * 2)
    assert [member.policies.used for member in members] == [["bold"]] * 3
    members[1].policies.why = "bold: goodput fell"
    assert await members[1].fleet.lead()  # not the leader: its own matter
    await look(members)
    assert members[2].policies.used == ["bold"]
    members[0].policies.why = "bold: goodput fell"
    assert await members[0].fleet.lead()
    await look(members)
    assert [member.policies.used for member in members] == [["bold", ""]] * 3


async def test_a_rollback_ends_only_the_policy_that_it_names(members: list[Member]) -> None:
    first, second, third = members
    first.fleet.tell_policy("bold", until=None, who="ann", why="it did well")
    await look(members)
    second.fleet.tell_rollback("shy", who="bob", why="tried here alone")
    await look(members * 2)
    assert [member.policies.used for member in members] == [["bold"]] * 3
    first.fleet.tell_policy("brave", until=None, who="ann", why="better yet")
    first.fleet.tell_rollback("bold", who="ann", why="replaced")  # before the newer is told
    await look(members)
    assert third.policies.used == ["bold", "brave"]
    second.fleet.tell_rollback("brave", who="bob", why="too brave")
    await look([second, *members])
    assert [member.policies.used for member in members] == [["bold", "brave", ""]] * 3


async def test_a_leaders_verdict_does_not_end_what_was_promoted_since(
    members: list[Member],
) -> None:
    leader, other, _ = members
    leader.fleet.tell_policy("bold", until=None, who="ann", why="it did well")
    await look(members)
    other.fleet.tell_policy("brave", until=None, who="ann", why="better yet")
    await look([other])
    leader.policies.why = "bold: goodput fell"
    assert await leader.fleet.lead()  # it has not heard of the newer
    await look(members)
    assert [member.policies.used[-1] for member in members] == ["brave"] * 3


async def test_a_policy_that_is_promoted_again_after_its_time_is_followed(
    members: list[Member],
) -> None:
    for _ in range(2):
        until = members[0].clock.monotonic() + 0.05
        members[0].fleet.tell_policy("bold", until=until, who="ann", why="by night")
        await look(members)
        await asyncio.sleep(0.06)
        await look(members)
    assert members[1].policies.used == ["bold", "bold"]


async def test_what_is_no_value_in_redis_keeps_nothing_else_from_being_followed(
    members: list[Member], caplog: pytest.LogCaptureFixture
) -> None:
    await look(members)
    strange = Entry("many", "eve", "mischief")
    await Store(members[0].link, "surgetank").write(f"override:{NAME}", strange, lasts=60.0)
    override = Override(3.0, members[0].clock.monotonic() + 60, "ann", "storm")
    members[0].fleet.tell_override(Limit.MAX_N, override)
    members[0].fleet.tell_policy("bold", until=None, who="ann", why="it did well")
    await look(members)
    assert members[1].limits.get(Limit.MAX_N) == 3
    assert members[1].policies.used == ["bold"]
    assert "an override cannot hold here: could not convert" in caplog.text


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
    assert old.policies.used == ["dynamic"]
    for member in (old, new):
        await member.link.close()


async def test_who_leaves_leaves_the_lead(members: list[Member]) -> None:
    await look(members)
    await members[0].fleet.close()
    await look(members[1:])
    assert [member.fleet.leads for member in members] == [False, True, False]


async def test_what_is_said_while_redis_is_gone_is_told_when_it_is_back(
    members: list[Member], server: RedisServer
) -> None:
    server.kill()
    members[0].override(7, ttl=60)
    assert not await members[0].fleet.look()
    assert (members[0].fleet.leads, members[0].fleet.untold) == (False, 1)
    with pytest.raises(LinkError):
        await members[0].link.run(Script("return 1"), [], [])
    server.start()
    await look(members)
    assert [member.value for member in members] == [7, 7, 7]
