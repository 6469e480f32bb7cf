"""Steps of an engine that reports none, inferred from when its streams' events arrive.

In continuous batching one step gives every decoding sequence one token, so that the events of a
step come together, and the next step begins with the first stream that speaks again:

    arrivals   a b c   a b c   a b d c         a, b, c, d: streams
    steps      |-----| |-----| |-------|       tau of a step: from the beginning of the one before

A busy server delivers late, several tokens of a stream at once: events much closer than a step are
of steps that came together, and share the time since the step before evenly. Else many steps of no
length would teach the model that this engine takes no time. A usual step is the geometric mean of
those that read no prompt: a prompt may take as long as a thousand steps, and can only shorten it.

A stream's first event tells that its prompt was read; the prompt counts for that step, though a
long one may have been read over several. So the step model, and with it every law, works on what a
client can see, with an error that the model's own fit shows. An answer that is not streamed tells
its mean step alone, (end - begin) / (tokens + 1), and is used only while no stream speaks; of many
that end at once one is enough.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from surgetank.telemetry.steprecord import StepRecord

_ZERO = (0, 0, 0, 0)
_STALE = 15.0  # seconds without a look, after which nothing is known of others
_TOGETHER = 0.0005  # seconds: what is closer came in one bunch,
_MEANS = 0.01  # seconds between two mean steps
_SHORT = 0.2  # and so did what is closer than this share of a usual step: the end of a stream, too
_WEIGHT = 0.05  # of the newest step in the usual one
_THOUSANDTHS = 1000  # blocks of a pool whose size is not known, though its used share is told


@dataclass(slots=True)
class _Step:
    """What has been heard of a step."""

    began: float  # when its first event came
    count: int = 1  # how many steps came together: the most events that one stream gave
    prefill: int = 0  # prompt tokens of those whose first event it has
    prefill_seqs: int = 0
    decoding: int = 0
    resident: int = 0  # tokens of context of those that decode


@dataclass(slots=True)
class _Running:
    """A request that the engine has."""

    prompt: int
    since: float
    tokens: int = 0
    step: _Step | None = None  # the last one in which it spoke
    spoke: int = 0  # its events in that

    def speak(self, events: int, step: _Step) -> None:
        """So many more; the n-th decoded of them has n more tokens of context."""
        if self.step is step:
            self.spoke += events
        else:
            self.step, self.spoke = step, events
        if self.spoke > step.count:
            step.count = self.spoke
        decoded, context = events, self.prompt + self.tokens
        if not self.tokens:
            step.prefill += self.prompt
            step.prefill_seqs += 1
            decoded, context = events - 1, context + 1
        step.decoding += decoded
        step.resident += decoded * context + decoded * (decoded - 1) // 2
        self.tokens += events


class InferredSteps:
    """Turns what happens to requests into step records. Times are monotonic seconds."""

    def __init__(self, max_num_seqs: int, kv_blocks: int) -> None:
        """`max_num_seqs` and `kv_blocks` as its card has them, 0 for what is not known."""
        self._kv_ratio: float | None = None  # share of the pool in use; None: it does not tell
        self._others = 0  # sequences in it that are not ours
        self._looked_at = 0.0
        self._slots = max_num_seqs
        self._kv_blocks = kv_blocks
        self._running: dict[int, _Running] = {}
        self._unread = 0  # prompt tokens of those that have not spoken
        self._step: _Step | None = None
        self._before = 0.0  # when the step before began, or the engine got to work
        self._usual = 0.0  # seconds of a step of late; 0 before any
        self._usual_of = 0  # steps in that
        self._together = _TOGETHER  # seconds: what is closer came in one bunch
        self._mean_at = -_MEANS  # when the last mean step was told
        self._number = 0

    @property
    def requests(self) -> int:
        """How many the engine has."""
        return len(self._running)

    def looked(self, kv_ratio: float | None, others: int | None, now: float) -> StepRecord | None:
        """The engine told how full its pool is, and how many sequences it has beside ours; None: it
        does not. While nothing runs no step would tell it on: then a record without work does,
        where it is news."""
        news = kv_ratio is not None and kv_ratio != self._kv_ratio
        self._kv_ratio = kv_ratio
        if others is not None:
            news = news or others != self._others
            self._others, self._looked_at = others, now
        if not news or self._running:
            return None
        return self._record(seconds=0.0, prefill=0, prefill_seqs=0, decoding=0, resident=0, now=now)

    def dispatched(self, request_id: int, prompt: int, now: float) -> None:
        """The engine gets a request."""
        if not self._running:
            self._before = now
        self._running[request_id] = _Running(prompt, now)
        self._unread += prompt

    def spoke(self, spoken: Iterable[tuple[int, int]], now: float) -> StepRecord | None:
        """Streams' events came at once: pairs of request_id and events, in order. Returns the
        record of the step that this shows to be complete."""
        record, step = None, self._step
        for request_id, events in spoken:
            running = self._running.get(request_id)
            if running is None:
                continue
            if step is not None and running.step is step and now - step.began > self._together:
                record, step = self._close(step, now), None
            if step is None:
                step = self._step = _Step(began=now)
            if not running.tokens:
                self._unread -= running.prompt
            running.speak(events, step)
        return record

    def ended(self, request_id: int, output_tokens: int | None, now: float) -> StepRecord | None:
        """A request is over; `output_tokens` as its usage says."""
        running = self._running.get(request_id)
        record = None
        if running is not None and self._step is not None and len(self._running) == 1:
            record = self._close(self._step, now)
        elif running is not None and output_tokens and not running.tokens and self._step is None:
            record = self._mean(running, output_tokens, now)
        self.cancelled(request_id)
        return record

    def cancelled(self, request_id: int) -> None:
        """Nobody waits for it any more."""
        running = self._running.pop(request_id, None)
        if running is not None and not running.tokens:
            self._unread -= running.prompt

    def _close(self, step: _Step, now: float) -> StepRecord:
        """The step's record, of several that came together their mean; another begins."""
        count = step.count
        seconds = max(0.0, step.began - self._before) / count
        if not step.prefill or seconds < self._usual:
            self._usual_is(seconds)
        record = self._record(
            seconds=seconds,
            prefill=math.ceil(step.prefill / count),  # 0 is what read no prompt
            prefill_seqs=round(step.prefill_seqs / count),
            decoding=round(step.decoding / count),
            resident=round(step.resident / count),
            now=now,
        )
        self._before, self._step = step.began, None
        return record

    def _usual_is(self, seconds: float) -> None:
        """One more step that tells how long they usually take."""
        self._usual_of += 1
        weight = max(_WEIGHT, 1.0 / self._usual_of)
        seconds = max(seconds, _TOGETHER)
        self._usual = seconds**weight * (self._usual or seconds) ** (1.0 - weight)
        self._together = max(_TOGETHER, _SHORT * self._usual)

    def _mean(self, running: _Running, output_tokens: int, now: float) -> StepRecord | None:
        """The mean step of an answer that came in one piece; None: another told one just now."""
        if now - self._mean_at < _MEANS:
            return None
        self._mean_at = now
        others = len(self._running)
        return self._record(
            seconds=(now - running.since) / (output_tokens + 1),
            prefill=0,
            prefill_seqs=0,
            decoding=others,
            resident=others * (running.prompt + output_tokens // 2),
            now=now,
        )

    def _record(
        self,
        *,
        seconds: float,
        prefill: int,
        prefill_seqs: int,
        decoding: int,
        resident: int,
        now: float,
    ) -> StepRecord:
        self._number += 1
        running = len(self._running)
        pool = self._kv_blocks or (0 if self._kv_ratio is None else _THOUSANDTHS)
        used = round((self._kv_ratio or 0.0) * pool)
        return StepRecord(
            step=self._number,
            at=now,
            drain=0.0,
            schedule=0.0,
            forward=seconds,
            sample=0.0,
            emit=0.0,
            idle=0.0,
            prefill_tokens=prefill,
            decode_tokens=decoding,
            prefill_seqs=prefill_seqs,
            decode_seqs=decoding,
            token_budget=0,
            slots_filled=decoding + prefill_seqs,
            slots_no_work=max(0, self._slots - decoding - prefill_seqs),
            slots_blocked_kv=0,
            slots_blocked_token_budget=0,
            slots_blocked_limit=0,
            slots_blocked_other=0,
            waiting=_ZERO,
            running=(0, running, 0, 0),
            contended=False,
            kv_used=used,
            kv_cached=0,
            kv_free=pool - used,
            kv_stored_tokens=0,
            kv_resident_tokens=resident,
            prefix_hit_tokens=0,
            prefix_miss_tokens=0,
            prefill_backlog=self._unread,
            others=self._others if now - self._looked_at < _STALE else 0,
        )
