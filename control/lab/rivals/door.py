"""The door of every rival: its policy says yes or no at once, and yes goes straight to the engine.

So the queue is the engine's own, first come, first served. Refusals carry no hint, as a plain
server's do not.
"""

from itertools import count
from typing import Protocol

from surgetank.admission.api import Ask, Delta, End, Headers, Listener
from surgetank.admission.outcome import Refusal
from surgetank.admission.policies.rule import Seen
from surgetank.admission.refusals import backend_down
from surgetank.control.lab.behaviour import Unhinted
from surgetank.control.lab.entrance import Caller, Handle
from surgetank.control.lab.rivals.site import Site
from surgetank.engine.api import BackendDown, GenerateRequest, Started, Tokens
from surgetank.telemetry.vocabulary import FinishReason, Move, Outcome, Reason


class Rival(Protocol):
    """A policy, such as a Rule of the gate. Everything is told in order of time."""

    def admits(self, now: float, prompt: int, seen: Seen) -> bool:
        """Whether a request of so many prompt tokens may come in."""

    def ended(self, began: float, now: float, ok: bool, seen: Seen) -> None:
        """A request that came in at `began` is over."""


class PlainDoor:
    """Puts a Rival before an engine."""

    def __init__(self, site: Site, rival: Rival) -> None:
        self.seen = Seen()
        self.site = site
        self.rival = rival
        self.ids = count(1)

    def open(
        self, caller: Caller, headers: Headers, ask: Ask, listener: Listener
    ) -> Handle | Refusal:
        """Ask the policy, and forward."""
        now, seen = self.site.timeline.monotonic(), self.seen
        if (step := self.site.port.last_step) is not None:
            seen.kv_usage = step.kv_used / self.site.spec.kv_blocks
        if not self.rival.admits(now, len(ask.prompt), seen):
            return Unhinted(Outcome.OVERLOAD, Reason.QUEUE_REQUESTS, "overloaded")
        forwarded = _Forwarded(self, ask, listener, caller)
        try:
            self.site.port.submit(forwarded.request, forwarded)
        except BackendDown:
            return backend_down()
        seen.in_flight += 1
        seen.waiting += 1
        seen.waiting_tokens += len(ask.prompt)
        return forwarded


class _Forwarded:
    """One request in the engine: the engine's sink and the client's handle."""

    def __init__(self, door: PlainDoor, ask: Ask, listener: Listener, caller: Caller) -> None:
        self.request = GenerateRequest(
            request_id=next(door.ids),
            prompt=ask.prompt,
            sampling=ask.sampling,
            priority=caller.priority,
        )
        self._door = door
        self._listener = listener
        self._began = door.site.timeline.monotonic()
        self._waits = True
        self._tokens = 0

    def cancel(
        self, outcome: Outcome = Outcome.CANCELLED, reason: Reason = Reason.CLIENT_GONE
    ) -> None:
        """The client goes away."""
        self._door.site.port.cancel(self.request.request_id)
        self._leave(ok=False)

    def on_started(self, started: Started) -> None:
        """It left the engine's line."""
        self._stop_waiting()

    def on_moved(self, what: Move) -> None:
        """Of no interest here."""

    def on_tokens(self, tokens: Tokens) -> None:
        """New tokens, perhaps the last."""
        self._tokens += len(tokens.token_ids)
        if tokens.token_ids:
            self._listener.on_delta(Delta(0, "", tokens.token_ids, None, tokens.finish))
        if tokens.finish in (FinishReason.STOP, FinishReason.LENGTH):
            self._leave(ok=True)
            self._listener.on_end(End(Outcome.OK, None, len(self.request.prompt), self._tokens, 0))
        elif tokens.finish is not None:
            self._fail(Refusal(Outcome.INVALID, Reason.ENGINE_REFUSED, tokens.detail))

    def on_lost(self, detail: str) -> None:
        """The engine died with it."""
        self._fail(backend_down(detail))

    def _fail(self, refusal: Refusal) -> None:
        self._leave(ok=False)
        prompt = len(self.request.prompt)
        self._listener.on_end(End(refusal.outcome, refusal, prompt, self._tokens, 0))

    def _stop_waiting(self) -> None:
        if self._waits:
            self._waits = False
            self._door.seen.waiting -= 1
            self._door.seen.waiting_tokens -= len(self.request.prompt)

    def _leave(self, *, ok: bool) -> None:
        self._stop_waiting()
        door = self._door
        door.seen.in_flight -= 1
        door.rival.ended(self._began, door.site.timeline.monotonic(), ok, door.seen)
