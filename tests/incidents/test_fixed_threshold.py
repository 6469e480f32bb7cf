"""The fixed threshold: a burst of prompts that fits the token budget explodes the step time.

The real scheduler, fit and loop on a modelled clock: a step takes what STEP says, and nothing else
takes time. Eight callers read along at 23 ms a token when 40 long prompts arrive at once.
"""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from tests.engine.tiny_engine import Client, greedy, prompt_of, tiny_loop

from surgetank.engine.loop import StepLoop
from surgetank.engine.runner import Chunk, Runner
from surgetank.engine.sequence import Sequence
from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.stepmodel import ENOUGH, StepModel

STEP = StepModel(t0=0.015, a=0.0005, b=0.001, c=1e-7)
TARGET = 0.05  # seconds per output token
VOCAB = 264


@dataclass
class Story:
    """What the eight lived through, and how soon the burst was read."""

    gaps: list[float] = field(default_factory=list)  # seconds between tokens, during the burst
    read_after: float = 0.0  # seconds until the last prompt of the burst had its first token

    @property
    def p99(self) -> float:
        return float(np.quantile(self.gaps, 0.99))


def modelled(loop: StepLoop, clock: ManualClock, patch: pytest.MonkeyPatch) -> None:
    """Steps cost time and compute nothing: every next token is 7."""

    def forward(_: Runner, decode: list[Sequence], prefill: list[Chunk]) -> torch.Tensor:
        chunks = [*((each, 1) for each in decode), *prefill]
        context = sum(each.table.stored + count for each, count in chunks)
        tokens = sum(count for _, count in prefill)
        clock.advance(STEP.seconds(tokens, len(decode), context))
        ready = sum(count == each.remaining for each, count in chunks)
        logits = torch.zeros(ready, VOCAB)
        logits[:, 7] = 1.0
        return logits

    patch.setattr(Runner, "forward", forward)


def burst(tpot_target: float | None, patch: pytest.MonkeyPatch) -> Story:
    """Play the incident under one setting."""
    clock, story = ManualClock(), Story()
    loop = tiny_loop(
        clock,
        kv_blocks=4000,
        max_num_seqs=64,
        max_batch_tokens=16_384,
        tpot_target=tpot_target,
    )
    modelled(loop, clock, patch)
    client = Client(loop)
    for seed in range(8):
        client.submit(prompt_of(20 + 9 * seed, seed), greedy(400))
    for _ in range(2 * ENOUGH):
        client.step()
    begun = clock.monotonic()
    late = [client.submit(prompt_of(400, 100 + seed), greedy(20)) for seed in range(40)]
    while not all(client.outputs[request_id, 0] for request_id in late):
        before = clock.monotonic()
        client.step()
        story.gaps.append(clock.monotonic() - before)
    story.read_after = clock.monotonic() - begun
    return story


def test_a_fixed_budget_lets_one_step_take_eight_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    story = burst(None, monkeypatch)
    assert max(story.gaps) == pytest.approx(8.0, abs=0.1)  # 40 x 400 tokens in one step
    assert max(story.gaps) > 300 * STEP.seconds(0, 8, 0)  # what each caller was used to


def test_a_budget_that_follows_the_clock_keeps_every_step_within_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = burst(TARGET, monkeypatch)
    assert max(story.gaps) <= 1.1 * TARGET
    assert story.p99 <= 1.05 * TARGET
    assert story.read_after == pytest.approx(16.5, abs=1.0)  # the price: twice the 8 s
