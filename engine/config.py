"""Settings of the engine process, checked once at its start."""

import os
import tempfile
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


def default_socket() -> Path:
    """A path that only this user's processes share: below XDG_RUNTIME_DIR, else below /tmp."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "surgetank" / "engine.sock"
    return Path(tempfile.gettempdir()) / f"surgetank-{os.getuid()}" / "engine.sock"


class BuildError(Exception):
    """The settings ask for what this machine does not have; says so in a sentence."""


class EngineConfig(BaseModel):
    """What to serve, on what, and how much of it at once."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(
        "default", min_length=1, description="GGUF file or Hugging Face folder; default: SmolLM2"
    )
    socket: Path = Field(
        default_factory=default_socket, description="unix socket that the sidecar connects to"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="auto takes a GPU when there is one"
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="of weights and KV; auto: float32 on a CPU, bfloat16 on a GPU"
    )
    threads: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="CPU threads of torch; unset: torch's choice, the physical cores",
    )
    context_length: int | None = Field(
        None, ge=1, description="cap on prompt and output together, tokens; unset: the model's own"
    )
    block_size: int = Field(16, ge=8, le=256, description="tokens per KV block")
    kv_blocks: int | None = Field(
        None, ge=1, description="size of the KV pool in blocks; unset: by kv_bytes"
    )
    kv_bytes: int | None = Field(
        None, ge=1, description="size of the KV pool; unset: 1 GiB, on a GPU .85 of what is free"
    )
    kv_spare: float = Field(
        0.01,
        ge=0,
        le=0.5,
        description="share of the pool that new sequences leave for running ones",
    )
    max_num_seqs: int = Field(32, ge=1, le=4096, description="sequences in the running batch")
    max_batch_tokens: int = Field(
        512, ge=1, le=1_048_576, description="tokens of one step, prefill and decode together"
    )
    prefill_share: float = Field(
        1.0, gt=0, le=1, description="of a step's tokens, how many may read prompts"
    )
    min_prefill_tokens: int = Field(
        32, ge=1, le=1_048_576, description="that tpot_target leaves to prompts in every step"
    )
    tpot_target: float | None = Field(
        0.1,
        gt=0,
        le=60,
        description="seconds of a step in which somebody decodes; prompts are cut to it; "
        "null: any. The default is that of the service's TPOT target",
    )
    kv_watermark: float = Field(
        1.0, gt=0, le=1, description="share of the KV pool that sequences may hold"
    )
    swap_bytes: int | None = Field(
        None,
        ge=0,
        description="host memory for the KV of preempted sequences; unset: 1 GiB on a GPU, on a "
        "CPU 0, where the same memory is better spent on the KV pool",
    )
    preemption: Literal["auto", "recompute", "swap"] = Field(
        "auto", description="what becomes of a preempted sequence's KV; auto: what costs less time"
    )
    max_preemptions: int = Field(
        3, ge=0, le=1000, description="of one sequence, after which others must give way"
    )
    displace: bool = Field(
        True, description="under policy priority, higher classes may put lower ones back"
    )
    policy: Literal["fcfs", "priority", "deadline", "static", "interval"] = Field(
        "fcfs", description="who of the waiting enters the batch, and when"
    )
    admit_every: int = Field(
        8, ge=1, le=10_000, description="steps between admissions under policy interval"
    )
    seed: int | None = Field(
        None, description="makes requests without a seed of their own repeatable; unset: random"
    )
    metrics_host: str = Field("127.0.0.1", description="where the engine's /metrics listens")
    metrics_port: int = Field(8403, ge=0, le=65535, description="0: any free port")
    ring_steps: int = Field(
        4096,
        ge=16,
        le=1_000_000,
        description="steps kept in the file beside the socket, also for a post-mortem",
    )
    operator_sampling: int = Field(
        64,
        ge=0,
        le=1_000_000,
        description="one step in so many has its operators timed; 0: none",
    )
    max_unsent_bytes: int = Field(
        16 * 1024 * 1024,
        ge=4096,
        description="output that a slow sidecar may leave unread before steps pause",
    )
    unread_timeout: float = Field(
        30.0, gt=0, description="seconds of such a pause before the sidecar is given up"
    )

    @field_validator("socket")
    @classmethod
    def _names_a_file(cls, socket: Path) -> Path:
        if not socket.name:
            raise ValueError("it names no file")
        return socket

    @model_validator(mode="after")
    def _one_kv_size(self) -> Self:
        if self.kv_blocks is not None and self.kv_bytes is not None:
            raise ValueError(
                f"kv_blocks is {self.kv_blocks} and kv_bytes is {self.kv_bytes}; allowed: only one"
            )
        return self

    @model_validator(mode="after")
    def _every_sequence_moves(self) -> Self:
        if self.max_batch_tokens <= self.max_num_seqs:
            raise ValueError(
                f"max_batch_tokens is {self.max_batch_tokens}; allowed: more than max_num_seqs "
                f"({self.max_num_seqs}), or prompts wait while all decode"
            )
        return self
