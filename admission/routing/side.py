"""One engine behind the gate: what the gate knows of it, has given it, and thinks of it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from surgetank.admission.backlog import PrefillBacklog
from surgetank.admission.engine_view import EngineView
from surgetank.admission.kv import usable
from surgetank.admission.permit import Ledger
from surgetank.admission.routing.others import kv_held, left
from surgetank.admission.routing.outlier import Standing
from surgetank.admission.routing.pushback import Pushback
from surgetank.admission.routing.slow_start import warmth
from surgetank.engine.api import Engine, ModelCard
from surgetank.engine.backends.remote.config import Role
from surgetank.engine.backends.remote.found import EMBEDDED, Vitals
from surgetank.telemetry.steprecord import StepRecord

_WARM = 0.95  # of its slots, from which an engine is called up


class SideState(StrEnum):
    """Whether an engine gets requests, and if not, why."""

    UP = "up"
    SLOW_START = "slow_start"  # it came up or back: it gets a part of its slots
    DRAINING = "draining"  # an operator wants it to get no more
    EJECTED = "ejected"  # it failed too often in a row
    DOWN = "down"
    OTHER_MODEL = "other_model"  # it serves another model than the first that came up
    PREFILL_ONLY = "prefill_only"  # by its role


TAKING = frozenset({SideState.UP, SideState.SLOW_START})


class Why(StrEnum):
    """Why a request went to its engine."""

    ONLY = "only"  # no other had room for it
    WAIT = "wait"  # the least predicted wait
    AFFINITY = "affinity"  # others with the same beginning went there


@dataclass(frozen=True, slots=True)
class Attached:
    """An engine as its adapter brings it."""

    engine: Engine
    name: str = EMBEDDED  # unique; a label value
    role: Role = Role.BOTH
    vitals: Callable[[], Vitals] = Vitals  # what it tells of itself beside its steps, now


class EngineSide:
    """The desk alone changes it. Times are monotonic seconds."""

    def __init__(self, at: int, attached: Attached, ledger: Ledger) -> None:
        """`at`: its place among its adapter's engines."""
        self.at = at
        self.name = attached.name
        self.role = attached.role
        self.engine = attached.engine
        self.vitals = attached.vitals
        self.view = EngineView()
        self.backlog = PrefillBacklog()
        self.ledger = ledger
        self.kv_blocks = 0  # that sequences may hold, as the engine last told; 0: not known
        self.kv_used: float | None = None  # share of these, as it last reported
        self.others = 0  # sequences in it that are not ours
        self.kv_others = 0.0  # blocks that they hold
        self.most = inf  # sequences that it may have, as its queue and refusals taught
        self.card: ModelCard | None = None  # None while it is not there
        self.other_model = False
        self.drained_at: float | None = None  # None: it does not drain
        self.drained_by = ""  # who drains it, and why
        self.restarts: int | None = None  # times that it came after the first; None: it never did
        self.changed_at = 0.0  # when it last came or went
        self.standing = Standing()
        self.pushback = Pushback()
        self.pardoned_at: float | None = None  # it is out, and gets requests: so is every other
        self.share = 1.0  # of its slots, that it gets beside warmer engines
        self.crowded = False  # affinity left it for others, and has not come back
        self.routed: Counter[Why] = Counter()
        self.moved_away = 0  # requests that went to another engine after this one

    @property
    def member(self) -> bool:
        """It is up, and requests could go to it but for what passes."""
        there = self.card is not None and self.engine.card is not None
        return there and not self.other_model and self.role is not Role.PREFILL

    @property
    def enlisted(self) -> bool:
        """A member that no operator drains."""
        return self.member and self.drained_at is None

    def came_up(self, card: ModelCard, now: float) -> None:
        """Another process, maybe another engine: nothing learned of the last one is kept, but for
        what the ledger and the backlog count: requests may be in it already."""
        self.card, self.changed_at = card, now
        self.restarts = 0 if self.restarts is None else self.restarts + 1
        self.view = EngineView(card.max_num_seqs, card.max_batch_tokens)
        self.kv_blocks, self.kv_used, self.most = usable(card), None, inf
        self.others, self.kv_others = 0, 0.0
        self.standing = Standing(ejections=self.standing.ejections)
        self.pushback = Pushback()
        self.crowded = False

    def stepped(self, record: StepRecord) -> None:
        """It told of its KV pool, and of what others have in it."""
        pool = record.kv_limit or record.kv_used + record.kv_cached + record.kv_free
        self.kv_used = record.kv_used / pool if pool else None
        self.kv_blocks = record.kv_limit or self.kv_blocks
        self.others = record.others
        self.kv_others = kv_held(record.kv_used, self.others, self.ledger.seqs)

    def went_down(self, now: float) -> None:
        """It is not there."""
        self.card, self.changed_at, self.other_model = None, now, False

    def age(self, now: float) -> float:
        """Seconds of its silence beyond what a step may take."""
        return self.view.age(self.engine.stalled_for(now))

    def warmth(self, now: float, slow_start: float) -> float:
        """The share of its slots that it would get by the time since it came up or back."""
        return warmth(now - max(self.changed_at, self.standing.back_at), slow_start)

    def slots(self, limit: float) -> float:
        """Sequences of ours that it may have: what it can run or has shown to, less what others
        have in it, at most what the limits allow each engine, and a part of that while it is new.
        """
        able = min(self.most, inf if self.card is None else self.card.max_num_seqs)
        most = min(limit, left(able, self.others))
        return most if self.share >= 1.0 else max(1.0, self.share * most)

    def state(self, now: float) -> SideState:
        """Whether it gets requests."""
        if self.card is None or self.engine.card is None:
            return SideState.DOWN
        if self.role is Role.PREFILL:
            return SideState.PREFILL_ONLY
        if self.other_model:
            return SideState.OTHER_MODEL
        if self.drained_at is not None:
            return SideState.DRAINING
        if self.standing.out(now) and self.pardoned_at is None:
            return SideState.EJECTED
        return SideState.UP if self.share >= _WARM else SideState.SLOW_START

    def since(self, state: SideState) -> float:
        """When that state began."""
        if state is SideState.DRAINING and self.drained_at is not None:
            return self.drained_at
        if state is SideState.EJECTED:
            return self.standing.ejected_at
        if state not in TAKING:
            return self.changed_at
        back = self.standing.back_at if self.pardoned_at is None else self.pardoned_at
        return max(self.changed_at, back)
