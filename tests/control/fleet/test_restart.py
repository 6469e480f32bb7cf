"""An override that outlived a crash, against a Redis that knows of it, or not, or not any more."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.admission.leases.redis_rig import Line, RedisServer
from tests.control.fleet.member import NAME, Member

from surgetank.admission.limits import Limits
from surgetank.control.backend_drains import BackendDrains
from surgetank.control.standing import Standing
from surgetank.telemetry.clock import ManualClock

CONFIGURED = Limits().get(NAME)


class Restartable(Member):
    """A member whose overrides stand in a file, as a sidecar's do; made again, it is the next
    process."""

    def __init__(self, url: str, clock: ManualClock, seed: int, folder: Path) -> None:
        super().__init__(url, clock, seed)
        path = folder / "engine.standing.json"
        backends = BackendDrains(clock, self.journal, (), tuple, lambda *_: None)
        self.standing = Standing(
            path, clock, self.limits, self.drain, backends, self.journal, self.fleet.life_of
        )
        self.fleet.on_told = self.standing.save
        self.fleet.adopt(self.standing.restore())


@pytest.fixture
async def restart(line: Line, tmp_path: Path) -> AsyncIterator[Callable[[], Restartable]]:
    """Begins the next process of one sidecar; the one before is simply gone."""
    processes: list[Restartable] = []
    clock = ManualClock()

    def begin() -> Restartable:
        processes.append(Restartable(line.url, clock, len(processes), tmp_path))
        return processes[-1]

    yield begin
    for process in processes:
        await process.link.close()


@pytest.fixture
async def other(line: Line) -> AsyncIterator[Member]:
    """Another sidecar of the same fleet."""
    member = Member(line.url, ManualClock(9e8, 4e9), 99)
    yield member
    await member.link.close()


async def test_what_the_fleet_has_ended_meanwhile_is_over(
    restart: Callable[[], Restartable], other: Member
) -> None:
    first = restart()
    first.override(7, ttl=600)
    assert await first.fleet.look()
    other.fleet.tell_override(NAME, None)
    assert await other.fleet.look()
    second = restart()
    assert second.value == 7  # until it hears otherwise
    assert await second.fleet.look()
    assert second.value == CONFIGURED


async def test_it_survives_a_redis_that_forgot_at_the_same_time(
    restart: Callable[[], Restartable], other: Member, server: RedisServer
) -> None:
    first = restart()
    first.override(7, ttl=600)
    assert await first.fleet.look()
    server.kill()
    server.start()
    restart()  # and this one ends before Redis has answered it
    third = restart()
    for _ in range(2):
        await third.fleet.look()
    assert third.value == 7
    assert await other.fleet.look()
    assert other.value == 7
    assert other.ends_in == pytest.approx(600, abs=5)


async def test_what_was_not_told_yet_at_the_crash_is_told_after_it(
    restart: Callable[[], Restartable], other: Member
) -> None:
    first = restart()
    first.override(7, ttl=600)
    assert await first.fleet.look()
    first.override(9, ttl=600, why="more")  # it dies before it can say so
    second = restart()
    assert await second.fleet.look()
    assert second.value == 9
    assert await other.fleet.look()
    assert other.value == 9
