"""The simulated engine's budget of each step: its limits, and what it has learnt of its speed.

engine/budgets.py's rules, with two things that are known here and measured there: the step model,
which is the true one once the engine would believe its fit, and the time that a swap takes.
"""

import math

from surgetank.control.lab.steptime import EngineSpec
from surgetank.engine.api import Settings
from surgetank.engine.budgets import Limits
from surgetank.engine.plan import UNKNOWN, Budget
from surgetank.telemetry import stepmodel


class Budgets:
    """`budget` is the next step's."""

    def __init__(self, spec: EngineSpec) -> None:
        self._spec = spec
        self._built = self.limits = Limits(
            sequences=spec.max_num_seqs,
            tokens=spec.max_batch_tokens,
            prefill_share=spec.prefill_share,
            kv_watermark=spec.kv_watermark,
            tpot_target=spec.tpot_target,
        )
        self._steps = 0
        self.budget = self._made()

    @property
    def kv_blocks(self) -> int:
        """That sequences may hold."""
        return max(1, int(self._spec.kv_blocks * self.limits.kv_watermark))

    def apply(self, settings: Settings) -> None:
        """New limits from the next step on."""
        self.limits = self.limits.changed(settings, self._built)
        self.budget = self._made()

    def stepped(self, steps: int) -> None:
        """So many more steps were made."""
        cold = self._steps < stepmodel.ENOUGH
        self._steps += steps
        if cold and self._steps >= stepmodel.ENOUGH:
            self.budget = self._made()

    def _made(self) -> Budget:
        spec, limits, known = self._spec, self.limits, self._steps >= stepmodel.ENOUGH
        model = stepmodel.StepModel(**spec.model.model_dump())
        recompute, swap = self._exit_costs(model.a if known else 0.0)
        return Budget(
            tokens=limits.tokens,
            prefill_tokens=max(1, int(limits.tokens * limits.prefill_share)),
            sequences=limits.sequences,
            spare_blocks=math.ceil(spec.kv_blocks * spec.kv_spare),
            seconds=limits.tpot_target or math.inf if known else math.inf,
            model=model if known else UNKNOWN,
            least_prefill=spec.min_prefill_tokens,
            displace=spec.displace,
            preemptions=spec.max_preemptions,
            recompute_seconds=recompute,
            swap_seconds=swap,
        )

    def _exit_costs(self, recompute: float) -> tuple[float, float]:
        """Seconds to compute a token again, and to copy a block out and in."""
        if self._spec.preemption == "auto":
            return recompute, self._spec.swap_seconds
        return (math.inf, 0.0) if self._spec.preemption == "swap" else (0.0, math.inf)
