"""Where a step's device time goes: attention, matrix products, norms; timed one step in N.

An unsampled step runs the plain model: nothing is wrapped, nothing is asked.
"""

from collections.abc import Callable
from typing import ParamSpec, Protocol, Self, TypeVar

import msgspec
import torch

from surgetank.engine.kernels.attention import AttentionStep, KVCache
from surgetank.engine.model.batch import ForwardBatch
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.steprecord import OPERATORS, StepRecord
from surgetank.telemetry.vocabulary import Operator

P = ParamSpec("P")
R = TypeVar("R")


class OperatorMeter:
    """Adds up the seconds of the pieces that it wraps, over one step; decides which are sampled."""

    def __init__(self, every: int, device: torch.device, clock: Clock) -> None:
        """One step in `every` is sampled; 0: none. Work queued on a GPU is waited for."""
        self.sampling = False
        self._every = every
        self._left = every
        self._waits = device if device.type == "cuda" else None
        self._clock = clock
        self._seconds = dict.fromkeys(OPERATORS, 0.0)

    def begin(self) -> None:
        """Before a step."""
        self.sampling = self._every > 0 and self._left <= 1
        if self.sampling:
            self._seconds = dict.fromkeys(OPERATORS, 0.0)

    def end(self, record: StepRecord) -> StepRecord:
        """After it: the record, if this was a sample with seconds by operator, that sum to its
        forward and sample. The operator `sampling` is choosing tokens and taking them in."""
        if not self.sampling:
            self._left -= 1
            return record
        self.sampling, self._left = False, self._every
        seconds = self._seconds
        seconds[Operator.SAMPLING] = record.sample
        timed = sum(seconds.values()) - record.sample
        seconds[Operator.OTHER] = max(0.0, record.forward - timed)
        return msgspec.structs.replace(record, operators=tuple(seconds.values()))

    def wrap(self, operator: Operator, piece: Callable[P, R]) -> Callable[P, R]:
        """The same, timed."""

        def timed(*args: P.args, **kwargs: P.kwargs) -> R:
            begun = self._now()
            result = piece(*args, **kwargs)
            self._seconds[operator] += self._now() - begun
            return result

        return timed

    def _now(self) -> float:
        if self._waits is not None:
            torch.cuda.synchronize(self._waits)
        return self._clock.monotonic()


class MeteredModel(Protocol):
    """A model that can be had with its pieces wrapped."""

    def __call__(self, batch: ForwardBatch, cache: KVCache) -> torch.Tensor:
        """Logits [R, vocab] for `batch.sample_at`."""

    def timed(self, meter: OperatorMeter) -> Self:
        """The same model over the same weights, its pieces wrapped by `meter`."""


class SampledModel:
    """The plain model, and on sampled steps its timed twin."""

    def __init__(self, model: MeteredModel, meter: OperatorMeter) -> None:
        self._plain = model
        self._timed = model.timed(meter)
        self._meter = meter

    def __call__(self, batch: ForwardBatch, cache: KVCache) -> torch.Tensor:
        """Logits [R, vocab] for `batch.sample_at`."""
        return (self._timed if self._meter.sampling else self._plain)(batch, cache)


class SampledCache:
    """A KV cache that times its copies of blocks, and its attention on sampled steps."""

    def __init__(self, cache: KVCache, meter: OperatorMeter) -> None:
        self.num_blocks = cache.num_blocks
        self.block_size = cache.block_size
        self.copy_blocks = meter.wrap(Operator.KV_COPY, cache.copy_blocks)
        self.swap_out = meter.wrap(Operator.KV_COPY, cache.swap_out)
        self.swap_in = meter.wrap(Operator.KV_COPY, cache.swap_in)
        self.release_host = cache.release_host
        self._cache = cache
        self._timed_plan = meter.wrap(Operator.ATTENTION, cache.plan)
        self._meter = meter

    @property
    def host_blocks(self) -> int:
        """Blocks of the swap pool in host memory."""
        return self._cache.host_blocks

    def plan(self, batch: ForwardBatch) -> AttentionStep:
        """Prepare one step over the cache."""
        if not self._meter.sampling:
            return self._cache.plan(batch)
        return _TimedStep(self._timed_plan(batch), self._meter)


class _TimedStep:
    def __init__(self, step: AttentionStep, meter: OperatorMeter) -> None:
        self.attend = meter.wrap(Operator.ATTENTION, step.attend)
