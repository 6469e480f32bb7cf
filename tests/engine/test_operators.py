"""Operator times: only on sampled steps, each where it belongs, and no logit changes."""

import pytest
import torch
from tests.engine.tiny_engine import tiny_model
from tests.fakes import step_record

from surgetank.engine.kernels.torch_attention import TorchKVCache
from surgetank.engine.model.batch import ForwardBatch
from surgetank.engine.operators import OperatorMeter, SampledCache, SampledModel
from surgetank.telemetry.steprecord import OPERATORS, StepRecord
from surgetank.telemetry.vocabulary import Operator

CPU = torch.device("cpu")
TOKENS = 5


class TickingClock:
    """A millisecond passes with every look."""

    def __init__(self) -> None:
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.looks / 1000

    def wall(self) -> float:
        return 0.0


def prompt() -> ForwardBatch:
    """One prompt of TOKENS tokens into the first block."""
    positions = torch.arange(TOKENS)
    return ForwardBatch(
        token_ids=positions + 3,
        positions=positions,
        slots=positions,
        query_starts=torch.tensor([0, TOKENS]),
        query_lens=torch.tensor([TOKENS]),
        context_lens=torch.tensor([TOKENS]),
        block_tables=torch.tensor([[0]]),
        sample_at=torch.tensor([TOKENS - 1]),
        num_decode=0,
        max_query_len=TOKENS,
        max_context_len=TOKENS,
    )


class Rig:
    """A tiny model and cache, sampled one step in three."""

    def __init__(self, every: int = 3) -> None:
        self.clock = TickingClock()
        self.meter = OperatorMeter(every, CPU, self.clock)
        plain = tiny_model().model
        inner = plain.allocate_cache(4, 8)
        assert isinstance(inner, TorchKVCache)
        self.cache = SampledCache(inner, self.meter)
        self.model = SampledModel(plain, self.meter)

    @torch.inference_mode()
    def step(self, forward: float = 1.0) -> tuple[StepRecord, torch.Tensor]:
        self.meter.begin()
        logits = self.model(prompt(), self.cache)
        return self.meter.end(step_record(forward=forward, sample=0.25)), logits


def test_one_step_in_three_is_sampled_and_its_logits_are_the_same() -> None:
    rig = Rig()
    steps = [rig.step() for _ in range(6)]
    assert [any(record.operators) for record, _ in steps] == [False, False, True] * 2
    for _, logits in steps[1:]:
        assert torch.equal(logits, steps[0][1])


def test_an_unsampled_step_does_not_even_look_at_the_clock() -> None:
    rig = Rig()
    rig.step()
    assert rig.clock.looks == 0


def test_none_at_all_when_so_configured() -> None:
    rig = Rig(every=0)
    for _ in range(4):
        record, _ = rig.step()
        assert record == step_record(forward=1.0, sample=0.25)


def test_each_piece_counts_where_it_belongs() -> None:
    rig = Rig(every=1)
    record, _ = rig.step()
    told = dict(zip(OPERATORS, record.operators))
    assert told == {
        Operator.ATTENTION: pytest.approx(0.003),  # planning, and two layers
        Operator.GEMM: pytest.approx(0.009),  # four a layer, and the head
        Operator.NORM: pytest.approx(0.005),  # two a layer, and the last
        Operator.SAMPLING: 0.25,
        Operator.KV_COPY: 0.0,
        Operator.OTHER: pytest.approx(1.0 - 0.017),
    }
    assert sum(record.operators) == pytest.approx(record.forward + record.sample)


def test_copies_of_blocks_count_apart_and_only_those_of_the_sampled_step() -> None:
    rig = Rig(every=2)
    one = torch.tensor([1])
    rig.cache.copy_blocks(one, one)
    rig.step()
    rig.meter.begin()
    rig.cache.copy_blocks(one, one)
    record = rig.meter.end(step_record())
    assert dict(zip(OPERATORS, record.operators))[Operator.KV_COPY] == pytest.approx(0.001)
