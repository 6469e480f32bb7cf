"""One admitted request: turns the engine's tokens into text for its door, until its one end."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from surgetank.admission import refusals
from surgetank.admission.api import Ask, Delta, End, Listener
from surgetank.admission.outcome import Refusal
from surgetank.admission.permit import Permit
from surgetank.admission.routing.moves import lost
from surgetank.admission.routing.side import EngineSide
from surgetank.admission.ticket import Ticket
from surgetank.admission.work import Owner
from surgetank.engine.api import Backend, GenerateRequest, Started, Tokens
from surgetank.engine.text.codec import TextCodec
from surgetank.engine.text.detokenizer import Detokenizer
from surgetank.telemetry.vocabulary import FinishReason, Move, Outcome, Reason

log = logging.getLogger(__name__)

_SERVED = (FinishReason.STOP, FinishReason.LENGTH)


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
        self,
        owner: Owner,
        backends: Sequence[Backend],
        ticket: Ticket,
        ask: Ask,
        codec: TextCodec,
        listener: Listener,
    ) -> None:
        """Raises ValueError for stop strings that cannot be."""
        self.request_id: int | None = None  # set while the engine knows of it
        self.permit: Permit | None = None
        self.side: EngineSide | None = None
        self._owner = owner
        self._backends = backends
        self._backend = backends[0]
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

    def hold(self, held: bool) -> None:
        """The engine goes on: a few tokens are cheaper to keep than a sequence to stop."""

    def start(self, request_id: int, time_left: float | None, at: int) -> None:
        """Hand it to that engine; raises BackendDown."""
        self.request_id, self._backend = request_id, self._backends[at]
        request = GenerateRequest(
            request_id=request_id,
            prompt=self._ask.prompt,
            sampling=self._ask.sampling,
            n=self._ask.n,
            priority=self._ticket.priority,
            time_left=time_left,
        )
        self._backend.submit(request, self)

    def stop(self) -> None:
        """The engine need not go on with it."""
        request_id, self.request_id = self.request_id, None
        if request_id is not None:
            self._backend.cancel(request_id)

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

    def on_moved(self, what: Move) -> None:
        """The engine put it back, or took it up again."""
        self._ticket.happened(self._owner.now(), what)

    def on_tokens(self, tokens: Tokens) -> None:
        """New tokens of one choice; those for what has ended are dropped."""
        if self._ticket.outcome is not None:
            return
        try:
            self._take(tokens)
        except Exception:  # a fault here must not reach the other requests of this step
            log.exception(
                "a request: its tokens could not be delivered", extra=self._ticket.log_fields
            )
            self._owner.end(self, refusals.fault())

    def on_lost(self, detail: str) -> None:
        """The engine died with it."""
        self.request_id = None
        refusal = lost(self._ticket, detail, begun=True)
        if self._ticket.first_token_at is None:
            self._owner.turned_away(self, refusal)
        else:
            self._owner.end(self, refusal)

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
            log.exception("a request: its door failed at the end", extra=ticket.log_fields)

    def record_latencies(self) -> None:
        """TTFT and TPOT of an ok request; TPOT = (last - first) / (tokens of the longest - 1)."""
        ticket, tpot, ttft = self._ticket, None, None
        longest = max(choice.tokens for choice in self._choices)
        if ticket.first_token_at is not None and ticket.last_token_at is not None:
            ttft = ticket.first_token_at - ticket.arrived
            if longest > 1:
                tpot = (ticket.last_token_at - ticket.first_token_at) / (longest - 1)
        ticket.tpot = tpot
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
            self._stop_choice(tokens.index)
        choice.finish = FinishReason.STOP if choice.text.stopped else finish
        if choice.finish is not None:
            text += choice.text.flush()
        if text or tokens.token_ids or choice.finish is not None:
            matched = choice.text.matched
            self._listener.on_delta(
                Delta(tokens.index, text, tokens.token_ids, tokens.logprobs, choice.finish, matched)
            )
        if choice.finish is not None and choice.finish not in _SERVED:
            now = self._owner.now()
            ended = refusals.by_engine(choice.finish, tokens.detail, self._ticket, now)
            self._owner.end(self, ended)
        elif self.finished:
            self._owner.end(self, None)

    def _stop_choice(self, index: int) -> None:
        """A stop string ended one choice; the engine does not know yet."""
        if self.request_id is not None:
            self._backend.cancel(self.request_id, index)

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
        if gap is not None:
            ticket.longest_gap = max(ticket.longest_gap, gap / new)
        recorder.output_tokens(ticket.model, new, gap)
        choice.tokens += new
        choice.last_at = ticket.last_token_at = now
        ticket.output_tokens += new
        if choice.tokens > ticket.estimate.reserve:
            self._owner.outgrew(self, choice.tokens, new)
