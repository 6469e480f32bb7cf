"""llama.cpp's batched decode by its C API: `python lines.py llamacpp GGUF FLASH THREADS`."""

import time
from collections.abc import Callable
from typing import Any

import llama_cpp
import numpy as np

Prompts = list[list[int]]
Steps = list[tuple[float, int, int]]  # as in lines.py
UBATCH = 512  # tokens that llama.cpp computes at once


def open_engine(path: str, flash: str, threads: str) -> tuple[str, Callable[..., Any]]:
    """The package's version, and what generates. FLASH is on or off."""
    llama_cpp.llama_backend_init()
    options = llama_cpp.llama_model_default_params()
    model = llama_cpp.llama_model_load_from_file(path.encode(), options)
    if not model:
        raise SystemExit(f"llama.cpp cannot load {path}")

    def generate(prompts: Prompts, output: int) -> Steps:
        context = _context(model, len(prompts), len(prompts[0]) + output, flash, int(threads))
        try:
            return _run(model, context, prompts, output)
        finally:
            llama_cpp.llama_free(context)

    return f"llama-cpp-python {llama_cpp.__version__}", generate


def _context(model: Any, sequences: int, tokens: int, flash: str, threads: int) -> Any:
    """Room for so many sequences of so many tokens, each with a KV stream of its own."""
    options = llama_cpp.llama_context_default_params()
    options.n_seq_max = sequences
    options.n_ctx = sequences * -(-tokens // 256) * 256
    options.n_batch = sequences * tokens
    options.n_ubatch = UBATCH
    options.n_threads = options.n_threads_batch = threads
    options.flash_attn_type = 1 if flash == "on" else 0
    context = llama_cpp.llama_init_from_model(model, options)
    if not context:
        raise SystemExit(f"llama.cpp has no room for {sequences} sequences of {tokens} tokens")
    return context


def _run(model: Any, context: Any, prompts: Prompts, output: int) -> Steps:
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    count = len(prompts)
    batch = llama_cpp.llama_batch_init(sum(map(len, prompts)), 0, 1)
    steps = [(time.perf_counter(), 0, 0)]
    tokens: list[int] = []
    try:
        for step in range(output):
            if step == 0:
                rows = _read(batch, prompts)
            else:
                position = len(prompts[0]) + step - 1
                rows = _continue(batch, tokens, position)
            if llama_cpp.llama_decode(context, batch) != 0:
                raise SystemExit("llama.cpp could not decode a batch")
            tokens = [int(np.argmax(_logits(context, row, vocabulary))) for row in rows]
            steps.append((time.perf_counter(), (step + 1) * count, count))
    finally:
        llama_cpp.llama_batch_free(batch)
    return steps


def _logits(context: Any, row: int, vocabulary: int) -> Any:
    return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, row), (vocabulary,))


def _read(batch: Any, prompts: Prompts) -> list[int]:
    """All prompts as one batch; the rows of their last tokens."""
    batch.n_tokens, rows = 0, []
    for sequence, prompt in enumerate(prompts):
        for position, token in enumerate(prompt):
            _put(batch, token, position, sequence, wanted=position == len(prompt) - 1)
        rows.append(batch.n_tokens - 1)
    return rows


def _continue(batch: Any, tokens: list[int], position: int) -> list[int]:
    batch.n_tokens = 0
    for sequence, token in enumerate(tokens):
        _put(batch, token, position, sequence, wanted=True)
    return list(range(len(tokens)))


def _put(batch: Any, token: int, position: int, sequence: int, *, wanted: bool) -> None:
    row = batch.n_tokens
    batch.token[row] = token
    batch.pos[row] = position
    batch.n_seq_id[row] = 1
    batch.seq_id[row][0] = sequence
    batch.logits[row] = wanted
    batch.n_tokens = row + 1
