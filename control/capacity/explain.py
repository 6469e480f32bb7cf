"""A plan in words: every number with the formula that made it, the numbers filled in."""

from collections import Counter
from collections.abc import Iterator

from surgetank.control.capacity import memory
from surgetank.control.capacity.architecture import Attention, Cache, Latent
from surgetank.control.capacity.gpus import holding
from surgetank.control.capacity.kv import layer_bytes, rank_heads, state_bytes
from surgetank.control.capacity.load import Load
from surgetank.control.capacity.plan import Plan
from surgetank.control.capacity.report import Line, Report, Section
from surgetank.control.capacity.units import both, gib


def explain(plan: Plan) -> Report:
    """The whole report of a plan."""
    sections = [
        Section("weights", tuple(_weights(plan))),
        Section("KV cache, per GPU", tuple(_cache(plan))),
        Section("memory, per GPU", tuple(_memory(plan))),
    ]
    if plan.pool is not None:
        sections.append(Section("what fits", tuple(_fits(plan, plan.pool))))
    if plan.settings.rps is not None:
        sections.append(Section("load", tuple(_load(plan, plan.settings.rps))))
    size, tp = plan.settings.gpu_memory, plan.settings.tp
    device = f"{tp} x {both(size)}" if size else f"{tp} device{'s' * (tp > 1)} of unsaid memory"
    return Report(
        title=f"{plan.architecture.name} on {device}",
        sections=tuple(sections),
        verdict=plan.verdict,
        notes=(f"model from {plan.architecture.source}", *plan.architecture.notes),
    )


def _weights(plan: Plan) -> Iterator[Line]:
    weights, parameters = plan.weights, plan.architecture.parameters
    yield Line(
        "parameters", "parameters", parameters, f"{parameters / 1e9:,.3f} billion",
        f"{len(plan.architecture.tensors):,} kinds of tensor in {plan.architecture.layers} layers, "
        f"embeddings and head",
    )  # fmt: skip
    formula = f"{weights.plain_elements:,} x {weights.width} B"
    if weights.scheme is not None:
        scheme = weights.scheme
        yield Line(
            "weights_quantised_bytes", f"{scheme.method} layers", weights.coded,
            both(weights.coded), f"{weights.coded_elements:,} x {scheme.bits} bits + scales",
        )  # fmt: skip
        yield Line(
            "weights_plain_bytes", "embeddings, norms, rest", weights.plain,
            both(weights.plain), formula,
        )  # fmt: skip
        formula = f"{gib(weights.coded)} + {gib(weights.plain)}"
    if weights.measured is not None:
        formula = f"measured in the files; by formula {gib(weights.plain + weights.coded)}"
    yield Line("weights_bytes", "weights", weights.total, both(weights.total), formula)
    yield Line(
        "weights_gpu_bytes", "weights per GPU", weights.rank, both(weights.rank),
        f"{gib(weights.total)} / {plan.settings.tp}, norms and what cannot split on each",
    )  # fmt: skip


def _cache(plan: Plan) -> Iterator[Line]:
    layout, tp = plan.layout, plan.settings.tp
    for index, (cache, layers) in enumerate(Counter(plan.architecture.caches).items()):
        yield _layer_line(plan, cache, layers, index)
    yield Line(
        "kv_token_bytes", "per token, all layers", layout.token_bytes, f"{layout.token_bytes:,} B",
        "sum of the layers above" + (", while inside every window" if _windowed(plan) else ""),
    )  # fmt: skip
    if layout.block_bytes:
        served = layout.block_bytes // (layout.block_size or 1)
        tables = f"; {layout.tables} block tables share the pool" if layout.tables > 1 else ""
        yield Line(
            "kv_block_bytes", f"block of {layout.block_size} tokens", layout.block_bytes,
            f"{layout.block_bytes:,} B", f"{layout.block_size} x {served:,} B{tables}",
        )  # fmt: skip
    size = layout.sequence_bytes(plan.context)
    blocks = layout.sequence_blocks(plan.context)
    state = f" + {layout.state_bytes:,} B of state" if layout.state_bytes else ""
    yield Line(
        "kv_sequence_bytes", f"request of {plan.context:,} tokens", size, both(size),
        f"{blocks:,} blocks x {layout.block_bytes:,} B{state}",
    )  # fmt: skip
    if tp > 1 and layout.token_bytes:
        yield Line(
            "kv_token_bytes_all_gpus", "per token, all GPUs", layout.token_bytes * tp,
            f"{layout.token_bytes * tp:,} B", f"{layout.token_bytes:,} B x {tp} GPUs",
        )  # fmt: skip


def _windowed(plan: Plan) -> bool:
    return any(isinstance(c, Attention) and c.window for c in plan.architecture.caches)


def _layer_line(plan: Plan, cache: Cache, layers: int, index: int) -> Line:
    """One kind of layer: its bytes over all layers of the kind."""
    tp, width = plan.settings.tp, plan.kv_width
    if isinstance(cache, Latent):
        size = layer_bytes(cache, tp, width) * layers
        formula = f"({cache.rank} + {cache.rope_dim}) x {width} B x {layers}, whole on every GPU"
        return Line(
            f"kv_layers_{index}", f"{layers} latent layers", size, f"{size:,} B/token", formula
        )
    if isinstance(cache, Attention):
        size = layer_bytes(cache, tp, width) * layers
        heads = rank_heads(cache.kv_heads, tp)
        split = f"{cache.kv_heads}/{tp} = {heads}" if tp > 1 else f"{heads}"
        if tp > cache.kv_heads:
            split = f"max(1, {cache.kv_heads}/{tp}) = 1"
        formula = f"{split} KV heads x ({cache.key_dim} + {cache.value_dim}) x {width} B x {layers}"
        if cache.window is None:
            label = f"{layers} full layers"
        else:
            label = f"{layers} layers, window {cache.window:,}"
        return Line(f"kv_layers_{index}", label, size, f"{size:,} B/token", formula)
    size = state_bytes(cache, tp, plan.activation_width) * layers
    conv = f"{cache.conv:,} x {plan.activation_width} B"
    formula = f"({conv} + {cache.recurrent:,} x 4 B) x {layers} / {tp}"
    label = f"{layers} recurrent layers"
    return Line(f"kv_layers_{index}", label, size, f"{size:,} B/request", formula)


def _memory(plan: Plan) -> Iterator[Line]:
    settings, model, width = plan.settings, plan.architecture, plan.activation_width
    tokens, hidden = settings.batch_tokens, model.hidden
    if plan.sampling >= plan.forward:
        formula = (
            f"sampling: {settings.max_seqs:,} x {model.vocab:,} x {memory.SAMPLING_BYTES} B "
            f"+ {tokens:,} x {hidden:,} x {width} B"
        )
    else:
        formula = (
            f"forward: {tokens:,} x (2 x {hidden:,} + 3 x {model.widest_mlp:,}/{settings.tp}) "
            f"x {width} B"
        )
    size = plan.activations
    yield Line("activation_bytes", "activations, peak of a step", size, both(size), formula)
    said = "as said" if settings.overhead is not None else "measured on CUDA"
    yield Line(
        "overhead_bytes", "outside the allocator", plan.overhead, both(plan.overhead),
        f"{said}, {'one device' if settings.tp == 1 else 'with collectives'}",
    )  # fmt: skip
    formula = (
        f"{gib(plan.weights.rank)} + {gib(plan.activations)} + {gib(plan.overhead)} + "
        f"{settings.concurrency:,} x {gib(plan.layout.sequence_bytes(plan.context))}"
    )
    yield Line("need_bytes", "needed", plan.need, both(plan.need), formula)
    if settings.gpu_memory is None:
        least = int(plan.need / memory.SAFE_SHARE)
        names = ", ".join(holding(plan.need, memory.SAFE_SHARE)[:3]) or "none of the table"
        yield Line(
            "least_memory_bytes", "smallest memory", least, both(least),
            f"needed / {memory.SAFE_SHARE:.0%}; smallest that hold it: {names}",
        )  # fmt: skip
        return
    share = plan.need / settings.gpu_memory
    yield Line(
        "need_share", "verdict", share, f"{plan.verdict} ({share:.1%})",
        f"{gib(plan.need)} / {gib(settings.gpu_memory)}; fits up to {memory.SAFE_SHARE:.0%}, "
        f"tight up to {settings.utilization:.0%}",
    )  # fmt: skip


def _fits(plan: Plan, pool: int) -> Iterator[Line]:
    settings, layout = plan.settings, plan.layout
    if settings.kv_memory is not None or settings.gpu_memory is None:
        formula = "as said"
    else:
        formula = (
            f"{settings.utilization} x {gib(settings.gpu_memory)} - {gib(plan.weights.rank)} "
            f"- {gib(plan.activations)} - {gib(plan.overhead)}"
        )
    yield Line("kv_pool_bytes", "KV pool", pool, both(pool), formula)
    if layout.block_bytes:
        yield from _blocks(plan, pool)
    fitting = layout.concurrency(pool, plan.context)
    sequence = layout.sequence_bytes(plan.context)
    yield Line(
        "concurrency", f"requests of {plan.context:,} tokens", fitting, f"{fitting:,}",
        f"floor({pool:,} B / {sequence:,} B)",
    )  # fmt: skip
    if settings.gpu_memory is not None:
        safe = memory.SAFE_SHARE * settings.gpu_memory
        within = layout.concurrency(int(safe) - plan.fixed, plan.context)
        yield Line(
            "concurrency_safe",
            f"of them within {memory.SAFE_SHARE:.0%}",
            within,
            f"{within:,}",
            f"floor(({memory.SAFE_SHARE} x {gib(settings.gpu_memory)} - {gib(plan.fixed)}) "
            f"/ {sequence:,} B)",
        )
    longest = layout.context(pool, settings.concurrency, plan.architecture.max_context)
    capped = ", the model's limit" if longest == plan.architecture.max_context else ""
    yield Line(
        "context", f"context of {settings.concurrency:,} at once", longest, f"{longest:,} tokens",
        f"the most with {settings.concurrency:,} x request <= {gib(pool)}{capped}",
    )  # fmt: skip


def _blocks(plan: Plan, pool: int) -> Iterator[Line]:
    layout, sequences = plan.layout, plan.settings.concurrency
    blocks = layout.blocks(pool, sequences)
    state = f" - {sequences:,} x {layout.state_bytes:,} B" if layout.state_bytes else ""
    yield Line(
        "kv_blocks", "blocks", blocks, f"{blocks:,}",
        f"floor(({pool:,} B{state}) / {layout.block_bytes:,} B)",
    )  # fmt: skip
    tokens = layout.tokens(blocks)
    shared = f" / {layout.tables} tables" if layout.tables > 1 else ""
    yield Line(
        "kv_tokens", "tokens", tokens, f"{tokens:,}",
        f"{blocks:,}{shared} x {layout.block_size}",
    )  # fmt: skip


def _load(plan: Plan, rps: float) -> Iterator[Line]:
    load = Load(rps, plan.settings.retries, plan.settings.retry_budget)
    layers = " x ".join(f"({count} + 1)" for count in load.retries) or "1"
    yield Line("attempts", "attempts per request", load.unbounded, f"{load.unbounded:,}", layers)
    if load.budget is not None:
        yield Line(
            "amplification", "under the retry budget", load.factor, f"{load.factor:,.4g}",
            f"min({load.unbounded:,}, 1 + {load.budget:g})",
        )  # fmt: skip
    arriving = load.attempts_per_second
    yield Line(
        "attempts_per_second", "arriving when all fail", arriving, f"{arriving:,.4g}/s",
        f"{load.rps:g}/s x {load.factor:g}",
    )  # fmt: skip
    if plan.pool is None:
        return
    fitting = plan.layout.concurrency(plan.pool, plan.context)
    for key, label, rate in (
        ("seconds_per_request", "time for each, no retries", load.rps),
        ("seconds_per_attempt", "time for each, with retries", arriving),
    ):
        yield Line(
            key, label, fitting / rate, f"{fitting / rate:,.3g} s",
            f"Little's law: {fitting:,} / {rate:g}/s",
        )  # fmt: skip
