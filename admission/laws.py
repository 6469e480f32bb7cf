"""The laws at work: their estimators, fed with what happens, and their answers on one request.

Each law stands in a file of its own, as a pure function or a small estimator; here they only meet.
While the step model is not fitted they are silent: the fixed limits alone hold.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from surgetank.admission.backlog import PrefillBacklog
from surgetank.admission.binding import added_seconds, largest_batch
from surgetank.admission.cost import Estimate, engine_seconds
from surgetank.admission.engine_view import EngineView, Rates
from surgetank.admission.headroom import headroom, low_batch, noticed
from surgetank.admission.kv import LOW_CLASSES, Pressure, blocks_for
from surgetank.admission.laws_config import LawsConfig
from surgetank.admission.limits import Limit, Limits
from surgetank.admission.output_length import Expected, OutputLengths
from surgetank.admission.pace import Pace
from surgetank.admission.permit import Ledger, Permit
from surgetank.admission.queue import Queue
from surgetank.admission.threshold import Threshold, queue_bound, threshold
from surgetank.admission.ticket import Ticket
from surgetank.admission.wait import Calibration, Wait, predicted
from surgetank.engine.api import ModelCard
from surgetank.telemetry.slo import SloTargets
from surgetank.telemetry.stepmodel import StepModel
from surgetank.telemetry.steprecord import StepRecord
from surgetank.telemetry.vocabulary import Priority

_WEIGHT = 0.05  # of the newest request in the means
_COLD_HEADROOM = 0.25  # of the slots, left by low classes while rates are unknown
_LEAST_SHARE = 0.01  # of the engine, where a class has no floor share: W stays finite


class Held(StrEnum):
    """What keeps a request out of the engine: the bound that it meets first."""

    PREFILL = "prefill"  # prompts that go first fill the next step
    IN_FLIGHT_SEQS = "in_flight_seqs"  # a limit, or the engine's slots
    MAX_NUM_SEQS = "max_num_seqs"
    TPOT = "tpot"  # one more would make tokens too slow
    HEADROOM = "headroom"  # the slots that are left are kept for the classes above
    KV = "kv"  # the promised share of the KV pool


_SLOT_LIMITS = (Held.IN_FLIGHT_SEQS, Held.MAX_NUM_SEQS)


@dataclass(frozen=True, slots=True)
class LawsView:
    """What the laws believe, for status, explain and metrics. None: not known yet."""

    fitted: bool
    model: StepModel | None
    error: float  # of the step model, mean relative
    drain: float | None  # mu
    wait: Wait | None  # of an average request of the default class, if it came now
    threshold: float  # what it may be, seconds
    queue_bound: float | None  # Q_max, requests
    mean_cost: float  # engine-seconds
    largest_batch: float | None  # B_max
    unread: int  # prompt tokens in the engine
    kv_used: float | None  # share of the pool, promised or used
    kv_closed: bool
    tpot: float | None  # seconds of a decoding step of late


class Laws:
    """Estimators and answers. Feeding and asking are O(log n) at most; view() changes nothing."""

    def __init__(
        self,
        *,
        config: LawsConfig,
        targets: SloTargets,
        limits: Limits,
        queue: Queue,
        ledger: Ledger,
        pace: Pace,
    ) -> None:
        self.engine = EngineView()
        self.backlog = PrefillBacklog()
        self.mean_cost = 1.0 / pace.drain_rate
        self._config = config
        self._waits = {each: targets.ttft * config.patience(each) for each in Priority}
        self._targets = targets
        self._limits = limits
        self._queue = queue
        self._ledger = ledger
        self._pace = pace
        self._lengths = OutputLengths(config.output_quantile)
        self._calibration = Calibration()
        self._pressure = Pressure()
        self._mean_prompt = 0.0
        self._kv_used: float | None = None  # share of the pool, as the engine last reported

    # What happens.

    def engine_up(self, card: ModelCard) -> None:
        """Another process, maybe another engine: nothing learned of the last one is kept."""
        self.engine = EngineView(card.max_num_seqs, card.max_batch_tokens)
        self.backlog = PrefillBacklog()
        self._kv_used = None

    def stepped(self, record: StepRecord, cached: int) -> None:
        """The engine reported a step, in which prompts began that it held `cached` tokens of."""
        self._ledger.reported()
        cold = self.engine.rates is None
        self.engine.stepped(record, waiting=self._queue.requests > 0)
        if cold and self.engine.rates is not None:
            self._queue.reprice(self._repriced)
        self.backlog.read(record.prefill_tokens + cached)
        pool = record.kv_used + record.kv_cached + record.kv_free
        self._kv_used = record.kv_used / pool if pool else None

    def admitted(self, ticket: Ticket) -> None:
        """It may wait: the means follow what is admitted, not what anybody may ask for."""
        self.mean_cost += _WEIGHT * (ticket.estimate.seconds - self.mean_cost)
        self._mean_prompt += _WEIGHT * (ticket.prompt_tokens - self._mean_prompt)

    def dispatched(self, ticket: Ticket, card: ModelCard, now: float) -> Permit:
        """It goes to the engine: everything that it takes there."""
        self._queue.served(ticket, now)
        self.backlog.dispatched(ticket.priority, ticket.prompt_tokens)
        estimate = ticket.estimate
        return self._ledger.take(
            ticket.n,
            blocks_for(ticket.prompt_tokens, estimate.reserve, ticket.n, card.kv_block_size),
            seconds=estimate.seconds,
            prompt=ticket.prompt_tokens,
            output=estimate.output,
        )

    def heard(self, ticket: Ticket) -> None:
        """Its first token came: its prompt is read, and its wait known."""
        ticket.heard = True
        self.backlog.settled(ticket.priority, ticket.prompt_tokens)
        if ticket.forecast is None or ticket.first_token_at is None:
            return
        waited = ticket.first_token_at - ticket.arrived - ticket.estimate.prefill
        wait, stalled = ticket.forecast
        self._calibration.observe(
            ticket.priority, wait, max(0.0, waited - (self.engine.stalled - stalled))
        )

    def left(self, ticket: Ticket, *, served: bool) -> None:
        """It left the engine; `served`: by itself, so that its length says something."""
        if not ticket.heard:
            self.backlog.settled(ticket.priority, ticket.prompt_tokens)
        length = ticket.output_tokens / ticket.n
        if served and not length:
            return  # a proxy carried it, and nobody counted: what was expected stands
        if served:
            self._lengths.observe(ticket.tenant, ticket.door, ticket.max_tokens, round(length))
        actual = self._cost(ticket, length)
        self._queue.corrected(ticket, actual - ticket.estimate.seconds)

    # What follows from it.

    def estimate(self, ticket: Ticket, *, exact: bool) -> Estimate:
        """What it will be; `exact`: it will produce all of max_tokens."""
        expected = Expected(float(ticket.max_tokens), ticket.max_tokens)
        if self._config.dynamic and not exact:
            expected = self._lengths.expected(ticket.tenant, ticket.door, ticket.max_tokens)
        return self._priced(ticket, expected.mean, expected.high)

    def wait(
        self, ticket: Ticket, card: ModelCard, now: float, stalled_for: float | None
    ) -> Wait | None:
        """W; None while it cannot be known."""
        rates = self.engine.rates
        if rates is None or not self._config.dynamic:
            return None
        line, floor = self._queue.line(ticket, now), max(_LEAST_SHARE, self._config.floor_share)
        slot = 0.0
        if not (line.empty and self.slots_free(ticket, card, now)):
            running = self._ledger.seconds / max(1, self._ledger.seqs)
            slot = line.seconds(rates.drain, floor, running)
        tokens = self.backlog.tokens + line.tokens(rates.drain, floor)
        age = self.engine.age(stalled_for)
        return predicted(rates, slot, tokens, age, self._calibration.gamma(ticket.priority))

    def threshold(self, ticket: Ticket, now: float, *, contended: bool = False) -> Threshold:
        """How long it may wait; `contended`: it has to wait for a slot."""
        return threshold(
            self._limits.get(Limit.KAPPA),
            self.target(ticket.priority),
            self._slack(ticket, now),
            ticket.estimate.prefill if contended else 0.0,
        )

    def target(self, priority: Priority) -> float:
        """A class's TTFT target, seconds."""
        return self._waits[priority]

    def missed(self, ticket: Ticket, now: float) -> bool:
        """Whether it cannot have its first token within its target any more."""
        if self.engine.rates is None or not self._config.dynamic:
            return False
        return now - ticket.arrived + ticket.estimate.prefill > self.target(ticket.priority)

    def least(self, ticket: Ticket) -> float:
        """Seconds to its first token on an idle engine, at the least."""
        rates = self.engine.rates
        if rates is None:
            return self._pace.shortest_step
        return rates.model.t0 + rates.model.a * ticket.prompt_tokens

    def slots_free(self, ticket: Ticket, card: ModelCard, now: float) -> bool:
        """Whether slots and KV memory are there for it, by the limits and by the TPOT target."""
        get = self._limits.get
        most = min(get(Limit.IN_FLIGHT_SEQS), get(Limit.MAX_NUM_SEQS))
        share = get(Limit.KV_RESERVE)
        if self._config.dynamic:
            most = min(most, self._largest_batch(ticket))
            most = self._left_to(ticket, most, now)
            if ticket.priority in LOW_CLASSES:
                share = min(share, get(Limit.KV_RESERVE_LOW))
        return self._ledger.room(
            ticket.n,
            blocks_for(ticket.prompt_tokens, ticket.estimate.reserve, ticket.n, card.kv_block_size),
            max_seqs=most,
            max_kv_blocks=share * (card.kv_blocks or math.inf),
        )

    def held(self, ticket: Ticket, card: ModelCard, now: float) -> Held | None:
        """What keeps it out of the engine now; None: nothing."""
        if not self.prefill_free(ticket.priority):
            return Held.PREFILL
        if self.slots_free(ticket, card, now):
            return None
        bounds = {held: self._limits.get(Limit(held)) for held in _SLOT_LIMITS}
        if self._config.dynamic:
            bounds[Held.TPOT] = self._largest_batch(ticket)
        tightest = min(bounds, key=bounds.__getitem__)
        if self._ledger.seqs + ticket.n > bounds[tightest]:
            return tightest
        left = self._left_to(ticket, bounds[tightest], now)
        kept = self._config.dynamic and self._ledger.seqs + ticket.n > left
        return Held.HEADROOM if kept else Held.KV

    def average(self, now: float) -> Ticket:
        """A request such as come of late, of the default class."""
        return Ticket(
            id="",
            arrived=now,
            door="",
            priority=Priority.DEFAULT,
            prompt_tokens=round(self._mean_prompt),
            estimate=Estimate(0.0, 0, self.mean_cost),
        )

    def prefill_free(self, priority: Priority) -> bool:
        """Whether the engine has less than a step's worth of prompts to read that go first."""
        if not self._config.dynamic or not self.engine.fit.steps:
            return True  # nobody tells what is read
        return self.backlog.before(priority) < self.engine.chunk

    def kv_pressure(self, card: ModelCard) -> float | None:
        """The pool's use while it keeps the lower classes out; None while it does not."""
        used = self.kv_share(card)
        low, high = self._limits.get(Limit.KV_RESERVE_LOW), self._limits.get(Limit.KV_RESERVE)
        closed = self._pressure.update(used, low=min(low, high), high=high)
        return used if closed and self._config.dynamic else None

    def _sees_kv(self, card: ModelCard) -> bool:
        return bool(card.kv_blocks) or self._kv_used is not None

    def kv_share(self, card: ModelCard) -> float:
        """The pool's use: what is promised, or what the engine reported if that is more."""
        promised = self._ledger.kv_blocks / (card.kv_blocks or math.inf)
        return max(promised, self._kv_used or 0.0)

    @property
    def in_engine(self) -> int:
        """Sequences dispatched and not ended."""
        return self._ledger.seqs

    def view(self, card: ModelCard | None, now: float, stalled_for: float | None) -> LawsView:
        """All of it, now."""
        rates = self.engine.rates
        probe = self.average(now)
        allowed = self.threshold(probe, now).seconds
        known = rates is not None and card is not None
        return LawsView(
            fitted=rates is not None,
            model=None if rates is None else rates.model,
            error=self.engine.fit.error,
            drain=None if rates is None else rates.drain,
            wait=None if card is None else self.wait(probe, card, now, stalled_for),
            threshold=allowed,
            queue_bound=None
            if rates is None
            else queue_bound(allowed, rates.drain, max(1e-9, self.mean_cost)),
            mean_cost=self.mean_cost,
            largest_batch=self._largest_batch(probe) if known and self._ledger.seqs else None,
            unread=self.backlog.tokens,
            kv_used=self.kv_share(card) if card is not None and self._sees_kv(card) else None,
            kv_closed=self._pressure.closed,
            tpot=None if rates is None else rates.tpot,
        )

    def _priced(self, ticket: Ticket, output: float, reserve: int) -> Estimate:
        rates = self.engine.rates
        prefill = 0.0 if rates is None else _own_prefill(rates, ticket.prompt_tokens)
        return Estimate(output, reserve, self._cost(ticket, output), prefill)

    def _repriced(self, ticket: Ticket) -> Estimate:
        """The step model is fitted: what was priced without it is not left so."""
        return self._priced(ticket, ticket.estimate.output, ticket.estimate.reserve)

    def _cost(self, ticket: Ticket, output: float) -> float:
        rates = self.engine.rates
        if rates is None:
            return ticket.n / self._pace.drain_rate
        prompt = ticket.prompt_tokens
        return engine_seconds(rates.model, rates.batch, prompt, output, ticket.n)

    def _slack(self, ticket: Ticket, now: float) -> float:
        """What a caller's deadline and read timeout leave for waiting; infinite without."""
        rates, estimate = self.engine.rates, ticket.estimate
        decode = 0.0 if rates is None else rates.tpot * estimate.output
        slack = math.inf
        if ticket.deadline is not None:
            slack = ticket.deadline - now - estimate.prefill - decode
        if ticket.patience is not None:
            silent = ticket.arrived + ticket.patience - now - estimate.prefill
            slack = min(slack, silent if ticket.stream else silent - decode)
        return slack

    def _largest_batch(self, ticket: Ticket) -> float:
        rates = self.engine.rates
        if rates is None:
            return math.inf
        prompt, output = self._with(ticket)
        return largest_batch(
            rates.model,
            target=self._targets.tpot,
            prompt=prompt,
            output=output,
            least=self._config.least_batch,
        )

    def _with(self, ticket: Ticket) -> tuple[float, float]:
        """Mean prompt and output tokens of all that runs, the ticket included."""
        ledger = self._ledger
        seqs = ledger.seqs + ticket.n
        output = (ledger.output + ticket.n * ticket.estimate.output) / seqs
        return (ledger.prompt + ticket.prompt_tokens) / seqs, max(1.0, output)

    def _left_to(self, ticket: Ticket, slots: float, now: float) -> float:
        """How many of the slots its class may fill; the others are kept for those above it,
        unless its floor share is due."""
        rates, low = self.engine.rates, ticket.priority in LOW_CLASSES
        if rates is None:
            return slots - (_COLD_HEADROOM * slots if low else 0.0)
        above = self._queue.above_rate(ticket.priority, now)
        if not noticed(above, rates.drain) or self._queue.due(ticket):
            return slots
        slots -= headroom(above, rates.drain)
        if not low:
            return slots
        each = added_seconds(rates.model, *self._with(ticket))
        fill = low_batch(self._config.low_fill, rates.model.a * rates.chunk, each)
        return min(slots, max(fill, self._config.least_batch))


def _own_prefill(rates: Rates, prompt: int) -> float:
    """Seconds to read a prompt in chunks, among those that decode now."""
    others = rates.model.seconds(0, rates.decoding, rates.resident)
    steps = math.ceil(prompt / rates.chunk)
    return (rates.model.a * prompt + steps * others) / rates.drain
