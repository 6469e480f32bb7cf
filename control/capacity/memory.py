"""What a device holds besides weights and KV cache, the pool that is left, and the verdict.

Activations: the peak of one step is the larger of
    sampling   S * V * 38.4 + T * H * w      logits, their float32 copy, sorted values and indices
    forward    T * (2*H + 3*F/t) * w         residual and input, gate, up and their product
for S sequences, V vocabulary, T tokens of a step, H hidden, F feed-forward features, t ranks and
w bytes. 38.4 bytes a logit is fitted to the peaks that vLLM measured on an H100 at S = 1,024 and
T = 8,192: 4.76 GiB (Llama-3.1-8B), 5.56 (Qwen3-0.6B), 5.64 (Qwen3-32B), 7.38 (gpt-oss), 4.84
(Llama-3.3-70B), each met within 1 %. Logits are gathered, so ranks do not divide them.

Overhead: 0.13 GiB outside the allocator on one device, 0.55 GiB with collectives (same runs;
llm-d-planner, docs/empirical-vllm-memory-results.md). CUDA graphs live above the utilization.
"""

from typing import Literal

from surgetank.control.capacity.units import GIB

SAMPLING_BYTES = 38.4
OVERHEAD_ALONE = int(0.13 * GIB)
OVERHEAD_RANKS = int(0.55 * GIB)
SAFE_SHARE = 0.8

Verdict = Literal["fits", "tight", "does not fit"]


def sampling_peak(seqs: int, vocab: int, tokens: int, hidden: int, width: int) -> int:
    """Bytes at the peak of sampling."""
    return round(seqs * vocab * SAMPLING_BYTES) + tokens * hidden * width


def forward_peak(tokens: int, hidden: int, features: int, tp: int, width: int) -> int:
    """Bytes at the peak of one layer's forward pass."""
    return tokens * (2 * hidden + 3 * features // tp) * width


def overhead(tp: int) -> int:
    """Bytes outside the allocator: context, libraries, and collectives' buffers."""
    return OVERHEAD_ALONE if tp == 1 else OVERHEAD_RANKS


def judge(need: int, memory: int, utilization: float) -> Verdict:
    """Whether a need fits a device: with room for graphs and peaks, barely, or not."""
    if need <= min(SAFE_SHARE, utilization) * memory:
        return "fits"
    return "tight" if need <= utilization * memory else "does not fit"
