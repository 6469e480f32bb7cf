"""The oracle: it lets in exactly what will be served in time, because it knows the future.

It keeps requests in one line, first come, first served, and hands the next one to the engine when
that has room for it, as late binding does. At that moment, knowing the step model and how long each
answer will be, it can tell whether the first token will come in time; what will not make it is
dropped at no cost to the engine. Its drops are the requests that could have been refused on
arrival by whoever knows all that comes: so whatever a policy serves less than the oracle on the
same calls, it refused (or wasted) wrongly. The client of a drop hears of it only then, so an oracle
belongs before clients that neither time out nor retry.
"""

import math
from collections import deque
from itertools import count

from surgetank.admission.api import Ask, Delta, End, Headers, Listener
from surgetank.admission.outcome import Refusal
from surgetank.admission.refusals import backend_down
from surgetank.control.lab.behaviour import Unhinted
from surgetank.control.lab.entrance import Caller, Handle
from surgetank.control.lab.rivals.site import Site
from surgetank.engine.api import (
    GenerateRequest,
    ModelCard,
    Started,
    StepOutput,
    Tokens,
)
from surgetank.telemetry.vocabulary import Move, Outcome, Reason

_MARGIN = 0.02  # seconds: the step in progress when a request is handed over


class Oracle:
    """An entrance, and the engine's watcher: each step may have made room."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.line: deque[_Foreseen] = deque()
        self.inside: dict[_Foreseen, int] = {}  # tokens that each will hold
        self.unread = 0  # prompt tokens inside without a first token
        self.ids = count(1)
        site.port.watch(self)

    def open(
        self, caller: Caller, headers: Headers, ask: Ask, listener: Listener
    ) -> Handle | Refusal:
        """Into the line."""
        foreseen = _Foreseen(self, ask, listener, caller)
        self.line.append(foreseen)
        self.pump()
        return foreseen

    def pump(self) -> None:
        """Hand over or drop, from the head of the line."""
        while self.line and self.site.port.card is not None:
            first = self.line[0]
            if first.over:
                self.line.popleft()
            elif not self._has_room(first):
                return
            else:
                self.line.popleft()
                if self._in_time(first):
                    self._hand_over(first)
                else:
                    first.fail(Unhinted(Outcome.OVERLOAD, Reason.PREDICTED_WAIT, "too late"))

    def on_step(self, output: StepOutput) -> None:
        """Room may have been made."""
        self.pump()

    def on_up(self, card: ModelCard) -> None:
        """An engine is there."""
        self.pump()

    def on_down(self, detail: str) -> None:
        """What was inside has been told."""

    def leave(self, foreseen: "_Foreseen") -> None:
        """It ended, one way or another."""
        self.inside.pop(foreseen, None)

    def _has_room(self, first: "_Foreseen") -> bool:
        """Slots and KV for all of it, less than one chunk still to read, TPOT within its target."""
        spec = self.site.spec
        held = sum(self.inside.values()) + first.size
        fits_kv = held <= spec.kv_usable * spec.block_size * (1 - spec.kv_spare) - spec.block_size
        batch = len(self.inside) + 1
        step = spec.model.seconds(self._chunk, batch, held)
        fits = fits_kv and batch <= spec.max_num_seqs and step <= self.site.slo.tpot
        return not self.inside or (fits and self.unread < self._chunk)

    @property
    def _chunk(self) -> int:
        return self.site.spec.max_batch_tokens - min(len(self.inside), self.site.spec.max_num_seqs)

    def _in_time(self, first: "_Foreseen") -> bool:
        """Whether its first token will come within the target."""
        spec = self.site.spec
        tokens = self.unread + len(first.request.prompt)
        steps = math.ceil(tokens / self._chunk)
        step = spec.model.seconds(0, len(self.inside), sum(self.inside.values()))
        reading = steps * step + spec.model.a * tokens + _MARGIN
        waited = self.site.timeline.monotonic() - first.began
        return waited + reading <= self.site.slo.ttft

    def _hand_over(self, first: "_Foreseen") -> None:
        self.inside[first] = first.size
        self.unread += len(first.request.prompt)
        first.unread = True
        self.site.port.submit(first.request, first)


class _Foreseen:
    """One request: the client's handle, and the engine's sink."""

    def __init__(self, oracle: Oracle, ask: Ask, listener: Listener, caller: Caller) -> None:
        self.request = GenerateRequest(
            request_id=next(oracle.ids),
            prompt=ask.prompt,
            sampling=ask.sampling,
            priority=caller.priority,
        )
        answer = min(oracle.site.answer_length(self.request), ask.sampling.max_tokens)
        self.size = len(ask.prompt) + answer
        self.began = oracle.site.timeline.monotonic()
        self.over = False
        self.unread = False
        self._oracle = oracle
        self._listener = listener
        self._tokens = 0

    def cancel(
        self, outcome: Outcome = Outcome.CANCELLED, reason: Reason = Reason.CLIENT_GONE
    ) -> None:
        """The client goes away."""
        self._oracle.site.port.cancel(self.request.request_id)
        self._leave()

    def on_started(self, started: Started) -> None:
        """It left the engine's line."""

    def on_moved(self, what: Move) -> None:
        """Nothing depends on it."""

    def on_tokens(self, tokens: Tokens) -> None:
        """New tokens, perhaps the last."""
        self._read()
        self._tokens += len(tokens.token_ids)
        if tokens.token_ids:
            self._listener.on_delta(Delta(0, "", tokens.token_ids, None, tokens.finish))
        if tokens.finish is not None:
            self._leave()
            self._listener.on_end(End(Outcome.OK, None, len(self.request.prompt), self._tokens, 0))

    def on_lost(self, detail: str) -> None:
        """The engine died with it."""
        self.fail(backend_down(detail))

    def fail(self, refusal: Refusal) -> None:
        """It will not be served."""
        self._leave()
        prompt = len(self.request.prompt)
        self._listener.on_end(End(refusal.outcome, refusal, prompt, self._tokens, 0))

    def _read(self) -> None:
        if self.unread:
            self.unread = False
            self._oracle.unread -= len(self.request.prompt)

    def _leave(self) -> None:
        self.over = True
        self._read()
        self._oracle.leave(self)
