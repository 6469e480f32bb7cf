"""Draining one of several engines: it gets no new requests, and those that it has complete."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from surgetank.admission.routing.side import TAKING
from surgetank.admission.snapshot import DeskSnapshot, EngineLook
from surgetank.control.actions import Change, UnknownName, WouldWorsen
from surgetank.control.drain import Drain, Hold
from surgetank.control.journal import Journal
from surgetank.telemetry.clock import Clock


class BackendDrains:
    """A drain for each engine behind the gate, by its name."""

    def __init__(
        self,
        clock: Clock,
        journal: Journal,
        names: Iterable[str],
        engines: Callable[[], Sequence[EngineLook]],
        turn: Callable[[str, str | None], None],
    ) -> None:
        """`engines`: all of them, now. `turn(name, by)`: that one gets no more requests, by whom
        and why; None: it gets some again."""
        self._engines = engines
        self._tell = turn
        self._drains = {
            name: Drain(clock, journal, partial(self._turn, name), f"{name} draining")
            for name in names
        }

    @property
    def holds(self) -> Mapping[str, Hold]:
        """Who drains which engine, and why."""
        return {name: drain.hold for name, drain in self._drains.items() if drain.hold}

    def named(self, name: str) -> Drain:
        """The drain of that engine; raises UnknownName."""
        if name not in self._drains:
            raise UnknownName(f"{name} is no engine here; there are: {', '.join(self._drains)}")
        return self._drains[name]

    def _turn(self, name: str, on: bool) -> None:
        hold = self._drains[name].hold
        self._tell(name, f"{hold.who}: {hold.why}" if hold is not None and on else None)

    def expire(self, desk: DeskSnapshot) -> None:
        """End what is over at the moment of that snapshot."""
        for drain in self._drains.values():
            drain.expire(desk.at)

    def begin(
        self,
        name: str,
        *,
        who: str,
        why: str,
        ttl: float | None,
        dry_run: bool = False,
        force: bool = False,
    ) -> Change:
        """Give that engine no more requests, until it is undrained or for `ttl` seconds. Raises
        UnknownName, and WouldWorsen where no other takes any, unless forced."""
        drain = self.named(name)
        if not force and is_last(name, self._engines()):
            raise WouldWorsen(
                f"no other engine takes requests now: without {name} all would wait or be refused; "
                "surgetank drain tells clients so at once"
            )
        before = drain.active
        if not dry_run:
            drain.begin(who, why, ttl)
        return Change(f"{name} draining", before, True, ttl, dry_run)

    def end(self, name: str, *, who: str, why: str, dry_run: bool = False) -> Change:
        """Give it requests again. Raises UnknownName."""
        drain = self.named(name)
        before = drain.active
        if not dry_run:
            drain.end(who, why)
        return Change(f"{name} draining", before, False, None, dry_run)


def is_last(name: str, engines: Iterable[EngineLook]) -> bool:
    """Whether that engine takes requests, and no other does."""
    return {engine.name for engine in engines if engine.state in TAKING} == {name}
