"""An engine in this process, for what is measured between its parts."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from surgetank.control.bench.workload import requests_of
from surgetank.engine.api import Commands, StepOutput
from surgetank.engine.build import Built, build
from surgetank.engine.config import EngineConfig
from surgetank.engine.model.load import LoadedModel, load
from surgetank.engine.model.locate import resolve
from surgetank.engine.report import Times
from surgetank.telemetry.clock import Clock

Hook = Callable[[], None]
MIN_TOKENS = 4096  # of a step: room for the prompts of a batch at once


def config_of(model: str, dtype: str, batch: int, prompt: int, **more: Any) -> EngineConfig:
    """Settings under which `batch` prompts are read in one step and then decode together."""
    tokens = max(batch * prompt, batch + 1, MIN_TOKENS)
    settings = {"max_num_seqs": batch, "max_batch_tokens": tokens, "tpot_target": None, **more}
    return EngineConfig.model_validate({"model": model, "dtype": dtype, **settings})


def loaded_model(model: str, dtype: str, threads: int | None) -> LoadedModel:
    """Weights alone, for several engines around them. Raises ModelError."""
    if threads is not None:
        torch.set_num_threads(threads)
    return load(Path(resolve(model)), torch.device("cpu"), getattr(torch, dtype))


def built_engine(config: EngineConfig, threads: int | None, clock: Clock) -> Built:
    """Raises ModelError, BuildError."""
    return build(config.model_copy(update={"threads": threads}), clock)


def decode_steps(
    built: Built, prompts: list[list[int]], steps: int, before: Hook = lambda: None
) -> Iterator[StepOutput]:
    """Read all prompts, then yield each step in which all sequences decode, `steps` of them; two
    more are left out, of the batch's beginning and its end. `before` is called before each."""
    built.loop.take(Commands(submit=requests_of(prompts, steps + 2, built.loop.steps * 10_000)))
    while built.loop.busy:
        before()
        output = built.loop.step(Times())
        record = None if output is None else output.record
        if output is None or record is None or record.prefill_tokens or steps == 0:
            continue
        if record.decode_tokens == len(prompts):
            steps -= 1
            yield output
