"""What the desk looks like at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from surgetank.admission.flow import Flow
from surgetank.admission.laws import LawsView
from surgetank.admission.limits import Limit, LimitView
from surgetank.admission.outcome import Refusal
from surgetank.admission.queue import Queue, QueueLevel
from surgetank.admission.routing.side import TAKING, SideState, Why
from surgetank.admission.ticket import Ticket
from surgetank.engine.api import ModelCard
from surgetank.engine.backends.remote.config import Role
from surgetank.engine.backends.remote.found import Vitals
from surgetank.telemetry.stepmodel import StepModel
from surgetank.telemetry.steprecord import StepRecord


class Ended(msgspec.Struct, frozen=True):
    """A request that is over, kept for a while for `status` and `explain`."""

    ticket: Ticket
    refusal: Refusal | None  # None when it was served


@dataclass(frozen=True, slots=True)
class EngineLook:
    """One engine behind the gate. None stands for what cannot be known."""

    name: str
    url: str  # "": the embedded one
    role: Role
    state: SideState
    since: float  # monotonic seconds, when that state began
    back_at: float | None  # of an ejected one: when it comes back
    card: ModelCard | None  # None while it is not there
    vitals: Vitals
    last_step: StepRecord | None
    stalled_for: float | None  # as in DeskSnapshot
    dispatched: int  # requests in it
    dispatched_seqs: int
    slots: float  # sequences that it may have now, by the limits, what was learned and slow start
    learned_slots: float | None  # as its queue and refusals taught; None: they taught nothing
    unread: int  # prompt tokens in it
    others: int  # sequences in it that are not ours, as it last told
    kv_blocks: int  # that its sequences may hold; 0: not known
    kv_promised: float | None  # share of them
    kv_used: float | None  # the same, or what it reported if that is more
    drain: float | None  # mu, engine-seconds per second
    model: StepModel | None
    model_error: float  # mean relative
    wait: float | None  # seconds to read an average prompt that were sent there now
    largest_batch: float | None  # B_max there
    faults: int  # in a row
    ejections: int  # since the start
    routed: Mapping[Why, int]  # requests that went there, since the start
    moved_away: int  # of these, how many then went to another engine
    restarts: int  # times that it came back, or was seen to be another process, since the start

    @property
    def drift(self) -> int | None:
        """Sequences that we count in it and it does not, and requests that it is long done with and
        that still hold their room; below 0: sequences that it has beside ours. None: it tells no
        count."""
        vitals = self.vitals
        if vitals.drift is None:
            return None
        held = 0 if vitals.requests is None else self.dispatched - vitals.requests
        return vitals.drift + held


@dataclass(frozen=True, slots=True)
class DeskSnapshot:
    """The desk at `at` (monotonic seconds). None stands for what cannot be known."""

    at: float
    model: str | None  # None while the engine is not there
    draining: bool
    in_flight: int  # requests received and not ended
    queue: tuple[QueueLevel, ...]
    dispatched: int  # requests in the engine
    dispatched_seqs: int
    kv_blocks_reserved: int
    kv_blocks: int | None
    drain_rate: float  # choices per second
    stalled_for: float | None  # seconds without a step while the engine has work; None = down
    last_step: StepRecord | None
    laws: LawsView
    flow: Flow
    tpot_target: float  # seconds
    retry_budget: float  # engine-seconds
    limits: tuple[LimitView, ...]
    limit_usage: dict[str, float]
    ignored_headers: dict[tuple[str, str], int]  # by header and problem
    vitals: Vitals = field(default_factory=Vitals)  # what the first engine tells beside its steps
    engines: tuple[EngineLook, ...] = ()  # all of them, in the order of the configuration

    @property
    def backend_up(self) -> bool:
        """Whether the engine is connected."""
        return self.model is not None

    @property
    def there(self) -> tuple[EngineLook, ...]:
        """The engines that are connected."""
        return tuple(engine for engine in self.engines if engine.card is not None)

    @property
    def card(self) -> ModelCard | None:
        """Of the first engine that is there."""
        return next((engine.card for engine in self.there), None)

    @property
    def slots(self) -> int:
        """Sequences that the engines which get requests run at once."""
        taking = (engine for engine in self.there if engine.state in TAKING)
        return sum(engine.card.max_num_seqs for engine in taking if engine.card is not None)

    @property
    def kv_usable(self) -> int | None:
        """Of all KV blocks, those that sequences may hold."""
        return None if self.kv_blocks is None else sum(each.kv_blocks for each in self.there)

    @property
    def ledger_drift(self) -> int | None:
        """Sequences that we count in the engines less those that they do, by what they told of the
        same moment; None before any did."""
        told = [drift for each in self.engines if (drift := each.drift) is not None]
        return sum(told) if told else None

    def view(self, name: Limit) -> LimitView:
        """One limit as it stands."""
        return next(view for view in self.limits if view.name is name)

    @property
    def queue_requests(self) -> int:
        """Waiting requests of all classes; one of n choices counts n."""
        return sum(sum(level.requests.values()) for level in self.queue)

    @property
    def queue_tokens(self) -> int:
        """Prompt tokens of everything that waits."""
        return sum(level.tokens for level in self.queue)

    @property
    def queue_oldest_age(self) -> float | None:
        """Seconds; None when nothing waits."""
        ages = (level.oldest_age for level in self.queue)
        return max((age for age in ages if age is not None), default=None)


def limit_usage(
    queue: Queue, engines: tuple[EngineLook, ...], levels: tuple[QueueLevel, ...]
) -> dict[str, float]:
    """How much of each limit is taken, where that can be known, by its name; of those that hold for
    each engine, what the fullest has."""
    usage = {
        Limit.QUEUE_REQUESTS.value: float(queue.requests),
        Limit.QUEUE_TOKENS.value: float(queue.tokens),
        Limit.QUEUE_WAIT.value: max(level.oldest_age or 0.0 for level in levels),
        Limit.IN_FLIGHT_SEQS.value: float(max(each.dispatched_seqs for each in engines)),
    }
    promised = [each.kv_promised for each in engines if each.kv_promised is not None]
    if promised:
        usage[Limit.KV_RESERVE.value] = max(promised)
    return usage
