"""Simulated clients: each call is tried, timed, given up and retried as its behaviour says."""

import random
from collections.abc import Iterator, Sequence

from surgetank.admission.api import Ask, Delta, End
from surgetank.admission.outcome import Refusal
from surgetank.control.lab.behaviour import Behaviour
from surgetank.control.lab.entrance import Caller, Entrance, Handle
from surgetank.control.lab.helpers import Helpers, advice
from surgetank.control.lab.inputs import Item
from surgetank.control.lab.log import ABANDONED, NAN, OUTCOMES, REASONS, Log
from surgetank.control.lab.timeline import Timeline, Timer
from surgetank.engine.api import GenerateRequest, SamplingParams
from surgetank.telemetry.vocabulary import Outcome, Reason

_OUTCOME = {outcome: number for number, outcome in enumerate(OUTCOMES)}
_REASON = {reason: number for number, reason in enumerate(REASONS)}
_PROMPT = [0] * 4096


class Crowd:
    """All clients of a run: starts each call at its time, whatever becomes of the others."""

    def __init__(
        self,
        timeline: Timeline,
        entrances: Sequence[Entrance],
        mix: Sequence[tuple[Behaviour, float]],
        rng: random.Random,
    ) -> None:
        """`mix`: kinds of clients, with their weights. Calls that name none choose one at random,
        and all choose an entrance."""
        self.timeline = timeline
        self.log = Log()
        self.rng = rng
        self.helpers = Helpers(timeline, rng)
        self.open: dict[int, _Call] = {}
        self._entrances = entrances
        self._kinds = [kind for kind, _ in mix]
        self._weights = [weight for _, weight in mix]
        self._named = {kind.name: kind for kind, _ in mix}
        self._outputs: list[int] = []
        self._items: Iterator[Item] = iter(())
        self._started = 0

    def play(self, items: Sequence[Item]) -> None:
        """Let them come; `items` in order of time."""
        self._items = iter(items)
        self._outputs = [item.output for item in items]
        self._await_next()

    def answer_length(self, request: GenerateRequest) -> int:
        """How long the answer will be: a prompt's first token is the number of its call."""
        return self._outputs[request.prompt[0]]

    def close(self) -> None:
        """The run is over: calls that are still open are told as such."""
        for call in list(self.open.values()):
            call.stop()

    def _await_next(self) -> None:
        item = next(self._items, None)
        if item is not None:
            self.timeline.call_at(item.at, lambda: self._start(item))

    def _start(self, item: Item) -> None:
        number = self._started
        self._started += 1
        self._await_next()
        kind = self._named[item.client] if item.client else self._any_kind()
        doors = self._entrances
        door = doors[0] if len(doors) == 1 else doors[self.rng.randrange(len(doors))]
        call = self.open[number] = _Call(self, number, item, kind, door)
        call.attempt()

    def _any_kind(self) -> Behaviour:
        one = len(self._kinds) == 1
        return self._kinds[0] if one else self.rng.choices(self._kinds, self._weights)[0]


class _Call:
    """One call, over all its attempts."""

    __slots__ = (
        "admitted",
        "ask",
        "attempts",
        "began",
        "caller",
        "crowd",
        "door",
        "helped",
        "item",
        "kind",
        "number",
        "trying",
    )

    def __init__(
        self, crowd: Crowd, number: int, item: Item, kind: Behaviour, door: Entrance
    ) -> None:
        self.crowd = crowd
        self.number = number
        self.item = item
        self.kind = kind
        self.door = door
        self.helped = crowd.helpers.begin(kind, item.tenant) if kind.wait == "helper" else None
        self.caller = Caller(item.tenant, item.priority, kind.streams)
        self.ask = Ask(_prompt(number, item.prompt), SamplingParams(max_tokens=item.max_tokens))
        self.began = crowd.timeline.monotonic()
        self.attempts = 0
        self.admitted = 0
        self.trying: _Attempt | None = None

    def attempt(self) -> None:
        """Try once more."""
        left = None
        if self.kind.patience is not None:
            left = self.began + self.kind.patience - self.crowd.timeline.monotonic()
        headers = self.kind.headers(self.attempts, left)
        self.attempts += 1
        attempt = self.trying = _Attempt(self, self.attempts - 1)
        attempt.start_timer()
        answer = self.door.open(self.caller, headers, self.ask, attempt)
        if isinstance(answer, Refusal):
            attempt.failed(answer)
        else:
            attempt.let_in(answer)

    def wait_after(self, refusal: Refusal | None, heard: bool) -> float | None:
        """Seconds until the next attempt; None when there is none. No retry after a first token."""
        if heard:
            return None
        crowd = self.crowd
        if self.helped is not None:
            wall = crowd.timeline.wall()
            return self.helped.next(advice(refusal, wall, hinted=self.kind.obeys))
        wait = self.kind.wait_before(self.attempts, refusal, crowd.rng)
        if wait is None or self.kind.patience is None:
            return wait
        until = self.began + self.kind.patience
        return wait if crowd.timeline.monotonic() + wait < until else None

    def end(self, *, at: float, served: "_Attempt | None" = None) -> None:
        """Write its row; it is over, perhaps served by one of its attempts."""
        del self.crowd.open[self.number]
        calls, item = self.crowd.log.calls, self.item
        calls.number.append(self.number)
        calls.arrived.append(self.began)
        calls.heard.append(served.first if served else NAN)
        calls.ended.append(at)
        calls.prompt.append(item.prompt)
        calls.output.append(min(item.output, item.max_tokens))
        calls.tenant.append(self.crowd.log.tenant(item.tenant))
        calls.priority.append(item.priority)
        calls.ok.append(served is not None)
        calls.ttft.append(served.ttft if served else NAN)
        calls.tpot.append(served.tpot if served else NAN)
        calls.attempts.append(self.attempts)
        calls.admitted.append(self.admitted)

    def stop(self) -> None:
        """The run ends before it does."""
        if self.trying is not None:
            self.trying.over = True
        self.end(at=NAN)


class _Attempt:
    """One try, and the listener of its answer."""

    __slots__ = (
        "admitted",
        "at",
        "call",
        "first",
        "handle",
        "last",
        "number",
        "over",
        "timer",
        "tokens",
    )

    def __init__(self, call: _Call, number: int) -> None:
        self.call = call
        self.number = number
        self.at = self.last = call.crowd.timeline.monotonic()
        self.first = NAN
        self.tokens = 0
        self.over = False
        self.admitted = False
        self.handle: Handle | None = None
        self.timer: Timer | None = None

    def start_timer(self) -> None:
        """Before it leaves: the client's timeout is over before the server's idea of it."""
        timeout = self.call.kind.timeout
        if timeout is not None:
            self.timer = self.call.crowd.timeline.call_later(timeout, self._give_up)

    def let_in(self, handle: Handle) -> None:
        """It was not refused; it may even be over."""
        self.handle = handle
        self._count_admitted()

    def on_delta(self, delta: Delta) -> None:
        """Tokens came: the first of a stream ends the wait for it."""
        if self.over or not delta.token_ids:
            return
        self.last = self.call.crowd.timeline.monotonic()
        if not self.tokens:
            self.first = self.last
            if self.timer is not None and self.call.kind.streams:
                self.timer.cancel()
        self.tokens += len(delta.token_ids)

    def on_end(self, end: End) -> None:
        """The answer's one end."""
        if self.over:
            return
        self._count_admitted()
        if end.refusal is not None:
            self.failed(end.refusal)
            return
        self._close(Outcome.OK, Reason.NONE, NAN, NAN)
        self.call.end(at=self.last, served=self)

    def failed(self, refusal: Refusal) -> None:
        """Refused at the door, or ended before it was served."""
        wait = self.call.wait_after(refusal, heard=self.tokens > 0 and self.call.kind.streams)
        advised = NAN if refusal.retry_after is None else refusal.retry_after
        taken = NAN if wait is None else wait
        self._close(refusal.outcome, refusal.reason, advised, taken)
        self._go_on(wait)

    def _count_admitted(self) -> None:
        """It got past the door; told by whichever comes first, the door's answer or its end."""
        if not self.admitted:
            self.admitted = True
            self.call.admitted += 1

    def _give_up(self) -> None:
        """Nothing was heard in time: leave, and perhaps come back."""
        handle, self.over = self.handle, True
        if handle is not None:
            handle.cancel()
        wait = self.call.wait_after(None, heard=False)
        self._close(None, Reason.CLIENT_GONE, NAN, NAN if wait is None else wait)
        self._go_on(wait)

    def _go_on(self, wait: float | None) -> None:
        timeline = self.call.crowd.timeline
        if wait is None:
            self.call.end(at=timeline.monotonic())
        else:
            self.call.trying = None
            timeline.call_later(wait, self._retry)

    def _retry(self) -> None:
        if self.call.number in self.call.crowd.open:
            self.call.attempt()

    @property
    def ttft(self) -> float:
        """Seconds from sending to the first token; nan without one."""
        return self.first - self.at

    @property
    def tpot(self) -> float:
        """Seconds per token after the first; nan without a second."""
        return (self.last - self.first) / (self.tokens - 1) if self.tokens > 1 else NAN

    def _close(self, outcome: Outcome | None, reason: Reason, advised: float, taken: float) -> None:
        """Write its row; whatever is still said of it is not heard."""
        self.over = True
        if self.timer is not None:
            self.timer.cancel()
        rows = self.call.crowd.log.attempts
        rows.call.append(self.call.number)
        rows.number.append(self.number)
        rows.at.append(self.at)
        rows.ended.append(self.call.crowd.timeline.monotonic())
        rows.admitted.append(self.admitted)
        rows.outcome.append(ABANDONED if outcome is None else _OUTCOME[outcome])
        rows.reason.append(_REASON[reason])
        rows.advised.append(advised)
        rows.taken.append(taken)
        rows.tokens.append(self.tokens)
        rows.ttft.append(self.ttft)
        rows.tpot.append(self.tpot)


def _prompt(number: int, length: int) -> list[int]:
    """A prompt that no other call has, from its first token on."""
    prompt = _PROMPT[:length] if length <= len(_PROMPT) else [0] * length
    prompt[0] = number
    return prompt
