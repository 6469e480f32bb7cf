"""The laws at work: their estimators, fed with what happens, and their answers on one request.

Each law stands in a file of its own, as a pure function or a small estimator; here they only meet.
While the step model is not fitted they are silent: the fixed limits alone hold. What an engine can
take is asked of each (room.py), how long a request waits of all together.
"""

import math
from dataclasses import dataclass

from surgetank.admission.cost import Estimate, engine_seconds
from surgetank.admission.engine_view import Rates
from surgetank.admission.fits import never_fits
from surgetank.admission.kv import Pressure, blocks_for
from surgetank.admission.laws_config import LawsConfig
from surgetank.admission.limits import Limit, Limits
from surgetank.admission.outcome import Refusal
from surgetank.admission.output_length import Expected, OutputLengths
from surgetank.admission.pace import Pace
from surgetank.admission.permit import Permit
from surgetank.admission.queue import Queue
from surgetank.admission.room import Held, Room
from surgetank.admission.routing.side import EngineSide
from surgetank.admission.routing.sides import Sides
from surgetank.admission.threshold import Threshold, queue_bound, threshold
from surgetank.admission.ticket import Ticket
from surgetank.admission.wait import Calibration, Wait, reading, reading_shared
from surgetank.engine.api import ModelCard
from surgetank.telemetry.slo import SloTargets
from surgetank.telemetry.stepmodel import StepModel
from surgetank.telemetry.steprecord import StepRecord
from surgetank.telemetry.vocabulary import Lane, Priority

_WEIGHT = 0.05  # of the newest request in the means
_LEAST_SHARE = 0.01  # of the engine, where a class has no floor share: W stays finite


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
        sides: Sides,
        pace: Pace,
    ) -> None:
        self.mean_cost = 1.0 / pace.drain_rate
        self._seen = 0  # requests in the means, since their cost can be told
        self.room = Room(config=config, targets=targets, limits=limits, queue=queue, sides=sides)
        self._sides = sides
        self._config = config
        self._waits = {each: targets.ttft * config.patience(each) for each in Priority}
        self._limits = limits
        self._queue = queue
        self._pace = pace
        self._lengths = OutputLengths(config.output_quantile)
        self._calibration = Calibration()
        self._pressure = Pressure()
        self._dispatched_at = 0.0  # the newest of all

    # What happens.

    def stepped(self, side: EngineSide, record: StepRecord, cached: int) -> None:
        """An engine reported a step, in which prompts began that it held `cached` tokens of."""
        cold = self._sides.rates is None
        side.view.stepped(record, waiting=self._queue.requests > 0)
        self._sides.learned()
        if cold and self._sides.rates is not None:
            self._seen = 0
            self._queue.reprice(self._repriced)
        side.backlog.read(record.prefill_tokens + cached)
        side.stepped(record)

    def admitted(self, ticket: Ticket) -> None:
        """It may wait: the means follow what is admitted, not what anybody may ask for."""
        self._seen += 1
        weight = max(_WEIGHT, 1.0 / self._seen)
        self.mean_cost += weight * (ticket.estimate.seconds - self.mean_cost)
        sides = self._sides
        sides.mean_prompt += weight * (ticket.prompt_tokens - sides.mean_prompt)

    def dispatched(self, ticket: Ticket, side: EngineSide, now: float) -> Permit:
        """It goes to that engine: everything that it takes there, at what it costs there."""
        if self._sides.one is None:
            rates, estimate = side.view.rates or self._sides.rates, ticket.estimate
            ticket.estimate = self._priced(rates, ticket, estimate.output, estimate.reserve)
            if ticket.forecast is not None:
                ticket.forecast = (ticket.forecast[0], side.view.stalled)
        self._queue.served(ticket, now)
        self._dispatched_at = now
        side.backlog.dispatched(ticket.priority, ticket.prompt_tokens)
        estimate, size = ticket.estimate, 1 if side.card is None else side.card.kv_block_size
        return side.ledger.take(
            ticket.n,
            blocks_for(ticket.prompt_tokens, estimate.reserve, ticket.n, size),
            seconds=estimate.seconds,
            prompt=ticket.prompt_tokens,
            output=estimate.output,
        )

    def heard(self, ticket: Ticket, side: EngineSide) -> None:
        """Its first token came: its prompt is read, and its wait known."""
        if not ticket.heard:  # a stream that was not asked for speaks after it counted as read
            ticket.heard = True
            side.backlog.settled(ticket.priority, ticket.prompt_tokens)
        if ticket.forecast is None or ticket.first_token_at is None:
            return
        waited = ticket.first_token_at - ticket.arrived - ticket.estimate.prefill
        wait, stalled = ticket.forecast
        self._calibration.observe(
            ticket.priority, wait, max(0.0, waited - (side.view.stalled - stalled))
        )

    def left(self, ticket: Ticket, side: EngineSide, *, served: bool) -> None:
        """It left the engine; `served`: by itself, so that its length says something."""
        if not ticket.heard:
            side.backlog.settled(ticket.priority, ticket.prompt_tokens)
        length = ticket.output_tokens / ticket.n
        if served and not length:
            return  # a proxy carried it, and nobody counted: what was expected stands
        if served:
            self._lengths.observe(ticket.tenant, ticket.door, ticket.max_tokens, round(length))
        actual = self._cost(side.view.rates or self._sides.rates, ticket, length)
        self._queue.corrected(ticket, actual - ticket.estimate.seconds)

    def moved(self, ticket: Ticket, side: EngineSide) -> None:
        """It comes back from an engine that did nothing for it, to wait for another."""
        if not ticket.heard:
            side.backlog.settled(ticket.priority, ticket.prompt_tokens)
        ticket.heard, ticket.forecast = False, None  # nobody had predicted that it waits twice
        self._queue.corrected(ticket, -ticket.estimate.seconds)
        ticket.estimate = self._repriced(ticket)

    # What follows from it.

    def estimate(self, ticket: Ticket, *, exact: bool) -> Estimate:
        """What it will be; `exact`: it will produce all of max_tokens."""
        if self._config.dynamic and not exact:
            expected = self._lengths.expected(ticket.tenant, ticket.door, ticket.max_tokens)
        else:
            expected = Expected(float(ticket.max_tokens), ticket.max_tokens)
        return self._priced(self._sides.rates, ticket, expected.mean, expected.high)

    @property
    def predicts(self) -> bool:
        """Whether W can be known."""
        return self._sides.rates is not None and self._config.dynamic

    def wait(self, ticket: Ticket, now: float) -> Wait | None:
        """W; None while it cannot be known."""
        rates = self._sides.rates
        if rates is None or not self._config.dynamic:
            return None
        line, floor = self._queue.line(ticket, now), max(_LEAST_SHARE, self._config.floor_share)
        slot = 0.0
        if not (line.empty and self.slots_free(ticket, now)):
            whole = self._sides.whole
            running = whole.seconds / max(1, whole.seqs)
            if whole.seqs == 1:  # what is left of it
                running = max(0.0, running - rates.drain * (now - self._dispatched_at))
            slot = line.seconds(rates.drain, floor, running)
        prefill = self._reading(rates, line.tokens(rates.drain, floor))
        age = self._sides.age(now)
        return Wait(slot, prefill, age, self._calibration.gamma(ticket.priority))

    def threshold(self, ticket: Ticket, now: float, *, contended: bool = False) -> Threshold:
        """How long it may wait; `contended`: it has to wait for a slot."""
        share = self._config.retry_wait_share if ticket.lane is Lane.RETRY else 1.0
        return threshold(
            share * self._limits.get(Limit.KAPPA),
            self.target(ticket.priority),
            self._slack(ticket, now),
            ticket.estimate.prefill if contended else 0.0,
        )

    def target(self, priority: Priority) -> float:
        """What a class's first token may take, seconds: its TTFT target, or more where that would
        leave no room for the least queue."""
        target, rates = self._waits[priority], self._sides.rates
        if rates is None:
            return target
        # T with which kappa * T is the wait behind a queue that is never too long.
        seconds = self._config.least_queue * self.mean_cost / rates.drain
        return max(target, seconds / self._limits.get(Limit.KAPPA))

    def missed(self, ticket: Ticket, now: float) -> bool:
        """Whether its first token can no more come within its target, or what its caller waits for
        while he does."""
        if self._sides.rates is None or not self._config.dynamic:
            return False
        late = now - ticket.arrived + ticket.estimate.prefill > self.target(ticket.priority)
        return late or self._slack(ticket, now) < 0.0

    def least(self, ticket: Ticket) -> float:
        """Seconds to its first token on an idle engine, at the least. One that is idle, and that
        its model does not describe, takes what comes: else nothing would put the model right."""
        rates = self._sides.rates
        if rates is None or (not self._sides.whole.seqs and self.doubtful):
            return self._pace.shortest_step
        return rates.model.t0 + rates.model.a * ticket.prompt_tokens

    @property
    def doubtful(self) -> bool:
        """Whether the step model of an engine does not describe it."""
        return any(side.view.fit.alarm for side in self._sides.open)

    @property
    def unsure(self) -> bool:
        """Whether the queue is so short that a doubtful model is no reason to keep it shorter."""
        return self.doubtful and self._queue.requests < self._config.least_queue

    def fits_none(self, ticket: Ticket) -> Refusal | None:
        """Why it is too large for each of several engines, though one has the memory for it and
        another the context; None: one could run it."""
        refusal = None
        for side in self._sides.all if self._sides.one is None else ():
            if side.card is not None and side.member:
                refusal = never_fits(ticket, side.card, self._limits)
                if refusal is None:
                    break
        return refusal

    def slots_free(self, ticket: Ticket, now: float) -> bool:
        """Whether an engine has slots and KV memory for it."""
        room = self.room
        return any(room.slots_free(side, ticket, now) for side in self._sides.open)

    def free(self, ticket: Ticket, now: float) -> bool:
        """Whether an engine could begin with it at once."""
        room = self.room
        return any(
            room.prefill_free(side, ticket.priority) and room.slots_free(side, ticket, now)
            for side in self._sides.open
        )

    def held(self, ticket: Ticket, now: float) -> Held | None:
        """What keeps it out of the engines now, of several the first; None: nothing."""
        held = [self.room.held(side, ticket, now) for side in self._sides.open]
        return held[0] if held and all(held) else None

    def average(self, now: float) -> Ticket:
        """A request such as come of late, of the default class."""
        return Ticket(
            id="",
            arrived=now,
            door="",
            priority=Priority.DEFAULT,
            prompt_tokens=round(self._sides.mean_prompt),
            estimate=Estimate(0.0, 0, self.mean_cost),
        )

    def kv_pressure(self) -> float | None:
        """The pool's use while it keeps the lower classes out; None while it does not."""
        used = self.kv_share()
        low, high = self._limits.get(Limit.KV_RESERVE_LOW), self._limits.get(Limit.KV_RESERVE)
        closed = self._pressure.update(used, low=min(low, high), high=high)
        return used if closed and self._config.dynamic else None

    def kv_share(self) -> float:
        """The pool's use; of several the least: there is room while one has some."""
        one = self._sides.one
        if one is not None:
            return self.room.kv_share(one)
        return min((self.room.kv_share(side) for side in self._sides.open), default=0.0)

    @property
    def in_engine(self) -> int:
        """Sequences dispatched and not ended."""
        return self._sides.whole.seqs

    @property
    def drain(self) -> float:
        """mu of all engines; 1 while it is not known."""
        rates = self._sides.rates
        return 1.0 if rates is None else rates.drain

    def view(self, card: ModelCard | None, now: float) -> LawsView:
        """All of it, now; the batch of the first engine that gets requests."""
        sides, rates, probe = self._sides, self._sides.rates, self.average(now)
        allowed, first = self.threshold(probe, now).seconds, sides.open[0] if sides.open else None
        batch = None
        if rates is not None and card is not None and first is not None and first.ledger.seqs:
            batch = self.room.largest_batch(first, probe)
        views = [side.view for side in sides.open]
        return LawsView(
            fitted=rates is not None,
            model=None if rates is None else rates.model,
            error=max((view.fit.error for view in views), default=0.0),
            drain=None if rates is None else rates.drain,
            wait=None if card is None else self.wait(probe, now),
            threshold=allowed,
            queue_bound=None
            if rates is None
            else queue_bound(allowed, rates.drain, max(1e-9, self.mean_cost)),
            mean_cost=self.mean_cost,
            largest_batch=batch,
            unread=sum(side.backlog.tokens for side in sides.all),
            kv_used=self.kv_share()
            if card is not None and any(self.room.sees_kv(side) for side in sides.open)
            else None,
            kv_closed=self._pressure.closed,
            tpot=None if rates is None else rates.tpot,
        )

    def _repriced(self, ticket: Ticket) -> Estimate:
        """What is known of the engines has changed: what was priced before is not left so."""
        estimate = ticket.estimate
        return self._priced(self._sides.rates, ticket, estimate.output, estimate.reserve)

    def _priced(self, rates: Rates | None, ticket: Ticket, output: float, reserve: int) -> Estimate:
        prefill = 0.0 if rates is None else _own_prefill(rates, ticket.prompt_tokens)
        return Estimate(output, reserve, self._cost(rates, ticket, output), prefill)

    def _cost(self, rates: Rates | None, ticket: Ticket, output: float) -> float:
        if rates is None:
            return ticket.n / self._pace.drain_rate
        prompt = ticket.prompt_tokens
        return engine_seconds(rates.model, rates.batch, prompt, output, ticket.n)

    def _reading(self, rates: Rates, queued: float) -> float:
        """W_pre: seconds until what is unread and what is `queued` is read."""
        one = self._sides.one
        if one is not None:
            return reading(rates, one.backlog.tokens + queued)
        readers = [(side.view.rates or rates, side.backlog.tokens) for side in self._sides.open]
        return reading_shared(readers, queued)

    def _slack(self, ticket: Ticket, now: float) -> float:
        """What a caller's deadline and read timeout leave for waiting; infinite without."""
        if ticket.deadline is None and ticket.patience is None:
            return math.inf
        rates, estimate = self._sides.rates, ticket.estimate
        decode = 0.0 if rates is None else rates.tpot * estimate.output
        slack = math.inf
        if ticket.deadline is not None:
            slack = ticket.deadline - now - estimate.prefill - decode
        if ticket.patience is not None:
            silent = ticket.arrived + ticket.patience - now - estimate.prefill
            slack = min(slack, silent if ticket.stream else silent - decode)
        return slack


def _own_prefill(rates: Rates, prompt: int) -> float:
    """Seconds to read a prompt in chunks, among those that decode now."""
    others = rates.model.seconds(0, rates.decoding, rates.resident)
    steps = math.ceil(prompt / rates.chunk)
    return (rates.model.a * prompt + steps * others) / rates.drain
