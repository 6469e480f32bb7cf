"""How fast the engine is, as seen from the gate: an estimator, which enforces nothing."""

import math

from surgetank.telemetry.steprecord import StepRecord

_HALF_LIFE = 15.0  # seconds in which evidence loses half its weight
_ENOUGH = 8.0  # finished choices, decayed, that make a measurement
_ASSUMED = 5.0  # choices per second, before anything was measured
_FORGET = 1.001  # per step: lets the shortest step grow again after a reconfiguration


class DecayedRate:
    """Events per second of the time that counts, both fading with a half-life.

    seconds' = seconds * k + (1 - k) * half_life / ln 2 with k = 2^(-elapsed / half_life): the
    integral of the fading weight over the time that passed.
    """

    def __init__(self, half_life: float) -> None:
        self._half_life = half_life
        self.events = 0.0
        self._seconds = 0.0

    def pass_time(self, elapsed: float, *, counts: bool) -> None:
        """Let everything fade, and add the elapsed time when it counts."""
        kept = 0.5 ** (elapsed / self._half_life)
        self.events *= kept
        self._seconds *= kept
        if counts:
            self._seconds += (1.0 - kept) * self._half_life / math.log(2)

    @property
    def per_second(self) -> float | None:
        """None until there were enough events to call it a measurement."""
        if self.events < _ENOUGH or self._seconds <= 0:
            return None
        return self.events / self._seconds


class Pace:
    """Learns from finished requests and from step records.

    Two rates of finished choices: over contended time (something waits at the gate), which is the
    engine's capacity, and over busy time (something runs), which is at most that. A stall lowers
    both, because time passes without events.
    """

    def __init__(self, now: float) -> None:
        self._contended = DecayedRate(_HALF_LIFE)
        self._busy = DecayedRate(_HALF_LIFE)
        self._folded_at = self._told_at = now  # told of and not yet folded in: the time between,
        self._waits = self._runs = False  # throughout which this was so
        self.shortest_step = 0.0  # seconds; no request can take less. 0 until a step was seen

    def pass_time(self, now: float, *, waiting: int, running: int) -> None:
        """Account for the time since the last call; call it before either number changes."""
        waits, runs = waiting > 0, waiting + running > 0
        if waits is not self._waits or runs is not self._runs:
            self._fold()
            self._waits, self._runs = waits, runs
        if now > self._told_at:
            self._told_at = now

    def finished(self, n: int, *, waiting: int) -> None:
        """A request of n choices was served to its end, with so many waiting."""
        self._fold()
        self._busy.events += n
        if waiting:
            self._contended.events += n

    def stepped(self, record: StepRecord) -> None:
        """Learn the shortest step that did something."""
        took = record.drain + record.schedule + record.forward + record.sample
        if record.prefill_tokens + record.decode_tokens and took > 0:
            self.shortest_step = min(took, self.shortest_step * _FORGET or took)

    @property
    def drain_rate(self) -> float:
        """Choices served per second, by the best evidence there is; above 0."""
        self._fold()
        return self._contended.per_second or self._busy.per_second or _ASSUMED

    def predicted_wait(self, ahead: int) -> float | None:
        """Seconds until `ahead` choices have left the queue; None while it cannot be known."""
        if not ahead:
            return 0.0
        self._fold()
        rate = self._contended.per_second
        return None if rate is None else ahead / rate

    def _fold(self) -> None:
        """Let the rates hear of the time. Fading is exponential: parts amount to the whole."""
        elapsed = self._told_at - self._folded_at
        if elapsed > 0.0:
            self._folded_at = self._told_at
            self._contended.pass_time(elapsed, counts=self._waits)
            self._busy.pass_time(elapsed, counts=self._runs)
