"""One admitted request: turns the engine's tokens into text for its door, until its one end."""

import logging
from dataclasses import dataclass
from typing import Protocol

from surgetank.admission import refusals
from surgetank.admission.api import Ask, Delta, End, Listener
from surgetank.admission.outcome import Refusal
from surgetank.admission.permit import Permit
from surgetank.admission.ticket import Ticket
from surgetank.engine.api import GenerateRequest, Started, Tokens
from surgetank.engine.text.codec import TextCodec
from surgetank.engine.text.detokenizer import Detokenizer
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.vocabulary import FinishReason, Outcome, Reason

log = logging.getLogger(__name__)

_SERVED = (FinishReason.STOP, FinishReason.LENGTH)


class Owner(Protocol):
    """What a call needs of its desk."""

    @property
    def recorder(self) -> Recorder:
        """Where facts are told."""

    def now(self) -> float:
        """The injected clock's monotonic seconds."""

    def end(self, call: "Call", refusal: Refusal | None) -> None:
        """End it, ok when there is no refusal. Only the first end counts."""

    def heard(self, call: "Call") -> None:
        """Its client has its first token: a read timeout no longer counts."""

    def outgrew(self, call: "Call", tokens: int, new: int) -> None:
        """A choice has `tokens` tokens, `new` of them just now: more than was expected of it."""

    def stop_choice(self, call: "Call", index: int) -> None:
        """The engine need not go on with one choice."""


@dataclass(slots=True)
class _Choice:
    """One of the n outputs."""

    text: Detokenizer
    tokens: int = 0
    last_at: float | None = None
    finish: FinishReason | None = None


class Call:
    """A door's handle on its request (api.Call), and the engine's sink for it (engine.api.Sink).

    Whatever goes wrong in here ends this request alone, as internal.
    """

    def __init__(
        self, owner: Owner, ticket: Ticket, ask: Ask, codec: TextCodec, listener: Listener
    ) -> None:
        """Raises ValueError for stop strings that cannot be."""
        self.request_id: int | None = None  # set while the engine knows of it
        self.permit: Permit | None = None
        self._owner = owner
        self._ticket = ticket
        self._ask = ask
        self._listener = listener
        min_tokens = ask.sampling.min_tokens
        self._choices = [_Choice(codec.detokenizer(ask.stop, min_tokens)) for _ in range(ask.n)]

    @property
    def ticket(self) -> Ticket:
        """The request's identity and life so far."""
        return self._ticket

    @property
    def finished(self) -> bool:
        """Every choice is done."""
        return all(choice.finish is not None for choice in self._choices)

    def cancel(
        self, outcome: Outcome = Outcome.CANCELLED, reason: Reason = Reason.CLIENT_GONE
    ) -> None:
        """End it now, wherever it is; nothing happens when it has ended."""
        self._owner.end(self, refusals.cancelled(outcome, reason))

    def request(self, request_id: int, time_left: float | None) -> GenerateRequest:
        """What to send to the engine."""
        return GenerateRequest(
            request_id=request_id,
            prompt=self._ask.prompt,
            sampling=self._ask.sampling,
            n=self._ask.n,
            priority=self._ticket.priority,
            time_left=time_left,
        )

    def on_started(self, started: Started) -> None:
        """The engine began to work on it."""
        ticket = self._ticket
        ticket.cached_tokens = started.cached_tokens
        ticket.events.append((self._owner.now(), "started"))
        self._owner.recorder.input_tokens(
            model=ticket.model,
            computed=ticket.prompt_tokens - started.cached_tokens,
            cached=started.cached_tokens,
        )

    def on_tokens(self, tokens: Tokens) -> None:
        """New tokens of one choice; those for what has ended are dropped."""
        if self._ticket.outcome is not None:
            return
        try:
            self._take(tokens)
        except Exception:  # a fault here must not reach the other requests of this step
            log.exception("request %s: its tokens could not be delivered", self._ticket.id)
            self._owner.end(self, refusals.fault())

    def on_lost(self, detail: str) -> None:
        """The engine died with it."""
        self.request_id = None
        self._owner.end(self, refusals.backend_down(detail))

    def tell_end(self, refusal: Refusal | None) -> None:
        """Let the door know; called once, by the desk."""
        ticket = self._ticket
        end = End(
            outcome=ticket.outcome or Outcome.INTERNAL,
            refusal=refusal,
            prompt_tokens=ticket.prompt_tokens,
            output_tokens=ticket.output_tokens,
            cached_tokens=ticket.cached_tokens,
        )
        try:
            self._listener.on_end(end)
        except Exception:  # the request has ended all the same
            log.exception("request %s: its door failed at the end", ticket.id)

    def record_latencies(self) -> None:
        """TTFT and TPOT of an ok request; TPOT = (last - first) / (tokens of the longest - 1)."""
        ticket, tpot, ttft = self._ticket, None, None
        longest = max(choice.tokens for choice in self._choices)
        if ticket.first_token_at is not None and ticket.last_token_at is not None:
            ttft = ticket.first_token_at - ticket.arrived
            if longest > 1:
                tpot = (ticket.last_token_at - ticket.first_token_at) / (longest - 1)
        self._owner.recorder.completed(model=ticket.model, tpot=tpot, ttft=ttft)

    def _take(self, tokens: Tokens) -> None:
        choice = self._choices[tokens.index]
        if choice.finish is not None:
            return
        if tokens.token_ids:
            self._count(choice, len(tokens.token_ids))
        text = choice.text.feed(tokens.token_ids)
        finish = tokens.finish
        if choice.text.stopped and finish not in _SERVED:
            finish = None  # whatever else the engine says of it comes after its end
            self._owner.stop_choice(self, tokens.index)
        choice.finish = FinishReason.STOP if choice.text.stopped else finish
        if choice.finish is not None:
            text += choice.text.flush()
        if text or tokens.token_ids or choice.finish is not None:
            delta = Delta(tokens.index, text, tokens.token_ids, tokens.logprobs, choice.finish)
            self._listener.on_delta(delta)
        if choice.finish is not None and choice.finish not in _SERVED:
            now = self._owner.now()
            ended = refusals.by_engine(choice.finish, tokens.detail, self._ticket, now)
            self._owner.end(self, ended)
        elif self.finished:
            self._owner.end(self, None)

    def _count(self, choice: _Choice, new: int) -> None:
        """Record new tokens of a choice, and the first of all."""
        now, ticket, recorder = self._owner.now(), self._ticket, self._owner.recorder
        if ticket.first_token_at is None:
            ticket.first_token_at = now
            ticket.events.append((now, "first_token"))
            recorder.first_token(
                model=ticket.model, priority=ticket.priority, ttft=now - ticket.arrived
            )
            self._owner.heard(self)
        gap = None if choice.last_at is None else now - choice.last_at
        recorder.output_tokens(model=ticket.model, count=new, gap=gap)
        choice.tokens += new
        choice.last_at = ticket.last_token_at = now
        ticket.output_tokens += new
        if choice.tokens > ticket.estimate.reserve:
            self._owner.outgrew(self, choice.tokens, new)
