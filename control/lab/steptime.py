"""How long a step takes, what a request costs, and what an engine can do: the linear step model.

tau = t0 + a*P + b*B + c*K, with P prompt tokens, B decoding sequences and K tokens of context read
in the step. A request of p prompt and o output tokens, decoded in a batch of B*, occupies

    C = a*p + (t0/B* + b)*o + c*(p*o + o*o/2)

engine-seconds: its prompt, its share of every step that it takes part in, and the context that it
reads at each (p + i at its i-th token).
"""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class StepModel(BaseModel):
    """The four coefficients, in seconds; the defaults are an 8B model's on one large GPU."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    t0: float = Field(default=6e-3, ge=0, le=10, description="Seconds of every step.")
    a: float = Field(default=25e-6, ge=0, le=1, description="Seconds per prompt token.")
    b: float = Field(default=50e-6, ge=0, le=1, description="Seconds per decoding sequence.")
    c: float = Field(default=40e-9, ge=0, le=1, description="Seconds per token of context read.")

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if self.t0 + self.a <= 0 or self.t0 + self.b <= 0:
            raise ValueError("t0, a and b are 0; allowed: a step that takes time")
        return self

    def seconds(self, prefill: int, decoding: int, context: int) -> float:
        """One step's duration."""
        return self.t0 + self.a * prefill + self.b * decoding + self.c * context

    def cost(self, prompt: float, output: float, batch: float) -> float:
        """C, engine-seconds of one request decoded in a batch of `batch`."""
        return (
            self.a * prompt
            + (self.t0 / batch + self.b) * output
            + self.c * (prompt * output + output * output / 2)
        )


class EngineSpec(BaseModel):
    """The simulated engine's sizes, as EngineConfig and ModelCard name them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: StepModel = Field(default_factory=StepModel, description="The step-time model.")
    max_num_seqs: int = Field(default=64, ge=1, le=4096, description="Sequences in a batch.")
    max_batch_tokens: int = Field(default=1024, ge=2, le=1_048_576, description="Tokens of a step.")
    prefill_share: float = Field(default=1.0, gt=0, le=1, description="Of them, for prompts.")
    block_size: int = Field(default=16, ge=1, le=256, description="Tokens per KV block.")
    kv_blocks: int = Field(default=8192, ge=1, description="KV blocks in the pool.")
    kv_watermark: float = Field(
        default=1.0, gt=0, le=1, description="Share of the pool that sequences may hold."
    )
    kv_spare: float = Field(
        default=0.01, ge=0, le=0.5, description="Share of the pool kept for running sequences."
    )
    tpot_target: float = Field(
        default=0.1, ge=0, le=60, description="Step time that prompts are cut to; 0: any."
    )
    min_prefill_tokens: int = Field(default=32, ge=1, description="That it leaves to prompts.")
    preemption: Literal["auto", "recompute", "swap"] = Field(
        default="auto", description="What becomes of a preempted sequence's KV."
    )
    max_preemptions: int = Field(default=3, ge=0, description="Of one sequence.")
    swap_blocks: int = Field(default=0, ge=0, description="Host memory for preempted KV, blocks.")
    swap_seconds: float = Field(default=2e-4, ge=0, le=10, description="A block, out and in.")
    context_length: int = Field(default=32_768, ge=2, description="Prompt and output together.")
    by_priority: bool = Field(default=False, description="Policy `priority` instead of `fcfs`.")
    displace: bool = Field(default=True, description="Under it, lower classes are put back.")
    stoppable: bool = Field(
        default=True, description="False: what it has begun is answered, though its caller left."
    )
    noise: float = Field(
        default=0.0, ge=0, le=1, description="Coefficient of variation of a step's duration."
    )

    @model_validator(mode="after")
    def _every_sequence_moves(self) -> Self:
        if self.max_batch_tokens <= self.max_num_seqs:
            raise ValueError(
                f"max_batch_tokens is {self.max_batch_tokens}; allowed: more than max_num_seqs "
                f"({self.max_num_seqs})"
            )
        return self

    @property
    def kv_usable(self) -> int:
        """Blocks that sequences may hold, as it starts."""
        return max(1, int(self.kv_blocks * self.kv_watermark))

    def batch(self, prompt: float, output: float, tpot: float) -> float:
        """B*: the largest steady batch that slots, KV pool and the TPOT target allow.

        A running sequence holds p + o/2 tokens on average. In balance each of its o steps comes
        with the prompt tokens that the batch's turnover brings, a*p*B/o of them.
        """
        held = prompt + output / 2
        by_kv = self.kv_usable * self.block_size / held
        per_sequence = self.model.b + self.model.c * held + self.model.a * prompt / output
        by_tpot = (tpot - self.model.t0) / per_sequence if per_sequence else float("inf")
        return max(1.0, min(self.max_num_seqs, by_kv, by_tpot))

    def capacity(self, prompt: float, output: float, tpot: float) -> float:
        """Requests of that size that it can serve per second."""
        return 1.0 / self.model.cost(prompt, output, self.batch(prompt, output, tpot))
