"""The budget of each step: the limits as they stand, and what the engine learnt of its speed."""

import math
from dataclasses import dataclass
from typing import TypeVar

from surgetank.engine.api import Settings
from surgetank.engine.config import EngineConfig
from surgetank.engine.kv.manager import KVManager
from surgetank.engine.plan import UNKNOWN, Budget
from surgetank.telemetry.stepmodel import StepFit, StepModel
from surgetank.telemetry.steprecord import StepRecord

Number = TypeVar("Number", int, float)
_CALM = 64  # steps without trouble, after which a step that ran out of memory may double again
_RATE_WEIGHT = 0.2  # of the newest swap in the moving average


@dataclass(frozen=True, slots=True)
class Limits:
    """What the control plane may change between steps."""

    sequences: int
    tokens: int
    prefill_share: float = 1.0
    kv_watermark: float = 1.0
    tpot_target: float = 0.0  # seconds; 0: any

    def changed(self, settings: Settings, built: "Limits") -> "Limits":
        """With what `settings` says, held within what the engine was built for."""
        return Limits(
            sequences=min(max(1, _newer(settings.max_num_seqs, self.sequences)), built.sequences),
            tokens=max(1, _newer(settings.max_batch_tokens, self.tokens)),
            prefill_share=_share(_newer(settings.prefill_share, self.prefill_share)),
            kv_watermark=_share(_newer(settings.kv_watermark, self.kv_watermark)),
            tpot_target=max(0.0, _newer(settings.tpot_target, self.tpot_target)),
        )


def _newer(new: Number | None, old: Number) -> Number:
    return old if new is None else new


def _share(value: float) -> float:
    return min(max(0.0, value), 1.0)


class Budgets:
    """Answers for what the next step may use."""

    def __init__(self, config: EngineConfig, kv: KVManager) -> None:
        self.limits = self.built = Limits(
            sequences=config.max_num_seqs,
            tokens=config.max_batch_tokens,
            prefill_share=config.prefill_share,
            kv_watermark=config.kv_watermark,
            tpot_target=config.tpot_target or 0.0,
        )
        self.fit = StepFit()
        self._config = config
        self._kv = kv
        self._swap_rate: float | None = None  # bytes a second, measured
        self._ceiling = math.inf  # tokens of a step, since memory ran out
        self._calm = 0  # steps since then
        self._hold_pool()

    def apply(self, settings: Settings) -> None:
        """New limits from the next step on."""
        self.limits = self.limits.changed(settings, self.built)
        self._hold_pool()

    def _hold_pool(self) -> None:
        pool = self._kv.pool
        pool.limit = max(1, int(pool.size * self.limits.kv_watermark))

    def budget(self) -> Budget:
        """For the next step."""
        limits, config, model = self.limits, self._config, self.fit.model
        tokens = int(min(limits.tokens, self._ceiling))
        recompute, swap = self._exit_costs(model)
        return Budget(
            tokens=tokens,
            prefill_tokens=max(1, int(tokens * limits.prefill_share)),
            sequences=limits.sequences,
            spare_blocks=math.ceil(self._kv.pool.size * config.kv_spare),
            seconds=math.inf if model is None else limits.tpot_target or math.inf,
            model=model or UNKNOWN,
            least_prefill=config.min_prefill_tokens,
            displace=config.displace,
            preemptions=config.max_preemptions,
            recompute_seconds=recompute,
            swap_seconds=swap,
            admit_every=config.admit_every,
        )

    def _exit_costs(self, model: StepModel | None) -> tuple[float, float]:
        """Seconds to compute a token again, and to copy a block out and in. A swap that was never
        measured costs nothing, so that it is tried once; before the model is known, nobody is
        swapped."""
        mode, rate = self._config.preemption, self._swap_rate
        if mode == "recompute":
            return 0.0, math.inf
        if mode == "swap":
            return math.inf, 0.0
        recompute = 0.0 if model is None else model.a
        return recompute, 0.0 if rate is None else 2 * self._kv.block_bytes / rate

    def learn(self, record: StepRecord) -> None:
        """From a finished step; one that swapped or ran out of memory took longer than its work."""
        if any(record.ooms):
            return
        if not record.swapped_in_bytes and not record.swapped_out_bytes:
            self.fit.observe(record)
        self._calm += 1
        if self._calm % _CALM == 0:
            self._ceiling *= 2
            if self._ceiling >= self.limits.tokens:
                self._ceiling = math.inf

    def swapped(self, blocks: int, seconds: float) -> None:
        """So many blocks were copied between pool and host in that time."""
        if seconds > 0:
            rate = blocks * self._kv.block_bytes / seconds
            known = self._swap_rate
            self._swap_rate = rate if known is None else known + _RATE_WEIGHT * (rate - known)

    def shrink(self, tokens: int) -> None:
        """A step of more tokens than that ran out of memory: none such for a while."""
        self._ceiling, self._calm = max(1, tokens), 0
