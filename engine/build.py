"""Puts an engine together from its settings: device, model, KV pool, and what it says of itself."""

import os
import random
from dataclasses import dataclass

import torch

from surgetank import __version__
from surgetank.engine.api import ModelCard
from surgetank.engine.budgets import Budgets
from surgetank.engine.config import BuildError, EngineConfig
from surgetank.engine.fit import Capacity
from surgetank.engine.intake import Intake
from surgetank.engine.kernels.attention import KVCache
from surgetank.engine.kv.manager import KVManager
from surgetank.engine.loop import StepLoop
from surgetank.engine.model.load import LoadedModel, load
from surgetank.engine.model.locate import resolve
from surgetank.engine.operators import OperatorMeter, SampledCache, SampledModel
from surgetank.engine.policies.table import POLICIES
from surgetank.engine.roster import Roster
from surgetank.engine.runner import Runner
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.engine_recorder import EngineSizes

CPU_KV_BYTES = 1024**3
GPU_SWAP_BYTES = 1024**3
GPU_KV_SHARE = 0.85  # of what the weights leave free; the rest is for activations


@dataclass(frozen=True, slots=True)
class Built:
    """An engine ready to step."""

    loop: StepLoop
    card: ModelCard
    device: torch.device
    meter: OperatorMeter
    sizes: EngineSizes


def build(config: EngineConfig, clock: Clock) -> Built:
    """Load the model and allocate everything. Raises ModelError, BuildError."""
    device = _device(config)
    dtype = _dtype(config, device)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    loaded = load(resolve(config.model), device, dtype)
    return assemble(config, loaded, clock)


def assemble(config: EngineConfig, loaded: LoadedModel, clock: Clock) -> Built:
    """Everything around a model that is already there. Raises BuildError."""
    model, facts = loaded.model, loaded.config
    context = min(config.context_length or facts.context_length, facts.context_length)
    bytes_per_token = facts.kv_bytes_per_token(model.dtype.itemsize)
    block_bytes = config.block_size * bytes_per_token
    blocks = _kv_blocks(config, bytes_per_token, context, model.device)
    host_blocks = _swap_bytes(config, model.device) // block_bytes
    cache = _allocate(loaded, blocks, config.block_size, host_blocks, block_bytes)
    kv = KVManager(blocks, config.block_size, host_blocks, block_bytes)
    budgets = Budgets(config, kv)  # before anything asks for the capacity that it sets
    roster = Roster(kv, POLICIES[config.policy])
    capacity = Capacity(facts.vocab_size, context, kv.capacity, config.max_num_seqs)
    eos_ids = loaded.tokenizer.eos_token_ids
    meter = OperatorMeter(config.operator_sampling, model.device, clock)
    loop = StepLoop(
        Runner(SampledModel(model, meter), SampledCache(cache, meter), model.device),
        roster,
        Intake(roster, capacity, eos_ids, random.Random(config.seed)),
        budgets,
        clock,
    )
    card = ModelCard(
        name=loaded.name,
        context_length=context,
        vocab_size=facts.vocab_size,
        eos_token_ids=eos_ids,
        tokenizer=loaded.tokenizer.tokenizer_json,
        chat_template=loaded.tokenizer.chat_template,
        bos_token=loaded.tokenizer.bos_token,
        eos_token=loaded.tokenizer.eos_token,
        add_bos=loaded.tokenizer.add_bos,
        architecture=facts.architecture,
        parameters=facts.parameters(),
        dtype=str(model.dtype).removeprefix("torch."),
        device=str(model.device),
        kv_block_size=config.block_size,
        kv_blocks=blocks,
        kv_bytes_per_token=bytes_per_token,
        max_num_seqs=config.max_num_seqs,
        max_batch_tokens=config.max_batch_tokens,
        prefill_share=config.prefill_share,
        kv_watermark=config.kv_watermark,
        tpot_target=config.tpot_target or 0.0,
        engine_version=__version__,
        pid=os.getpid(),
    )
    sizes = EngineSizes(
        kv_block_size=config.block_size,
        kv_blocks=blocks,
        parameters=card.parameters,
        weight_bytes=card.parameters * model.dtype.itemsize,
        kv_bytes_per_token=bytes_per_token,
    )
    return Built(loop, card, model.device, meter, sizes)


def _device(config: EngineConfig) -> torch.device:
    found = torch.cuda.is_available()
    if config.device == "cuda" and not found:
        raise BuildError("device is cuda; torch finds none here (allowed: auto, cpu)")
    return torch.device("cuda" if found and config.device != "cpu" else "cpu")


def _dtype(config: EngineConfig, device: torch.device) -> torch.dtype:
    if config.dtype == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    return {
        "float32": torch.float32,
        "bfloat16": torch.bfloat16,
        "float16": torch.float16,
    }[config.dtype]


def _kv_blocks(
    config: EngineConfig, bytes_per_token: int, context: int, device: torch.device
) -> int:
    """The pool's size; never more than all sequences at full length could use."""
    block_bytes = config.block_size * bytes_per_token
    if config.kv_blocks is not None:
        return config.kv_blocks
    if config.kv_bytes is not None:
        size = config.kv_bytes
    elif device.type == "cuda":
        size = int(GPU_KV_SHARE * torch.cuda.mem_get_info(device)[0])
    else:
        size = CPU_KV_BYTES
    if size < block_bytes:
        raise BuildError(
            f"kv_bytes is {size}; allowed: at least {block_bytes}, "
            f"one block of {config.block_size} tokens"
        )
    most = config.max_num_seqs * -(-context // config.block_size)
    return min(size // block_bytes, most)


def _swap_bytes(config: EngineConfig, device: torch.device) -> int:
    if config.swap_bytes is not None:
        return config.swap_bytes
    return GPU_SWAP_BYTES if device.type == "cuda" else 0


def _allocate(
    loaded: LoadedModel, blocks: int, block_size: int, host_blocks: int, block_bytes: int
) -> KVCache:
    try:
        return loaded.model.allocate_cache(blocks, block_size, host_blocks)
    except (MemoryError, RuntimeError) as error:  # torch says "out of memory" with the latter
        pool, swap = (count * block_bytes / 1024**3 for count in (blocks, host_blocks))
        raise BuildError(
            f"a KV pool of {blocks} blocks needs {pool:.2f} GiB on {loaded.model.device}, and its "
            f"swap pool {swap:.2f} GiB, which are not there; set kv_blocks, kv_bytes or "
            "swap_bytes lower"
        ) from error
