"""A whole engine around a tiny random model: small enough to run thousands of steps in a test."""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from tests.fakes import CHATML, tiny_tokenizer

from surgetank.engine.api import Commands, GenerateRequest, SamplingParams, StepOutput, Tokens
from surgetank.engine.build import assemble
from surgetank.engine.config import EngineConfig
from surgetank.engine.kernels.linear import TorchLinear
from surgetank.engine.kernels.torch_attention import TorchAttention
from surgetank.engine.kv.pool import BlockPool
from surgetank.engine.loop import StepLoop
from surgetank.engine.model.config import ModelConfig, plain_inv_freq, weight_shapes
from surgetank.engine.model.llama import LlamaModel
from surgetank.engine.model.load import LoadedModel
from surgetank.engine.model.tokenizer_files import TokenizerFiles
from surgetank.engine.report import Times
from surgetank.telemetry.clock import Clock, ManualClock
from surgetank.telemetry.steprecord import StepRecord
from surgetank.telemetry.vocabulary import FinishReason

VOCAB, EOS = 264, 2


def tiny_model(seed: int = 0) -> LoadedModel:
    """Two layers of random weights, large enough that no two logits are nearly equal."""
    facts = ModelConfig(
        architecture="llama",
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        context_length=512,
        norm_eps=1e-5,
        rope_inv_freq=plain_inv_freq(10_000.0, 8),
        tied_embeddings=True,
    )
    source = torch.Generator().manual_seed(seed)
    shapes = weight_shapes(facts)
    model = LlamaModel(
        facts,
        lambda name: torch.randn(shapes[name], generator=source) * 0.4,
        TorchAttention(),
        TorchLinear(),
    )
    text = tiny_tokenizer()
    files = TokenizerFiles(text.to_str(), CHATML, "<|endoftext|>", "<|im_end|>", (EOS,), False)
    return LoadedModel(model, facts, files, "tiny")


def tiny_config(**changes: Any) -> EngineConfig:
    """Small enough that every limit can be met."""
    values: dict[str, object] = {
        "model": "tiny",
        "block_size": 8,
        "kv_blocks": 64,
        "max_num_seqs": 8,
        "max_batch_tokens": 32,
        "seed": 0,
    }
    return EngineConfig.model_validate(values | changes)


def tiny_loop(clock: Clock | None = None, **changes: Any) -> StepLoop:
    """A step loop ready to take requests."""
    return assemble(tiny_config(**changes), tiny_model(), clock or ManualClock()).loop


def prompt_of(length: int, seed: int = 0) -> list[int]:
    """Random token ids, none of them special."""
    return random.Random(seed).choices(range(3, VOCAB), k=length)


def greedy(max_tokens: int, **changes: Any) -> SamplingParams:
    """Greedy decoding that only max_tokens ends."""
    values: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True, **changes}
    return SamplingParams(max_tokens=max_tokens, **values)


@dataclass
class Client:
    """Feeds a loop and keeps what it answers, by (request id, index)."""

    loop: StepLoop
    outputs: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    finishes: dict[tuple[int, int], FinishReason] = field(default_factory=dict)
    details: dict[tuple[int, int], str] = field(default_factory=dict)
    records: list[StepRecord] = field(default_factory=list)
    cached: dict[int, int] = field(default_factory=dict)
    _ids: "count[int]" = field(default_factory=lambda: count(1))

    def submit(self, prompt: list[int], sampling: SamplingParams, **changes: Any) -> int:
        """Send one request; returns its id."""
        request_id = next(self._ids)
        request = GenerateRequest(
            request_id=request_id,
            prompt=prompt,
            sampling=sampling,
            **changes,
        )
        self.loop.take(Commands(submit=[request]))
        return request_id

    def cancel(self, request_id: int, index: int = -1) -> None:
        self.loop.take(Commands(cancel=[(request_id, index)]))

    def step(self) -> StepOutput | None:
        """One step; its tokens are kept, and every finish must be the choice's only one."""
        output = self.loop.step(Times())
        if output is not None:
            for tokens in output.tokens:
                self._keep(tokens)
            for started in output.started:
                self.cached[started.request_id] = started.cached_tokens
            if output.record is not None:
                self.records.append(output.record)
        return output

    def run(self) -> None:
        """Until nothing is left to do."""
        while self.loop.busy:
            self.step()

    @property
    def pool(self) -> BlockPool:
        return self.loop.roster.view.kv.pool

    def _keep(self, tokens: Tokens) -> None:
        key = (tokens.request_id, tokens.index)
        if key in self.finishes:
            raise RuntimeError(f"{key} got tokens after its finish")
        self.outputs[key] += tokens.token_ids
        if tokens.finish is not None:
            self.finishes[key] = tokens.finish
            self.details[key] = tokens.detail


def alone(prompt: list[int], sampling: SamplingParams, **changes: Any) -> list[int]:
    """What an engine that serves nothing else answers."""
    client = Client(tiny_loop(**changes))
    request_id = client.submit(prompt, sampling)
    client.run()
    return client.outputs[request_id, 0]
