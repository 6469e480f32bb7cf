"""The nouns between the gate and any engine: request, tokens, load, and the Backend protocol.

Free of torch: the sidecar imports this file, the engine process speaks it.
"""

from typing import TYPE_CHECKING, Protocol

import msgspec

from surgetank.telemetry.steprecord import StepRecord
from surgetank.telemetry.vocabulary import FinishReason, Move, Priority

if TYPE_CHECKING:
    from surgetank.engine.backends.remote.found import Vitals

# How `detail` begins when a choice is refused for want of memory, of whatever kind.
OUT_OF_MEMORY = "out of memory"


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How to pick tokens and when to stop. Ranges are checked at the door, never here."""

    max_tokens: int
    min_tokens: int = 0
    temperature: float = 1.0  # 0 = greedy
    top_p: float = 1.0
    top_k: int = 0  # 0 = off
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    logprobs: int | None = None  # how many alternatives to report; None = no log-probabilities


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request as the engine sees it: token ids in, n choices out. No text, no HTTP."""

    request_id: int  # unique within one connection, chosen by the sidecar
    prompt: list[int]  # token ids, at least one
    sampling: SamplingParams
    n: int = 1
    priority: Priority = Priority.DEFAULT
    time_left: float | None = None  # seconds until the deadline when sent; None = no deadline


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """Log-probability of the chosen token, and the best alternatives, best first."""

    logprob: float
    top: list[tuple[int, float]]  # (token id, logprob)


class Tokens(msgspec.Struct, frozen=True, array_like=True):
    """What one step produced for one choice of one request."""

    request_id: int
    index: int  # which of the n choices
    token_ids: list[int]
    logprobs: list[TokenLogprob] | None = None  # as long as token_ids
    finish: FinishReason | None = None  # stop: the last id is the stop token itself
    detail: str = ""  # for finish = refused or error: why, in a sentence


class Started(msgspec.Struct, frozen=True, array_like=True):
    """A request left the engine's waiting list: how many prompt tokens the prefix cache held."""

    request_id: int
    cached_tokens: int


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """What a connected engine serves, and its fixed sizes. Sent once per connection."""

    name: str
    context_length: int  # tokens, prompt and output together; 0: not known, like the pool's size
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    tokenizer: str  # the text of a tokenizer.json
    chat_template: str  # Jinja; empty when the model has none
    bos_token: str
    eos_token: str
    add_bos: bool
    architecture: str
    parameters: int
    dtype: str
    device: str
    kv_block_size: int  # tokens
    kv_blocks: int
    kv_bytes_per_token: int
    max_num_seqs: int
    max_batch_tokens: int
    prefill_share: float = 1.0  # as configured; Settings change these three between steps
    kv_watermark: float = 1.0
    tpot_target: float = 0.0  # seconds
    engine_version: str
    pid: int


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Budgets that the control plane may change between steps; None leaves one as it is."""

    max_num_seqs: int | None = None
    max_batch_tokens: int | None = None
    prefill_share: float | None = None  # of a step's tokens, for reading prompts
    kv_watermark: float | None = None  # of the KV pool, what sequences may hold
    tpot_target: float | None = None  # seconds of a step in which somebody decodes; 0: any
    policy: str | None = None  # a name out of engine/policies/table.py


class Commands(msgspec.Struct, frozen=True, tag="commands"):
    """Sidecar to engine: everything since the last message, drained between two steps."""

    submit: list[GenerateRequest] = []
    cancel: list[tuple[int, int]] = []  # (request_id, index); index -1 = every choice
    settings: Settings | None = None


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Engine to sidecar, first message of a connection."""

    protocol: int
    card: ModelCard


class StepOutput(msgspec.Struct, frozen=True, tag="step"):
    """Engine to sidecar: one message per step, all sequences in it."""

    tokens: list[Tokens]
    started: list[Started]
    record: StepRecord | None  # None: only finishes, no step was run (e.g. a refusal while idle)
    moved: list[tuple[int, Move]] = []  # (request_id, what), for each choice that was
    heard: int = 0  # messages of this connection that the engine had taken in before


PROTOCOL = 2


class BackendDown(Exception):
    """The engine is not connected: nothing can be submitted."""


class Sink(Protocol):
    """Where a backend delivers one request's tokens. Calls come on the event loop, in order."""

    def on_started(self, started: Started) -> None:
        """The engine began to work on the request."""

    def on_moved(self, what: Move) -> None:
        """The engine put one of its choices back, or took it up again."""

    def on_tokens(self, tokens: Tokens) -> None:
        """New tokens of one choice; the last of a choice carries `finish`."""

    def on_lost(self, detail: str) -> None:
        """The engine died with the request in it; nothing more will come."""


class Watcher(Protocol):
    """Who wants to know of a backend's steps and of its coming and going."""

    def on_step(self, output: StepOutput) -> None:
        """After the step's tokens were delivered to their sinks."""

    def on_up(self, card: ModelCard) -> None:
        """A (re)started engine said hello."""

    def on_down(self, detail: str) -> None:
        """The connection is gone; every sink has had on_lost."""


class Engine(Protocol):
    """What the gate sees of an engine, of whatever kind."""

    @property
    def card(self) -> ModelCard | None:
        """None while the engine is not there."""

    @property
    def last_step(self) -> StepRecord | None:
        """The newest step record; None before the first."""

    def stalled_for(self, now: float) -> float | None:
        """Seconds (monotonic `now`) without a step while the engine has work, 0 while it has none;
        None while it is not there."""

    def apply(self, settings: Settings) -> None:
        """Change the engine's budgets before its next step; kept for a restarted engine too."""


class Backend(Engine, Protocol):
    """An engine that takes token ids. Neither method blocks; failures arrive through the sink."""

    @property
    def vitals(self) -> "Vitals":
        """What it tells of itself beside its steps, now."""

    def submit(self, request: GenerateRequest, sink: Sink) -> None:
        """Hand over one request; raises BackendDown when there is no engine."""

    def cancel(self, request_id: int, index: int = -1) -> None:
        """Stop one choice (or all): blocks are freed before the next step. The cancelled choice's
        sink hears nothing more. Unknown ids are ignored: the request may just have ended."""
