"""Hugging Face transformers' generate(): `python lines.py hf MODEL_FOLDER DTYPE THREADS`."""

import time
from collections.abc import Callable
from typing import Any

import torch
import transformers


class _Watch(transformers.StoppingCriteria):
    """Looks at the clock after each step, and never stops anything."""

    def __init__(self) -> None:
        self.steps = [(time.perf_counter(), 0, 0)]

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        count = len(input_ids)
        self.steps.append((time.perf_counter(), len(self.steps) * count, count))
        return torch.zeros(count, dtype=torch.bool)


def open_engine(folder: str, dtype: str, threads: str) -> tuple[str, Callable[..., Any]]:
    """The package's version, and what generates."""
    torch.set_num_threads(int(threads))
    load: Any = transformers.AutoModelForCausalLM.from_pretrained
    model = load(folder, dtype=getattr(torch, dtype)).eval()

    @torch.inference_mode()
    def generate(prompts: list[list[int]], output: int) -> list[tuple[float, int, int]]:
        ids = torch.tensor(prompts)
        watch = _Watch()
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=output,
            eos_token_id=None,
            pad_token_id=0,
            stopping_criteria=transformers.StoppingCriteriaList([watch]),
        )
        return watch.steps

    return f"transformers {transformers.__version__}", generate
