"""vLLM's engine on a CPU, stepped in this process: `python lines.py vllm_cpu FOLDER DTYPE`."""

import time
from collections.abc import Callable
from typing import Any

import vllm
from vllm import LLM, SamplingParams, TokensPrompt

MOST_SEQUENCES = 64
MOST_TOKENS = 8192  # of a step, so that all prompts of a batch are read in one


def open_engine(folder: str, dtype: str) -> tuple[str, Callable[..., Any]]:
    """The package's version, and what generates."""
    model = LLM(
        model=folder,
        dtype=dtype,
        skip_tokenizer_init=True,
        max_model_len=1024,
        max_num_seqs=MOST_SEQUENCES,
        max_num_batched_tokens=MOST_TOKENS,
        enable_prefix_caching=False,
    )
    return f"vllm {vllm.__version__}", lambda prompts, output: _run(
        model.llm_engine, prompts, output
    )


def _run(engine: Any, prompts: list[list[int]], output: int) -> list[tuple[float, int, int]]:
    sampling = SamplingParams(temperature=0.0, max_tokens=output, ignore_eos=True, detokenize=False)
    steps = [(time.perf_counter(), 0, 0)]
    for number, prompt in enumerate(prompts):
        name = f"{steps[0][0]}-{number}"
        engine.add_request(name, TokensPrompt(prompt_token_ids=prompt), sampling)
    produced: dict[str, int] = {}
    while engine.has_unfinished_requests():
        for answer in engine.step():
            produced[answer.request_id] = len(answer.outputs[0].token_ids)
        steps.append((time.perf_counter(), sum(produced.values()), len(produced)))
    return steps
