"""The engines behind the gate as they come and go: which model is served, and by which of them.

The first that comes up says which model that is; engines with another are watched and get nothing,
until none of the first is left. Requests are taken while one engine is there that may get them.
"""

import logging
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Generic

from msgspec.structs import replace

from surgetank.admission import refusals
from surgetank.admission.flow import FlowCount
from surgetank.admission.gate import GateConfig
from surgetank.admission.laws import Laws
from surgetank.admission.limits import Limit, Limits
from surgetank.admission.lint import lint_engine
from surgetank.admission.outcome import Refusal
from surgetank.admission.pace import Pace
from surgetank.admission.routing.look import look_at
from surgetank.admission.routing.side import EngineSide, SideState
from surgetank.admission.routing.sides import Sides
from surgetank.admission.snapshot import EngineLook
from surgetank.admission.work import Adapter, ModelT
from surgetank.engine.api import ModelCard, StepOutput, Watcher
from surgetank.engine.backends.remote.config import Role
from surgetank.telemetry.recorder import Recorder

log = logging.getLogger(__name__)


class UnknownEngine(LookupError):
    """There is no engine of that name; says which there are."""

    def __str__(self) -> str:
        return str(self.args[0])


class Engines(Generic[ModelT]):
    """On the event loop's thread. `watchers`: one for each engine, in their order."""

    def __init__(
        self,
        *,
        adapter: Adapter[ModelT, Any, Any],
        sides: Sides,
        config: GateConfig,
        limits: Limits,
        laws: Laws,
        pace: Pace,
        flow: FlowCount,
        recorder: Recorder,
        now: Callable[[], float],
        pump: Callable[[], None],
        end_within: Callable[[EngineSide, str], None],
        end_waiting: Callable[[Refusal], None],
    ) -> None:
        """`pump`: requests may go on. `end_within`, `end_waiting`: what that engine has ends, or
        what waits, and why."""
        self.served: ModelT | None = None  # None: no engine takes requests
        self.known: ModelT | None = None  # the last one served, for its name and its codec
        self.watchers: Sequence[Watcher] = [_SideWatcher(self, side) for side in sides.all]
        self._adapter = adapter
        self._sides = sides
        self._config = config
        self._limits = limits
        self._laws = laws
        self._pace = pace
        self._flow = flow
        self._recorder = recorder
        self._now = now
        self._pump = pump
        self._end_within = end_within
        self._end_waiting = end_waiting

    @property
    def names(self) -> tuple[str, ...]:
        """Of all engines, in the order of the configuration."""
        return tuple(side.name for side in self._sides.all)

    @property
    def serving(self) -> ModelT | None:
        """The same, unless all that could take any refuse connections: they stop."""
        return self.served if self._sides.takes else None

    def absent(self, detail: str = "the engine is not connected") -> Refusal:
        """Why no engine takes requests; `detail`: where no operator has to do with it."""
        sides = [side for side in self._sides.all if side.role is not Role.PREFILL]
        drained = any(side.member and side.drained_at is not None for side in sides)
        if not drained or self._sides.takes:
            return refusals.backend_down(detail)
        said = ", ".join(f"{side.name} {_out(side, self._now())}" for side in sides)
        if all(side.drained_at is not None for side in sides):
            return refusals.drained(said)
        return refusals.backend_down(f"no engine takes requests: {said}")

    def serves(self, served: ModelT) -> bool:
        """Whether what was asked of that model can still be asked. Of one engine that came back,
        nobody knows that it is the same."""
        if self.served is None or self._sides.one is not None:
            return self.served is not None and self.served.card is served.card
        return self.served.name == served.name

    def drain(self, name: str, by: str = "") -> None:
        """Give that engine no new requests; what it has, it finishes. `by`: who wants it, and why.
        Raises UnknownEngine."""
        side = self._named(name)
        side.drained_by = by
        if side.drained_at is None:
            side.drained_at = self._now()
            if self._closed():
                self._end_waiting(self.absent())
            self._settle()

    def undrain(self, name: str) -> None:
        """It gets requests again. Raises UnknownEngine."""
        side = self._named(name)
        if side.drained_at is not None:
            side.drained_at = None
            self._settle()

    def hold(self, name: str, most: float | None) -> None:
        """That engine runs so many sequences at once, as it shows; None: it shows nothing. Raises
        UnknownEngine."""
        self._named(name).most = inf if most is None else most
        self._pump()

    def looks(self, now: float) -> tuple[EngineLook, ...]:
        """Every engine, now."""
        self._sides.look(now)
        return tuple(look_at(side, self._sides, self._laws, now) for side in self._sides.all)

    # What the engines tell.

    def stepped(self, side: EngineSide, output: StepOutput) -> None:
        """A step's tokens were delivered."""
        if output.record is None:
            return
        self._pace.stepped(output.record)
        self._flow.stepped(output.record)
        cached = sum(started.cached_tokens for started in output.started)
        self._laws.stepped(side, output.record, cached)
        self._pump()

    def up(self, side: EngineSide, card: ModelCard) -> None:
        """An engine is there."""
        side.came_up(card, self._now())
        self._settle()
        for finding in lint_engine(self._config, card):
            log.warning("%s", finding)

    def down(self, side: EngineSide, detail: str) -> None:
        """An engine is not there any more."""
        if side.vitals().foreign:
            detail = "the engine was lost"  # clients are told no addresses
        side.went_down(self._now())
        closed = self._closed()
        self._end_within(side, detail)
        if closed:
            self._end_waiting(self.absent(detail))
        self._settle()

    # Inside.

    def _named(self, name: str) -> EngineSide:
        for side in self._sides.all:
            if side.name == name:
                return side
        raise UnknownEngine(f"no engine {name!r}; there are: {', '.join(self.names)}")

    def _closed(self) -> bool:
        """Whether the last engine that takes requests for the model is gone. What waits must end
        before another model is served: its engines would get it."""
        if self._sides.takes:
            return False
        self.served = None
        return True

    def _settle(self) -> None:
        """Which model is served, by the engines that are there."""
        self._sides.learned()
        there = [
            (side, side.card)
            for side in self._sides.all
            if side.card is not None and side.role is not Role.PREFILL
        ]
        cards = [card for _, card in there]
        name = self._first_model(cards)
        for side, card in there:
            side.other_model = card.name != name
        if not any(side.enlisted for side, _ in there):
            return
        card = largest([card for card in cards if card.name == name])
        try:
            self.served = self.known = self._adapter.serve(card, self.known)
        except ValueError:
            log.exception("model %s cannot be served", card.name)
            return
        self._tell_limits(card)
        self._pump()

    def _first_model(self, cards: Sequence[ModelCard]) -> str | None:
        """The model that is known, while an engine has it; else that of any."""
        names = [card.name for card in cards]
        if self.known is not None and self.known.card.name in names:
            return self.known.card.name
        return names[0] if names else None

    def _tell_limits(self, card: ModelCard) -> None:
        self._recorder.allow_model(card.name)
        limits = self._limits
        limits.set_maximum(Limit.IN_FLIGHT_SEQS, card.max_num_seqs, "engine")
        limits.set_maximum(Limit.MAX_NUM_SEQS, card.max_num_seqs, "engine")
        limits.set_maximum(Limit.MAX_BATCH_TOKENS, card.max_batch_tokens, "engine")
        for name in (Limit.PREFILL_SHARE, Limit.KV_WATERMARK, Limit.TPOT_TARGET):
            limits.set_base(name, getattr(card, name.value), "engine")


class _SideWatcher:
    """Implements engine.api.Watcher for one engine."""

    def __init__(self, engines: Engines[Any], side: EngineSide) -> None:
        self._engines = engines
        self._side = side

    def on_step(self, output: StepOutput) -> None:
        self._engines.stepped(self._side, output)

    def on_up(self, card: ModelCard) -> None:
        self._engines.up(self._side, card)

    def on_down(self, detail: str) -> None:
        self._engines.down(self._side, detail)


def _out(side: EngineSide, now: float) -> str:
    """Why it takes no requests, in words."""
    state = side.state(now)
    if state is SideState.DRAINING:
        return f"is drained by {side.drained_by}" if side.drained_by else "is drained"
    return "serves another model" if state is SideState.OTHER_MODEL else "is not connected"


def largest(cards: Sequence[ModelCard]) -> ModelCard:
    """The card of an engine with the most of each size that one of them has. Sizes of 0 are not
    known, and bound nothing."""
    first, *others = cards
    if not others:
        return first
    pool = max(cards, key=lambda card: _unbounded(card.kv_blocks * card.kv_block_size))
    return replace(
        first,
        context_length=_most([card.context_length for card in cards]),
        kv_blocks=pool.kv_blocks,
        kv_block_size=pool.kv_block_size,
        max_num_seqs=max(card.max_num_seqs for card in cards),
        max_batch_tokens=max(card.max_batch_tokens for card in cards),
    )


def _most(sizes: Sequence[int]) -> int:
    return max(sizes) if all(sizes) else 0


def _unbounded(size: int) -> float:
    return float(size) if size else inf
