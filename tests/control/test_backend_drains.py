"""One engine of several is drained for a while, by somebody, for a reason; the last by force."""

from dataclasses import replace
from typing import TypedDict

import pytest
from tests.admission.rig import Rig
from tests.fakes import engine_look

from surgetank.admission.routing.side import SideState
from surgetank.control.actions import Change, UnknownName, WouldWorsen
from surgetank.control.backend_drains import BackendDrains
from surgetank.control.journal import Journal
from surgetank.telemetry.clock import ManualClock


class Act(TypedDict):
    """Who acts, and why."""

    who: str
    why: str


WHY = Act(who="ann", why="new driver")


class Drained:
    """Three engines, of which one is down; `turns` is what the desk was told."""

    def __init__(self) -> None:
        self.clock = ManualClock(50.0, 1000.0)
        self.journal = Journal(self.clock, None)
        self.turns: list[tuple[str, str | None]] = []
        self.engines = [
            engine_look("a"),
            engine_look("b", state=SideState.SLOW_START),
            engine_look("c", state=SideState.DOWN),
        ]
        self.drains = BackendDrains(
            self.clock,
            self.journal,
            "abc",
            lambda: self.engines,
            lambda *turn: self.turns.append(turn),
        )


def test_it_is_told_to_the_desk_and_stands_in_the_journal() -> None:
    it = Drained()
    assert it.drains.begin("a", **WHY, ttl=60) == Change("a draining", False, True, 60)
    assert it.turns == [("a", "ann: new driver")]
    assert it.drains.holds["a"].until == 110.0
    assert it.drains.end("a", who="bob", why="done") == Change("a draining", True, False, None)
    assert it.turns == [("a", "ann: new driver"), ("a", None)]
    entries = [(each.what, each.who, each.before, each.after) for each in it.journal.recent()]
    assert entries == [("a draining", "ann", False, True), ("a draining", "bob", True, False)]


def test_tried_it_changes_nothing() -> None:
    it = Drained()
    assert it.drains.begin("a", **WHY, ttl=None, dry_run=True).after is True
    assert it.drains.end("a", **WHY, dry_run=True).before is False
    assert (it.turns, it.journal.recent(), it.drains.holds) == ([], [], {})


def test_it_ends_by_itself() -> None:
    it = Drained()
    it.drains.begin("a", **WHY, ttl=60)
    desk = Rig().desk.snapshot()
    it.drains.expire(replace(desk, at=109.0))
    assert it.turns == [("a", "ann: new driver")]
    it.drains.expire(replace(desk, at=110.0))
    assert it.turns == [("a", "ann: new driver"), ("a", None)]
    assert it.journal.recent()[-1].cause == "expiry"


def test_the_last_that_takes_requests_is_drained_by_force_alone() -> None:
    it = Drained()
    it.engines = [replace(it.engines[0], state=SideState.EJECTED), *it.engines[1:]]
    with pytest.raises(WouldWorsen, match="no other engine takes requests now: without b"):
        it.drains.begin("b", **WHY, ttl=60)
    assert it.turns == []
    it.drains.begin("a", **WHY, ttl=60)  # it gets none already
    it.drains.begin("b", **WHY, ttl=60, force=True)
    assert it.turns == [("a", "ann: new driver"), ("b", "ann: new driver")]


def test_an_unknown_name_is_answered_with_those_that_there_are() -> None:
    it = Drained()
    with pytest.raises(UnknownName, match="d is no engine here; there are: a, b, c"):
        it.drains.begin("d", **WHY, ttl=None)
    with pytest.raises(UnknownName, match="there are: a, b, c"):
        it.drains.end("d", **WHY)
