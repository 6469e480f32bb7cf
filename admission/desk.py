"""The front desk: every request's life from its headers to its one outcome.

Doors hand tickets in; the gate decides; the queue holds; the backend works. The desk owns no task,
thread or clock: time, timer and randomness are passed in, so the same desk runs in virtual time.
Its methods belong to one thread, the event loop's.
"""

import logging
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias

from surgetank.admission import refusals
from surgetank.admission.api import Headers
from surgetank.admission.arrival import read_arrival, read_barred
from surgetank.admission.dispatch import CallLater, Dispatcher
from surgetank.admission.flow import FlowCount
from surgetank.admission.gate import Gate, GateConfig
from surgetank.admission.gauges import register_gauges
from surgetank.admission.kv import LOW_CLASSES
from surgetank.admission.laws import Laws
from surgetank.admission.leases.config import LeasesConfig
from surgetank.admission.leases.quotas import Quotas
from surgetank.admission.limits import Limit, Limits
from surgetank.admission.lint import lint
from surgetank.admission.outcome import Refusal, Refused
from surgetank.admission.pace import Pace
from surgetank.admission.peek import Peek
from surgetank.admission.policies.policy import Admission
from surgetank.admission.queue import Queue
from surgetank.admission.quota_keeper import QuotaKeeper
from surgetank.admission.retries import Retries
from surgetank.admission.retry_budget import RetryBudget
from surgetank.admission.routing.config import RoutingConfig
from surgetank.admission.routing.engines import Engines
from surgetank.admission.routing.side import EngineSide
from surgetank.admission.routing.sides import Sides
from surgetank.admission.snapshot import DeskSnapshot, Ended, limit_usage
from surgetank.admission.tenants import Tenants, TenantsConfig
from surgetank.admission.ticket import Ticket
from surgetank.admission.tracing import Silence, Tracing
from surgetank.admission.work import Adapter, AskT, ListenerT, ModelT, Work
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.vocabulary import Outcome, Reason

log = logging.getLogger(__name__)

KEEP_ENDED = 2048  # requests remembered after their end
AnyDesk: TypeAlias = "FrontDesk[Any, Any, Any]"  # for who looks on


class FrontDesk(Generic[ModelT, AskT, ListenerT]):
    """Implements api.Desk for the doors; the backends' watchers are in `engines`.

    The law it keeps: every ticket ends exactly once, gives back what it held exactly once, and the
    recorder hears of its end once, whatever clients, doors and engine do.
    """

    def __init__(
        self,
        *,
        adapter: Adapter[ModelT, AskT, ListenerT],
        recorder: Recorder,
        clock: Clock,
        rng: random.Random,
        call_later: CallLater,
        config: GateConfig | None = None,
        tenants: Tenants | None = None,
        quotas: Quotas | None = None,
        tracer: Tracing | None = None,
        aliases: Sequence[str] = ("default",),
        routing: RoutingConfig | None = None,
    ) -> None:
        self._config = config = config or GateConfig()
        self.recorder = recorder
        self.limits = Limits(config.base_limits())
        self.draining = False
        self.now = clock.monotonic  # no method of ours: it is asked at every token
        self._adapter = adapter
        self._rng = rng
        self._tenants = tenants or Tenants(TenantsConfig(), rng)
        self._tracer = tracer or Silence()
        self._aliases = tuple(aliases)
        self._queue = Queue(config.laws.floor_share)
        self._sides = Sides(adapter.engines, routing or RoutingConfig())
        self._pace = Pace(clock.monotonic())
        self._laws = Laws(
            config=config.laws,
            targets=recorder.registry.targets,
            limits=self.limits,
            queue=self._queue,
            sides=self._sides,
            pace=self._pace,
        )
        self._budget = RetryBudget(clock.monotonic(), self._laws.mean_cost)
        self._gate = Gate(
            config=config,
            limits=self.limits,
            queue=self._queue,
            pace=self._pace,
            laws=self._laws,
            budget=self._budget,
            rng=rng,
        )
        self.policies = self._gate.policies
        self._quotas = QuotaKeeper(quotas or Quotas(LeasesConfig(), clock), self.limits)
        self._flow = FlowCount()
        self._retries = Retries(
            rng=rng, recorder=recorder, limits=self.limits, laws=self._laws, budget=self._budget
        )
        self._dispatcher = Dispatcher(
            sides=self._sides,
            gate=self._gate,
            laws=self._laws,
            limits=self.limits,
            queue=self._queue,
            pace=self._pace,
            recorder=recorder,
            clock=clock,
            call_later=call_later,
            end=self.end,
        )
        self.peek = Peek(self._dispatcher.calls, self._queue, self._sides, self._laws, clock)
        self.engines: Engines[ModelT] = Engines(
            adapter=adapter,
            sides=self._sides,
            config=config,
            limits=self.limits,
            laws=self._laws,
            pace=self._pace,
            flow=self._flow,
            recorder=recorder,
            now=self.now,
            pump=self.look_again,
            end_within=self._end_within,
            end_waiting=self._end_waiting,
        )
        self._on_drained: Callable[[], None] | None = None
        self._ended: deque[Ended] = deque(maxlen=KEEP_ENDED)
        self._ignored_headers: Counter[tuple[str, str]] = Counter()
        for finding in lint(config, recorder.registry.targets):
            log.warning("%s", finding)
        register_gauges(recorder.registry, self.snapshot)

    # For the doors (api.Desk).

    def arrive(self, door: str, headers: Headers, peer: str = "") -> Ticket:
        """Count a request as received and read its headers; raises nothing."""
        seen = read_arrival(headers, rng=self._rng, tenants=self._tenants, peer=peer)
        for (header, problem), times in seen.ignored.items():
            self._ignored_headers[header, problem] += times
            self.recorder.header_ignored(header, problem, times)
        self.recorder.received(seen.lane)
        return seen.ticket(door, self.now(), self._tracer.begin(seen.parent))

    def barred(self, headers: Headers, peer: str) -> Refusal | None:
        """Why whoever sends these headers may not ask for anything; None: it may."""
        return read_barred(headers, self._tenants, peer)

    def find(self, model: str) -> ModelT:
        """The model of that name or alias; raises Refused."""
        if self.draining:
            raise Refused(refusals.draining())
        served, known = self.engines.served, self.engines.known
        if known is not None and model not in self.names():
            raise Refused(refusals.unknown_model(model, self.names()))
        if served is None:
            raise Refused(self.engines.absent())
        return served

    def names(self) -> list[str]:
        """The model's own name, then its aliases; empty before an engine was ever there."""
        known = self.engines.known
        return [] if known is None else [*known.names, *self._aliases]

    def refuse(self, ticket: Ticket, refusal: Refusal) -> Refusal:
        """End a ticket that is not in the queue; returns the refusal with its hint."""
        now = self.now()
        if not ticket.fingerprint:
            self._retries.unrecognised(ticket)
        refusal = self._hinted(refusal, ticket, now)
        self._close(ticket, refusal, now)
        return refusal

    def submit(self, ticket: Ticket, served: ModelT, ask: AskT, listener: ListenerT) -> Work:
        """Through the gate; raises Refused, the ticket then being ended. An engine that is lost in
        this very moment may let on_end come before this returns."""
        if ticket.barred is not None:
            raise Refused(self.refuse(ticket, ticket.barred))
        try:
            return self._submit(ticket, served, ask, listener)
        except Refused:
            raise
        except Exception as error:  # a ticket must end, also by our own faults
            log.exception("a request could not be submitted", extra=ticket.log_fields)
            raise Refused(self.refuse(ticket, refusals.fault())) from error

    def ready(self) -> bool:
        """Whether a new request would find an engine, and is wanted."""
        return not self.draining and self.engines.serving is not None

    # For control.

    def drain(self, on_drained: Callable[[], None] | None = None) -> None:
        """Refuse new requests and let the others finish; then `on_drained` is called, once."""
        self.draining = True
        self._on_drained = on_drained
        self._check_drained()

    def undrain(self) -> None:
        """Take new requests again."""
        self.draining = False
        self._on_drained = None

    def end_all(
        self, outcome: Outcome = Outcome.DRAINING, reason: Reason = Reason.OPERATOR
    ) -> None:
        """End every request that waits or runs: the grace period is over."""
        for call in list(self._dispatcher.calls.values()):
            call.cancel(outcome, reason)

    def recent(self) -> tuple[Ended, ...]:
        """The last requests that ended, oldest first."""
        return tuple(self._ended)

    def snapshot(self) -> DeskSnapshot:
        """Everything that can be seen from outside, now."""
        now, served, sides = self.now(), self.engines.serving, self._sides
        engines = self.engines.looks(now)
        levels = self._queue.levels(now)
        kv_blocks = None if served is None else sides.kv_blocks or None
        return DeskSnapshot(
            at=now,
            model=None if served is None else served.name,
            draining=self.draining,
            in_flight=self.recorder.in_flight(),
            queue=levels,
            dispatched=sides.whole.permits,
            dispatched_seqs=sides.whole.seqs,
            kv_blocks_reserved=sides.whole.kv_blocks,
            kv_blocks=kv_blocks,
            drain_rate=self._pace.drain_rate,
            stalled_for=sides.stalled_for(now),
            last_step=sides.last_step,
            laws=self._laws.view(None if served is None else served.card, now),
            flow=self._flow.read(),
            tpot_target=self.recorder.registry.targets.tpot,
            retry_budget=self._budget.balance(now),
            limits=self.limits.snapshot(),
            limit_usage=limit_usage(self._queue, engines, levels),
            ignored_headers=dict(self._ignored_headers),
            vitals=engines[0].vitals,
            engines=engines,
        )

    # For the calls (call.Owner).

    def end(self, call: Work, refusal: Refusal | None) -> None:
        """The one end of an admitted request; a second one changes nothing."""
        ticket, now = call.ticket, self.now()
        if ticket.outcome is not None:
            return
        if refusal is None:
            call.record_latencies()
        else:
            refusal = self._hinted(refusal, ticket, now)
        self._close(ticket, refusal, now)
        self._flow.ended(served=refusal is None)
        self._dispatcher.leave(call, Outcome.OK if refusal is None else refusal.outcome)
        call.tell_end(refusal)
        self.look_again()
        self._check_drained()

    def turned_away(self, call: Work, refusal: Refusal) -> None:
        """Its engine was lost or does not take it: another gets it, or it ends so."""
        if self._dispatcher.move(call, refusal):
            self._dispatcher.pump()
        else:
            self.end(call, refusal)

    def heard(self, call: Work) -> None:
        """Its client has its first token."""
        self._dispatcher.heard(call)

    def look_again(self) -> None:
        """What held others back may be gone."""
        if self._queue.requests:
            self._dispatcher.pump()

    def outgrew(self, call: Work, tokens: int, new: int) -> None:
        """More tokens than were expected of a choice: its KV promise grows."""
        self._dispatcher.outgrew(call, tokens, new)

    # Inside.

    def _submit(self, ticket: Ticket, served: ModelT, ask: AskT, listener: ListenerT) -> Work:
        now = self.now()
        ticket.model = served.name
        ticket.prompt_tokens, ticket.estimated = ask.prompt_tokens, ask.estimated
        ask = self._cut(ticket, ask)
        ticket.max_tokens = ask.max_tokens
        ticket.n = ask.n
        self._retries.recognise(ticket, ask, now)
        self._flow.arrived(ticket.lane)
        ticket.estimate = self._laws.estimate(ticket, exact=ask.exact)
        verdict = self._judge(ticket, served, now)
        refused = isinstance(verdict, Refusal)
        self.recorder.decided(
            admitted=not refused,
            reason=verdict.reason if isinstance(verdict, Refusal) else Reason.NONE,
            lane=ticket.lane,
            priority=ticket.priority,
        )
        if isinstance(verdict, Refusal):
            raise Refused(self.refuse(ticket, verdict))
        ticket.wait = verdict.wait
        if verdict.wait is not None:
            ticket.forecast = (verdict.wait.queueing, self._sides.all[0].view.stalled)
        self._laws.admitted(ticket)
        self._retries.admitted(ticket, now, paid=verdict.paid)
        call = self._adapter.open(self, ticket, served, ask, listener)
        for victim in verdict.displaced:
            self.end(self._dispatcher.calls[victim], refusals.displaced())
        self._dispatcher.enqueue(call)
        self._dispatcher.pump_for(ticket)
        return call

    def _judge(self, ticket: Ticket, served: ModelT, now: float) -> Admission | Refusal:
        if self.draining:
            return refusals.draining()
        if not self.engines.serves(served):
            return self.engines.absent()
        self._dispatcher.account(now)
        if not self._sides.look(now):
            return self.engines.absent()
        ticket.found = self.peek.found(ticket, now)
        verdict = self._gate.decide(ticket, served.card, now, self._sides.stalled_for(now))
        return self._quotas.admit(ticket, verdict)

    def _end_within(self, side: EngineSide, why: str) -> None:
        """An engine is gone; the backend has told its requests, but for those of its own faults."""
        for call in list(self._dispatcher.calls.values()):
            if call.permit is not None and call.side is side:
                self.end(call, refusals.backend_down(why))

    def _end_waiting(self, refusal: Refusal) -> None:
        """What waits is told that nobody is there, because a retry is the client's choice."""
        for call in list(self._dispatcher.calls.values()):
            if call.permit is None:
                self.end(call, refusal)

    def _cut(self, ticket: Ticket, ask: AskT) -> AskT:
        """In a brown-out the low classes get shorter answers."""
        if ticket.priority not in LOW_CLASSES:
            return ask
        most = int(self.limits.get(Limit.LOW_OUTPUT_TOKENS))
        if ask.max_tokens <= most:
            return ask
        ticket.events.append((self.now(), f"max_tokens cut to {most}"))
        return ask.cut(most)

    def _hinted(self, refusal: Refusal, ticket: Ticket, now: float) -> Refusal:
        served = self.engines.served is not None
        return self._retries.advise(refusal, ticket, now, served=served)

    def _close(self, ticket: Ticket, refusal: Refusal | None, now: float) -> None:
        """Write the outcome, in the ticket and to the recorder: the one place that does."""
        if ticket.outcome is not None:
            log.error("request %s ended as %s was ended again", ticket.id, ticket.outcome)
            return
        ticket.outcome = Outcome.OK if refusal is None else refusal.outcome
        ticket.reason = Reason.NONE if refusal is None else refusal.reason
        ticket.ended_at = now
        ticket.events.append((now, ticket.outcome))
        self._quotas.ended(ticket)
        self._ended.append(Ended(ticket, refusal))
        self.policies.ended(ticket, now)
        self.recorder.ended(
            model=ticket.model,
            outcome=ticket.outcome,
            reason=ticket.reason,
            lane=ticket.lane,
            priority=ticket.priority,
            duration=now - ticket.arrived,
        )
        self._tracer.ended(ticket, refusal)

    def _check_drained(self) -> None:
        if self.draining and not self._dispatcher.calls and self._on_drained is not None:
            on_drained, self._on_drained = self._on_drained, None
            on_drained()
