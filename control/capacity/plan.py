"""The plan: weights, KV cache and working memory put together, and what fits in what is left."""

from dataclasses import dataclass, replace

from surgetank.control.capacity import memory
from surgetank.control.capacity.architecture import Architecture, Attention
from surgetank.control.capacity.kv import Layout, lay_out
from surgetank.control.capacity.settings import PlanSettings
from surgetank.control.capacity.units import CapacityError, width
from surgetank.control.capacity.weights import Weights, weigh

DEFAULT_CONTEXT = 4096


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer, all sizes in bytes on one device."""

    architecture: Architecture
    settings: PlanSettings
    context: int
    activation_width: int
    kv_width: int
    weights: Weights
    layout: Layout
    sampling: int
    forward: int
    overhead: int
    pool: int | None  # for KV; None when neither memory nor pool was said

    @property
    def activations(self) -> int:
        return max(self.sampling, self.forward)

    @property
    def fixed(self) -> int:
        """What is taken before the first request."""
        return self.weights.rank + self.activations + self.overhead

    @property
    def need(self) -> int:
        """What the asked concurrency and context take in all."""
        return self.fixed + self.settings.concurrency * self.layout.sequence_bytes(self.context)

    @property
    def verdict(self) -> memory.Verdict | None:
        if self.settings.gpu_memory is None:
            return None
        return memory.judge(self.need, self.settings.gpu_memory, self.settings.utilization)


def make_plan(architecture: Architecture, settings: PlanSettings) -> Plan:
    """The plan for a model; CapacityError when the settings do not suit it."""
    _check_split(architecture, settings.tp)
    context = settings.context or min(DEFAULT_CONTEXT, architecture.max_context)
    if context > architecture.max_context:
        raise CapacityError(
            f"context is {context}; allowed: 1 to {architecture.max_context}, the model's own limit"
        )
    weights = weigh(architecture, settings.dtype, settings.tp)
    activation_width = weights.width
    kv_width = (
        activation_width if settings.kv_dtype == "auto" else width(settings.kv_dtype, "kv_dtype")
    )
    layout = lay_out(
        architecture,
        tp=settings.tp,
        kv_width=kv_width,
        state_width=activation_width,
        block_size=settings.block_size,
    )
    tokens, hidden = settings.batch_tokens, architecture.hidden
    plan = Plan(
        architecture=architecture,
        settings=settings,
        context=context,
        activation_width=activation_width,
        kv_width=kv_width,
        weights=weights,
        layout=layout,
        sampling=memory.sampling_peak(
            settings.max_seqs, architecture.vocab, tokens, hidden, activation_width
        ),
        forward=memory.forward_peak(
            tokens, hidden, architecture.widest_mlp, settings.tp, activation_width
        ),
        overhead=(memory.overhead(settings.tp) if settings.overhead is None else settings.overhead),
        pool=settings.kv_memory,
    )
    return _with_pool(plan)


def _with_pool(plan: Plan) -> Plan:
    if plan.pool is not None or plan.settings.gpu_memory is None:
        return plan
    granted = int(plan.settings.gpu_memory * plan.settings.utilization)
    return replace(plan, pool=max(0, granted - plan.fixed))


def _check_split(architecture: Architecture, tp: int) -> None:
    """Heads must share out evenly, as every engine demands."""
    if architecture.heads % tp:
        raise CapacityError(
            f"tp is {tp}; allowed: a divisor of the model's {architecture.heads} heads"
        )
    for heads in {cache.kv_heads for cache in architecture.caches if isinstance(cache, Attention)}:
        if heads % tp and tp % heads:
            raise CapacityError(
                f"tp is {tp}; allowed: a divisor or a multiple of the model's {heads} KV heads"
            )
