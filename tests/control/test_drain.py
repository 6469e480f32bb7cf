"""Draining: for a while, for good, and for ever once the process stops."""

from surgetank.control.drain import Drain
from surgetank.control.journal import Journal
from surgetank.telemetry.clock import ManualClock


class Switch:
    """A drain with its clock, what it turned, and its journal."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.turns: list[bool] = []
        self.journal = Journal(self.clock, None)
        self.drain = Drain(self.clock, self.journal, self.turns.append)

    def told(self) -> list[tuple[str, object, object, str]]:
        """Who, before, after and cause of every entry."""
        return [(e.who, e.before, e.after, e.cause) for e in self.journal.recent()]


def test_it_ends_by_itself_after_its_time() -> None:
    switch = Switch()
    switch.drain.begin("ada", "update", ttl=60)
    switch.drain.expire(switch.clock.monotonic() + 59)
    assert switch.drain.active
    switch.drain.expire(switch.clock.monotonic() + 60)
    assert switch.turns == [True, False]
    assert switch.told() == [("ada", False, True, "operator"), ("ada", True, False, "expiry")]


def test_asked_again_the_newer_time_holds() -> None:
    switch = Switch()
    switch.drain.begin("ada", "update", ttl=60)
    switch.drain.begin("bob", "longer", ttl=None)
    switch.drain.expire(switch.clock.monotonic() + 1e6)
    assert switch.drain.hold is not None
    assert (switch.drain.hold.who, switch.drain.hold.until) == ("bob", None)


def test_nothing_ends_the_drain_of_a_process_that_stops() -> None:
    switch = Switch()
    switch.drain.begin("ada", "update", ttl=60)
    switch.drain.begin_final("surgetank", "a signal")
    switch.drain.expire(switch.clock.monotonic() + 60)
    switch.drain.end("ada", "done")
    switch.drain.begin("ada", "update again", ttl=1)
    switch.drain.expire(switch.clock.monotonic() + 60)
    assert switch.drain.active
    assert False not in switch.turns
    assert switch.told()[1:] == [("surgetank", True, True, "process")]
