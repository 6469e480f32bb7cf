"""One admitted request that an engine answers over HTTP: its bytes go by, and are counted."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
from msgspec.structs import replace

from surgetank.admission import refusals
from surgetank.admission.api import Desk, End
from surgetank.admission.outcome import Refusal
from surgetank.admission.permit import Permit
from surgetank.admission.prompt_size import PromptSizes
from surgetank.admission.routing.affinity import Prefix, prefix_key
from surgetank.admission.routing.moves import lost
from surgetank.admission.routing.side import Attached, EngineSide
from surgetank.admission.ticket import Ticket
from surgetank.admission.work import Owner
from surgetank.engine.api import ModelCard
from surgetank.engine.backends.remote.api import PUSHBACK, AnswerHead, Forward, Remote, Usage
from surgetank.engine.backends.remote.config import Role
from surgetank.telemetry.vocabulary import Outcome, Reason

log = logging.getLogger(__name__)

_OK = 200


class RelayAsk(msgspec.Struct, frozen=True):
    """A request whose body is the engine's to understand; we know its sizes."""

    forward: Forward
    max_tokens: int
    n: int
    exact: bool
    characters: int  # of text in the prompt
    rewrite: Callable[[bytes, int], bytes]  # (body, most): the body with fewer max_tokens
    estimated: bool = True  # its prompt_tokens
    beginning: str = ""  # of the prompt, by which it belongs to an engine; "": it may go anywhere

    @property
    def prompt_tokens(self) -> int:
        return self.forward.prompt_tokens

    @property
    def identity(self) -> bytes:
        return self.forward.path.encode() + b"\0" + self.forward.body

    def cut(self, most: int) -> "RelayAsk":
        body = self.rewrite(self.forward.body, most)
        forward = replace(self.forward, body=body, max_tokens=most)
        return replace(self, forward=forward, max_tokens=most)


@dataclass(frozen=True, slots=True)
class RelayModel:
    """A model that another maker's engine serves."""

    name: str
    card: ModelCard
    names: tuple[str, ...]  # all that the engine answers to
    ignores: frozenset[str] = frozenset()  # fields of a chat that an engine of it passes over


class RelayListener(Protocol):
    """How a door hears of its answer: on the event loop, in order; it must not block or raise."""

    def on_head(self, head: AnswerHead) -> None:
        """The engine answers; never called for an answer that became a refusal."""

    def on_data(self, data: bytes, between: bool) -> None:
        """Bytes of the body, framed as the head says; `between`: they end between two chunks."""

    def direct(self) -> Callable[[bytes], None] | None:
        """Where whole chunks may be written past on_data(), until its client falls behind or the
        answer ends; None: on_data() has to see what comes next."""

    def on_end(self, end: End, complete: bool) -> None:
        """Exactly once, after the last byte; `complete`: the engine's whole answer was told, be it
        a refusal. Never called when submit() raised."""


class Relay:
    """Implements work.Work, and the engine's AnswerSink."""

    def __init__(
        self,
        owner: Owner,
        engines: Sequence["RelayEngine"],
        sizes: PromptSizes,
        ticket: Ticket,
        ask: RelayAsk,
        listener: RelayListener,
    ) -> None:
        self.request_id: int | None = None  # set while the engine knows of it
        self.permit: Permit | None = None
        self.side: EngineSide | None = None
        self.finished = False
        self._owner = owner
        self._engines = engines
        self._remote = engines[0].remote
        self._sizes = sizes
        self._ticket = ticket
        ticket.told = Usage()
        self._ask = ask
        self._listener = listener
        self._answered = False  # its client has heard something
        self._complete = False
        self._verdict: Refusal | None = None  # what the engine's status makes of it

    @property
    def ticket(self) -> Ticket:
        """The request's identity and life so far."""
        return self._ticket

    def cancel(
        self, outcome: Outcome = Outcome.CANCELLED, reason: Reason = Reason.CLIENT_GONE
    ) -> None:
        """End it now, wherever it is; nothing happens when it has ended. A client that leaves at
        its stream's last event, as the openai package does, has been served."""
        told = None if self.request_id is None else self._remote.cancel(self.request_id)
        if told is not None and reason is Reason.CLIENT_GONE:
            self.on_done(told)
        else:
            self._owner.end(self, refusals.cancelled(outcome, reason))

    def start(self, request_id: int, time_left: float | None, at: int) -> None:
        """Send it to that engine; raises BackendDown. A plain answer does not tell when its prompt
        was read: it counts as read at once, since else it would hold back all that follow."""
        engine = self._engines[at]
        self.request_id, self._remote = request_id, engine.remote
        forward, trace = self._ask.forward, self._ticket.trace
        if trace is not None:
            forward = replace(forward, headers=trace.passed_on(forward.headers))
        if engine.pass_priority:
            forward = replace(forward, body=prioritised(forward.body, self._ticket.priority))
        self._remote.forward(request_id, forward, self)
        if not self._ticket.stream:
            self._owner.heard(self)

    def stop(self) -> None:
        """The engine need not go on with it."""
        request_id, self.request_id = self.request_id, None
        if request_id is not None:
            self._remote.cancel(request_id)

    def hold(self, held: bool) -> None:
        """The client does not keep up with reading; or it does again."""
        if self.request_id is not None:
            self._remote.hold(self.request_id, held)

    def record_latencies(self) -> None:
        """TTFT and TPOT of a stream; of a plain answer neither can be known."""
        ticket, tpot, ttft = self._ticket, None, None
        if ticket.first_token_at is not None and ticket.last_token_at is not None:
            ttft = ticket.first_token_at - ticket.arrived
            tokens = ticket.output_tokens / ticket.n
            if tokens > 1:
                tpot = (ticket.last_token_at - ticket.first_token_at) / (tokens - 1)
        ticket.tpot = tpot
        self._owner.recorder.completed(model=ticket.model, tpot=tpot, ttft=ttft)

    def tell_end(self, refusal: Refusal | None) -> None:
        """Let the door know; called once, by the desk."""
        ticket = self._ticket
        end = End(
            outcome=ticket.outcome or Outcome.INTERNAL,
            refusal=refusal,
            prompt_tokens=ticket.input_tokens,
            output_tokens=ticket.output_tokens,
            cached_tokens=ticket.cached_tokens,
        )
        try:
            self._listener.on_end(end, self._complete)
        except Exception:
            self._broke()

    # The engine's side (AnswerSink).

    def on_head(self, head: AnswerHead) -> None:
        """An engine that is full pushes back: another gets the request then, or its client our hint
        and not the engine's silence."""
        if head.status in PUSHBACK:
            self._not_taken(refusals.pushback(head.status))
            return
        self._answered = True
        if head.status != _OK:
            self._verdict = refusals.by_backend(head.status)
        try:
            self._listener.on_head(head)
        except Exception:
            self._broke()

    def on_data(self, data: bytes, events: int, between: bool) -> None:
        """Bytes for the client; a stream's events are counted as tokens until its usage tells."""
        if events:
            self.on_events(events, self._owner.now())
        try:
            self._listener.on_data(data, between)
        except Exception:
            self._broke()

    def direct(self) -> Callable[[bytes], None] | None:
        """Where its client is written to, if nothing stands between."""
        return self._listener.direct()

    def on_events(self, events: int, now: float) -> None:
        """A stream's events came: tokens, as far as one can see."""
        ticket = self._ticket
        if self._verdict is not None or ticket.outcome is not None:
            return  # nothing that counts, or it ended for a fault of ours
        last, ticket.last_token_at = ticket.last_token_at, now
        if last is None:
            self._first(now)
            self._owner.recorder.output_tokens(ticket.model, events)
        else:
            gap = now - last
            if gap > ticket.longest_gap:
                ticket.longest_gap = gap
            self._owner.recorder.output_tokens(ticket.model, events, gap)
        ticket.output_tokens += events
        if ticket.output_tokens > ticket.estimate.reserve:
            each = ticket.output_tokens // ticket.n
            if each > ticket.estimate.reserve:
                self._owner.outgrew(self, each, events)

    def on_done(self, usage: Usage) -> None:
        """The answer is complete."""
        self.finished, self._complete, self.request_id = True, True, None
        if self._verdict is None:
            self._settle(usage)
        self._owner.end(self, self._verdict)

    def on_lost(self, detail: str, begun: bool = True) -> None:
        """The connection broke."""
        self.request_id = None
        self._not_taken(lost(self._ticket, detail, begun=begun))

    def _not_taken(self, refusal: Refusal) -> None:
        """Nothing that a proxy carries can go to another engine, nor what was answered in part."""
        if self._answered or self._ask.forward.carrier is not None:
            self._owner.end(self, refusal)
        else:
            self._owner.turned_away(self, refusal)

    def _first(self, now: float) -> None:
        ticket, owner = self._ticket, self._owner
        ticket.first_token_at = now
        ticket.events.append((now, "first_token"))
        ttft = now - ticket.arrived
        owner.recorder.first_token(model=ticket.model, priority=ticket.priority, ttft=ttft)
        owner.heard(self)
        owner.look_again()

    def _settle(self, usage: Usage) -> None:
        """What the answer says of itself is exact: it replaces what was counted and estimated."""
        ticket, recorder = self._ticket, self._owner.recorder
        ticket.told = usage
        if usage.output_tokens is not None:
            missed = usage.output_tokens - ticket.output_tokens
            if missed > 0:
                recorder.output_tokens(ticket.model, missed)
            ticket.output_tokens = usage.output_tokens
        prompt = ticket.input_tokens
        self._sizes.observe(self._ask.characters, prompt)
        ticket.cached_tokens = min(prompt, usage.cached_tokens or 0)
        recorder.input_tokens(
            model=ticket.model,
            computed=prompt - ticket.cached_tokens,
            cached=ticket.cached_tokens,
        )

    def _broke(self) -> None:
        """A fault of the door ends this request alone, whatever it was about to hear."""
        log.exception("a request's door failed", extra=self._ticket.log_fields)
        self._owner.end(self, refusals.fault())


def prioritised(body: bytes, priority: int) -> bytes:
    """The same JSON object, with the priority as its last field: of two, readers take the last."""
    fields = body.rstrip()[:-1].rstrip()
    comma = b"" if fields.endswith(b"{") else b","
    return b'%b%b"priority":%d}' % (fields, comma, priority)


@dataclass(frozen=True, slots=True)
class RelayEngine:
    """An engine of another maker, and how it is spoken to."""

    remote: Remote
    name: str = "engine"  # unique
    role: Role = Role.BOTH
    pass_priority: bool = False  # it is told each request's class

    def attached(self) -> Attached:
        """For the desk."""
        return Attached(self.remote, self.name, self.role, lambda: self.remote.vitals)


class RelayAdapter:
    """Implements work.Adapter for Remotes."""

    def __init__(self, *engines: RelayEngine, affinity_characters: int = 0) -> None:
        """At least one. `affinity_characters` of a prompt say to which of several it belongs."""
        self.sizes = PromptSizes(affinity_characters if len(engines) > 1 else 0)
        self.engines = [each.attached() for each in engines]
        self._engines = engines

    def serve(self, card: ModelCard, known: RelayModel | None) -> RelayModel:
        """Nothing needs to be read; by every name that all engines of that model answer to."""
        answering = [
            each.remote
            for each in self._engines
            if each.role is not Role.PREFILL
            and each.remote.card is not None
            and each.remote.card.name == card.name
        ]
        first, *others = [remote.models for remote in answering] or [(card.name,)]
        names = tuple(name for name in first if all(name in other for other in others))
        ignored = [remote.vitals.found.ignores for remote in answering if remote.vitals.found]
        return RelayModel(card.name, card, names, frozenset().union(*ignored))

    def open(
        self,
        owner: Owner,
        ticket: Ticket,
        served: RelayModel,
        ask: RelayAsk,
        listener: RelayListener,
    ) -> Relay:
        """The work that it makes."""
        if ask.beginning:
            tokens = self.sizes.tokens(len(ask.beginning))
            ticket.prefix = Prefix(prefix_key(ask.beginning), tokens)
        return Relay(owner, self._engines, self.sizes, ticket, ask, listener)


RelayDesk = Desk[RelayModel, RelayAsk, RelayListener]
