"""What the gate believes of the engine: learned from its step records, never asked for.

mu, the drain rate, is engine-seconds served per second. The step model defines the engine-second,
so mu = 1 while the model holds; when steps take longer than it says, mu is what is left:

    mu = exp(-EWMA(ln(tau / predicted)))

The geometric mean hears a lasting slow-down within some twenty steps (the fit needs hundreds) and
is hardly moved by a single stalled step, whose 10 s would drown an arithmetic mean. Batch and chunk
are those at which the engine works when there is more to do: EWMAs over the steps that had it. The
chunk of an engine that tells what a step had room for (its step budget cuts prompts) is just that.
"""

import math

import msgspec

from surgetank.telemetry.stepmodel import StepFit, StepModel, step_seconds
from surgetank.telemetry.steprecord import StepRecord

_WEIGHT = 0.05  # of the newest step
_CLAMP = 3.0  # a step counts as at most e^3 times its prediction
STALL = 0.25  # seconds without a step before they count as a stall


class Rates(msgspec.Struct, frozen=True):
    """The engine at one moment, as far as predictions need it."""

    model: StepModel
    drain: float  # mu, engine-seconds per second
    batch: float  # sequences in a step while work waits, at least 1
    chunk: float  # prompt tokens of a step that has prompts to read, at least 1
    decoding: int  # sequences in the newest step
    resident: int  # context tokens that it read
    tpot: float  # seconds of a decoding step of late

    @property
    def chunk_seconds(self) -> float:
        """tau(chunk, B, K): a step that reads prompts at full width."""
        return self.model.seconds(self.chunk, self.decoding, self.resident) / self.drain


class EngineView:
    """Learns from steps. `rates` is None until the step model is fitted."""

    def __init__(self, max_num_seqs: int = 1, max_batch_tokens: int = 1) -> None:
        self.fit = StepFit()
        self.rates: Rates | None = None
        self.stalled = 0.0  # seconds lost to stalled steps since the beginning
        self._slow = 0.0  # EWMA of ln(tau / predicted)
        self._batch = float(max_num_seqs)
        self._chunk = float(max_batch_tokens)
        self._tpot = 0.0

    def stepped(self, record: StepRecord, *, waiting: bool) -> None:
        """Learn from a step; `waiting`: requests waited at the gate meanwhile."""
        self.fit.observe(record)
        model, seconds = self.fit.model, step_seconds(record)
        if model is None or seconds <= 0:
            return
        prefill, batch = record.prefill_tokens, record.decode_tokens
        expected = model.seconds(prefill, batch, record.kv_resident_tokens)
        if prefill + batch and expected > 0:
            self._compare(seconds, expected)
        if waiting and batch:
            self._batch += _WEIGHT * (batch - self._batch)
        if record.prefill_budget:
            self._chunk += _WEIGHT * (record.prefill_budget - self._chunk)
        elif record.prefill_backlog and prefill:  # it read all that it could
            self._chunk += _WEIGHT * (prefill - self._chunk)
        if batch and seconds < STALL + 4.0 * expected:
            self._tpot += _WEIGHT * (seconds - self._tpot) if self._tpot else seconds
        self.rates = Rates(
            model=model,
            drain=math.exp(-self._slow),
            batch=max(1.0, self._batch),
            chunk=self.chunk,
            decoding=batch,
            resident=record.kv_resident_tokens,
            tpot=self._tpot or expected,
        )

    def _compare(self, seconds: float, expected: float) -> None:
        ratio = math.log(seconds / expected)
        self._slow += _WEIGHT * (max(-_CLAMP, min(_CLAMP, ratio)) - self._slow)
        usual = expected * math.exp(self._slow)
        if seconds > STALL + 2.0 * usual:
            self.stalled += seconds - usual

    @property
    def chunk(self) -> float:
        """Prompt tokens of a step that has prompts to read; before any step, what it may have."""
        return max(1.0, self._chunk)

    def age(self, stalled_for: float | None) -> float:
        """Seconds of silence beyond what a full step may take: what a stall adds to every wait."""
        if stalled_for is None or stalled_for <= STALL:
            return 0.0
        usual = 0.0 if self.rates is None else 2.0 * self.rates.chunk_seconds
        return max(0.0, stalled_for - max(STALL, usual))
