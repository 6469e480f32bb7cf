"""The sampler against a plain numpy reference: the same token for the same number drawn."""

import random
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from surgetank.engine.api import SamplingParams
from surgetank.engine.randomness import choice_seed, uniforms
from surgetank.engine.sampler import CANDIDATES, NO_TOKEN, sample
from surgetank.engine.sequence import Sequence

VOCAB = 1000


def sequence(tokens: list[int], prompt_len: int, seed: int = 0, **sampling: Any) -> Sequence:
    """A sequence in the middle of its output."""
    params = SamplingParams(max_tokens=100, **sampling)
    stop_ids = frozenset(params.stop_token_ids)
    return Sequence(1, 0, tokens, prompt_len, params, choice_seed(seed, 0), stop_ids, order=0)


def reference(row: npt.NDArray[np.float64], each: Sequence) -> int:
    """One row, one step at a time, as the definitions say."""
    p = each.sampling
    logits = row.copy()
    output = Counter(each.tokens[each.prompt_len :])
    if each.output_len < p.min_tokens:
        logits[list(each.stop_ids)] = -np.inf
    for token in set(each.tokens):
        factor = p.repetition_penalty
        logits[token] = logits[token] / factor if logits[token] > 0 else logits[token] * factor
    for token, times in output.items():
        logits[token] -= p.frequency_penalty * times + p.presence_penalty
    if p.temperature == 0:
        return int(logits.argmax())
    scaled = (logits - logits.max()) / p.temperature
    probabilities = np.exp(scaled) / np.exp(scaled).sum()
    order = np.argsort(-probabilities, kind="stable")
    if p.top_k:
        order = order[: p.top_k]
    if p.top_p < 1:
        mass = probabilities[order].cumsum() / probabilities[order].sum()
        order = order[: int((mass < p.top_p).sum()) + 1]
    order = order[probabilities[order] >= p.min_p * probabilities.max()]
    mass = probabilities[order].cumsum()
    target = uniforms([each.seed], [each.output_len])[0] * mass[-1]
    return int(order[min(int((mass <= target).sum()), len(order) - 1)])


def random_params(rng: random.Random) -> dict[str, Any]:
    return {
        "temperature": rng.choice([0.0, 0.3, 1.0, 2.5]),
        "top_p": rng.choice([1.0, 1.0, 0.9, 0.5, 0.01]),
        "top_k": rng.choice([0, 0, 1, 5, 300, 5000]),
        "min_p": rng.choice([0.0, 0.0, 0.1, 0.9]),
        "repetition_penalty": rng.choice([1.0, 1.0, 1.3, 0.8]),
        "presence_penalty": rng.choice([0.0, 0.7, -1.0]),
        "frequency_penalty": rng.choice([0.0, 0.4]),
        "min_tokens": rng.choice([0, 0, 50]),
        "stop_token_ids": (3, 4),
    }


@pytest.mark.parametrize("spread", [0.2, 1.0, 4.0])
def test_every_mix_of_parameters_equals_the_reference(spread: float) -> None:
    rng = random.Random(int(spread * 10))
    source = torch.Generator().manual_seed(7)
    for _ in range(20):
        members = [
            sequence(rng.choices(range(VOCAB), k=20), 12, rng.getrandbits(40), **random_params(rng))
            for _ in range(16)
        ]
        logits = torch.randn(16, VOCAB, generator=source) * spread
        expected = [reference(row.double().numpy(), each) for row, each in zip(logits, members)]
        assert sample(logits, members).token_ids == expected


def test_a_flat_distribution_is_drawn_beyond_the_candidates() -> None:
    logits = torch.zeros(400, VOCAB) - torch.arange(VOCAB) * 1e-3
    members = [sequence([1], 1, seed, temperature=1.0) for seed in range(400)]
    tokens = sample(logits, members).token_ids
    assert tokens == [reference(row.double().numpy(), each) for row, each in zip(logits, members)]
    assert sum(token >= CANDIDATES for token in tokens) > 100


def test_drawn_frequencies_are_the_probabilities() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0, 0.5])
    draws = 20_000
    members = [sequence([1], 1, seed, temperature=1.0) for seed in range(draws)]
    counts = np.bincount(sample(logits.expand(draws, -1), members).token_ids, minlength=5)
    expected = logits.softmax(0).double().numpy() * draws
    assert ((counts - expected) ** 2 / expected).sum() < 23.5  # chi square, 4 degrees, 1e-4


def test_a_seed_gives_the_same_tokens_in_any_company_and_at_any_place() -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(1))
    own = sequence([5, 6, 7], 1, seed=42, temperature=1.5)
    alone = sample(logits, [own]).token_ids[0]
    for place in range(4):
        others = [sequence([8], 1, seed=place, temperature=0.9, top_p=0.5) for _ in range(4)]
        others[place] = own
        assert sample(logits.expand(4, -1), others).token_ids[place] == alone


def test_neighbouring_seeds_choices_and_positions_are_unrelated() -> None:
    seeds = [choice_seed(seed, index) for seed in range(100) for index in range(20)]
    numbers = uniforms(seeds * 2, [0] * len(seeds) + [1] * len(seeds))
    assert len(set(numbers)) == 2 * len(seeds)
    assert abs(numbers.mean() - 0.5) < 0.02
    first, second = numbers.reshape(2, -1)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.08
    assert (numbers >= 0).all()
    assert (numbers < 1).all()


def test_greedy_ignores_its_neighbours_that_draw() -> None:
    logits = torch.randn(6, VOCAB, generator=torch.Generator().manual_seed(2))
    members = [sequence([1], 1, row, temperature=float(row % 2)) for row in range(6)]
    tokens = sample(logits, members).token_ids
    assert tokens[::2] == logits.argmax(-1).tolist()[::2]


def test_a_stop_token_is_banned_until_min_tokens() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 3] = 9
    logits[0, 8] = 5
    young = sequence([1, 2, 2], 1, temperature=0.0, min_tokens=3, stop_token_ids=(3, VOCAB + 7))
    grown = sequence([1, 2, 2, 2], 1, temperature=0.0, min_tokens=3, stop_token_ids=(3,))
    assert sample(logits, [young]).token_ids == [8]
    assert sample(logits, [grown]).token_ids == [3]


def test_log_probabilities_are_the_models_own() -> None:
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(3))
    members = [
        sequence([1], 1, temperature=0.0, logprobs=2, min_tokens=9, frequency_penalty=1.0),
        sequence([1], 1, temperature=0.0),
        sequence([1], 1, 5, temperature=2.0, logprobs=0),
    ]
    samples = sample(logits, members)
    own = logits.log_softmax(-1)
    assert sorted(samples.logprobs) == [0, 2]
    for row, told in samples.logprobs.items():
        assert told.logprob == pytest.approx(float(own[row, samples.token_ids[row]]))
    best = own[0].topk(2)
    assert [token for token, _ in samples.logprobs[0].top] == best.indices.tolist()
    assert [value for _, value in samples.logprobs[0].top] == pytest.approx(best.values.tolist())
    assert samples.logprobs[2].top == []


def test_a_row_that_is_not_finite_has_no_token_and_harms_nobody() -> None:
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(4))
    expected = int(logits[1].argmax())
    logits[0, 17] = torch.nan
    logits[2] = -torch.inf
    members = [
        sequence([1], 1, temperature=1.0, logprobs=1),
        sequence([1], 1, temperature=0.0, logprobs=1),
        sequence([1], 1, temperature=1.0),
    ]
    samples = sample(logits, members)
    assert samples.token_ids == [NO_TOKEN, expected, NO_TOKEN]
    assert sorted(samples.logprobs) == [1]


def test_half_precision_logits_and_a_vocabulary_smaller_than_the_candidates() -> None:
    logits = torch.tensor([[0.0, 8.0, 1.0]], dtype=torch.bfloat16)
    assert sample(logits, [sequence([0], 1, temperature=0.5, top_k=1)]).token_ids == [1]
