"""All engines behind the gate as one: which get requests now, and what they can do together.

Where there is one, it is the whole. Of several, only those count that may get requests now. Their
drain rates add up. Their step models are mixed by w_i, the share of the requests that each takes
when all are busy:

    w_i ~ mu_i / C_i        C_i: what the average request costs engine i, in its own engine-seconds

so that sum(mu) / C of the mixed model is the sum of mu_i / C_i: what they serve together. One that
is new counts for the share of its slots that it gets (slow_start.py).
"""

from collections.abc import Callable, Sequence
from math import inf

from msgspec.structs import replace

from surgetank.admission.cost import engine_seconds
from surgetank.admission.engine_view import Rates
from surgetank.admission.permit import Ledger
from surgetank.admission.routing.config import RoutingConfig
from surgetank.admission.routing.outlier import is_fault, may_eject, met_by, observed
from surgetank.admission.routing.pushback import Pushback, refused
from surgetank.admission.routing.side import Attached, EngineSide
from surgetank.admission.ticket import Ticket
from surgetank.telemetry.stepmodel import StepModel
from surgetank.telemetry.steprecord import StepRecord
from surgetank.telemetry.vocabulary import Outcome, Reason

_SILENT = 1.0  # seconds of age that make a stall: some show their work at one look a second only
_FADE = 10.0  # seconds in which an idle engine's slowness loses half its weight
_OUTPUT = 128.0  # tokens of the average request, by which engines are compared


class Sides:
    """Knows the engines; belongs to the event loop's thread."""

    def __init__(self, attached: Sequence[Attached], config: RoutingConfig) -> None:
        """At least one."""
        several = len(attached) > 1
        self.whole = Ledger()
        ledgers = [Ledger(self.whole) for _ in attached] if several else [self.whole]
        self.all = tuple(
            EngineSide(at, each, ledger)
            for at, (each, ledger) in enumerate(zip(attached, ledgers, strict=True))
        )
        self.one = None if several else self.all[0]
        self.config = config
        self.open: tuple[EngineSide, ...] = self.all  # who may get requests, at the last look
        self.rates: Rates | None = None  # together, at the last look; None: no model is fitted
        self.mean_prompt = 0.0  # tokens of the average request
        self._stale = False

    @property
    def takes(self) -> bool:
        """Whether any takes requests."""
        return any(side.enlisted for side in self.all)

    def look(self, now: float) -> tuple[EngineSide, ...]:
        """Who may get requests now: those that are not ejected, unless all are, and of these those
        that are not stalled, unless all are."""
        if self.one is not None:
            return self.all if self.one.engine.card is not None else ()
        sound = self._sound(now)
        open = tuple([side for side in sound if side.age(now) < _SILENT] or sound)
        if open != self.open:
            self.open, self._stale = open, True
        warmest = 0.0
        for side in open:
            side.share = side.warmth(now, self.config.slow_start)
            warmest = max(warmest, side.share)
        for side in open:
            side.share /= warmest
            self._stale |= side.share < 1.0
        if self._stale:
            self.rates, self._stale = self._mix(), False
        return open

    def learned(self) -> None:
        """What is known of an engine has changed: of several, what they do together is worked out
        at the next look, but for the first time."""
        if self.one is not None:
            self.rates = self.one.view.rates
        elif self.rates is None:
            self.rates = self._mix()
        else:
            self._stale = True

    def age(self, now: float) -> float:
        """Seconds of silence beyond what a step may take, of the one that is least silent."""
        if self.one is not None:
            return self.one.age(now)
        return min((side.age(now) for side in self.open), default=0.0)

    def stalled_for(self, now: float) -> float | None:
        """Seconds without a step, as Engine tells it, of the one that is least silent; None while
        none is there."""
        if self.one is not None:
            return self.one.engine.stalled_for(now)
        told = (side.engine.stalled_for(now) for side in self.open)
        return min((silent for silent in told if silent is not None), default=None)

    @property
    def last_step(self) -> StepRecord | None:
        """The newest of all."""
        if self.one is not None:
            return self.one.engine.last_step
        steps = [step for side in self.all if (step := side.engine.last_step) is not None]
        return max(steps, key=lambda step: step.at, default=None)

    def portion(self, side: EngineSide) -> float:
        """The engine's part of what all can do."""
        rates, all = side.view.rates, self.rates
        if self.one is not None or rates is None or all is None:
            return 1.0
        return side.share * rates.drain / all.drain

    @property
    def kv_blocks(self) -> int:
        """Of all that are there; 0 where one does not tell."""
        told = [side.card.kv_blocks for side in self.all if side.card is not None and side.member]
        return sum(told) if all(told) else 0

    @property
    def kv_usable(self) -> int:
        """Of these, what sequences may hold."""
        return sum(side.kv_blocks for side in self.all if side.member) if self.kv_blocks else 0

    def next_return(self, now: float) -> float:
        """When the next ejected engine comes back; infinite when none is out."""
        returns = (side.standing.back_at for side in self.all if side.standing.out(now))
        return min(returns, default=inf)

    def observe(
        self, side: EngineSide, ticket: Ticket, outcome: Outcome, reason: Reason, now: float
    ) -> bool:
        """A request left an engine. True: that was one fault too many, and it is out. What goes
        down with its engine is no fault: there is nobody to leave out."""
        if reason is Reason.ENGINE_FULL:
            side.pushback = refused(side.pushback, now)
        elif outcome is Outcome.OK:
            side.pushback = Pushback()
        fault = is_fault(outcome, reason, silent=side.age(now) >= _SILENT)
        if self.one is not None or fault is None or not side.enlisted:
            return False
        enlisted = [each for each in self.all if each.enlisted]
        out = sum(each.standing.out(now) for each in enlisted)
        may_go = may_eject(len(enlisted), out, self.config.eject_share)
        before = side.standing.ejections
        met = met_by(ticket.tenant, ticket.fingerprint, reason)
        side.standing = observed(side.standing, fault, self.config, now, may_go=may_go, met=met)
        return side.standing.ejections > before

    def pace(self, side: EngineSide, now: float) -> Rates | None:
        """What an engine does now; of one that is not known yet, what an average one does. That it
        was slow fades while it is idle: else nobody would find out that it is not any more."""
        rates = side.view.rates
        if rates is None:
            rates = self.rates
            return None if rates is None else replace(rates, drain=rates.drain / len(self.open))
        last = side.engine.last_step
        if side.ledger.permits or last is None:
            return rates
        fading = 0.5 ** (max(0.0, now - last.at) / _FADE)
        return replace(rates, drain=rates.drain**fading)

    def _sound(self, now: float) -> list[EngineSide]:
        """Those that are not ejected; when all are, all, and each is pardoned for that long."""
        enlisted = [side for side in self.all if side.enlisted]
        sound = [side for side in enlisted if not side.standing.out(now)]
        for side in enlisted:
            if sound:
                side.pardoned_at = None
            elif side.pardoned_at is None:
                side.pardoned_at = now
        return sound or enlisted

    def _mix(self) -> Rates | None:
        known = [(side, rates) for side in self.open if (rates := side.view.rates) is not None]
        if not known:
            return None
        drains = [side.share * rates.drain for side, rates in known]
        served = [
            drain / max(1e-9, _cost(rates, self.mean_prompt))
            for drain, (_, rates) in zip(drains, known, strict=True)
        ]
        weights = [each / sum(served) for each in served]

        def mixed(value: Callable[[Rates], float]) -> float:
            return sum(
                weight * value(rates) for weight, (_, rates) in zip(weights, known, strict=True)
            )

        t0, apiece = mixed(lambda rates: rates.model.t0), mixed(_step_part)
        shares = sum(side.share for side in self.open) / sum(side.share for side, _ in known)
        return Rates(
            model=StepModel(
                t0=t0,
                a=mixed(lambda rates: rates.model.a),
                b=mixed(lambda rates: rates.model.b),
                c=mixed(lambda rates: rates.model.c),
            ),
            drain=sum(drains) * shares,
            batch=t0 / apiece if apiece else mixed(lambda rates: rates.batch),
            chunk=mixed(lambda rates: rates.chunk),
            decoding=round(mixed(lambda rates: rates.decoding)),
            resident=round(mixed(lambda rates: rates.resident)),
            tpot=mixed(lambda rates: rates.tpot),
        )


def _cost(rates: Rates, prompt: float) -> float:
    return engine_seconds(rates.model, rates.batch, prompt, _OUTPUT, 1)


def _step_part(rates: Rates) -> float:
    """t0 / B: of what every step costs, one sequence's part."""
    return rates.model.t0 / rates.batch
