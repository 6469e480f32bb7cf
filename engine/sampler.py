"""From logits to tokens, a whole batch at a time.

Order: bans (min_tokens), penalties, temperature; then top_k, top_p and min_p each keep a prefix of
the tokens in order of probability, the shortest of them counts, and one uniform number picks from
it by inverse CDF. Log-probabilities are those of the model's own logits, before all that.
"""

from dataclasses import dataclass
from itertools import chain

import torch

from surgetank.engine.api import TokenLogprob
from surgetank.engine.randomness import uniforms
from surgetank.engine.sequence import Sequence

NO_TOKEN = -1
# So many of the most probable tokens settle nearly every draw, and cost a tenth of a full sort.
CANDIDATES = 256


@dataclass(frozen=True, slots=True)
class Samples:
    """One token per row; NO_TOKEN where a row's logits were not finite."""

    token_ids: list[int]
    logprobs: dict[int, TokenLogprob]  # by row, for those that asked


@torch.inference_mode()
def sample(logits: torch.Tensor, sequences: list[Sequence]) -> Samples:
    """Pick the next token of each sequence from its row of `logits` [R, vocab]."""
    logits = logits.float()
    adjusted = _penalise(_ban(logits, sequences), sequences)
    highest, tokens = adjusted.max(-1)
    drawn = [row for row, each in enumerate(sequences) if each.sampling.temperature > 0]
    if drawn:
        among = adjusted if len(drawn) == len(sequences) else adjusted[drawn]
        tokens[drawn] = _draw(among, [sequences[row] for row in drawn])
    token_ids = torch.where(highest.isfinite(), tokens, NO_TOKEN).tolist()
    return Samples(token_ids, _logprobs(logits, token_ids, sequences))


def _ban(logits: torch.Tensor, sequences: list[Sequence]) -> torch.Tensor:
    """Stop tokens cannot be picked while a sequence is shorter than its min_tokens."""
    vocab = logits.shape[1]
    cells = [
        (row, token)
        for row, each in enumerate(sequences)
        if each.output_len < each.sampling.min_tokens
        for token in each.stop_ids
        if token < vocab
    ]
    if not cells:
        return logits
    rows, tokens = torch.tensor(cells, device=logits.device).unbind(1)
    return logits.index_put((rows, tokens), logits.new_tensor(-torch.inf))


def _penalise(logits: torch.Tensor, sequences: list[Sequence]) -> torch.Tensor:
    """Repetition penalty over prompt and output (Keskar et al., CTRL, arXiv 1909.05858);
    frequency and presence penalties over the output, as OpenAI's API defines them."""
    rows = [
        row
        for row, each in enumerate(sequences)
        if each.sampling.repetition_penalty != 1
        or each.sampling.frequency_penalty
        or each.sampling.presence_penalty
    ]
    if not rows:
        return logits
    members = [sequences[row] for row in rows]
    params = [each.sampling for each in members]
    picked = logits[rows]
    seen = _counts([each.tokens for each in members], picked) > 0
    output = _counts([each.tokens[each.prompt_len :] for each in members], picked)
    repetition = _column([p.repetition_penalty for p in params], picked)
    repeated = torch.where(picked > 0, picked / repetition, picked * repetition)
    picked = torch.where(seen, repeated, picked)
    picked -= _column([p.frequency_penalty for p in params], picked) * output
    picked -= _column([p.presence_penalty for p in params], picked) * (output > 0)
    return logits.index_copy(0, torch.tensor(rows, device=logits.device), picked)


def _counts(tokens: list[list[int]], like: torch.Tensor) -> torch.Tensor:
    """How often each token occurs in each list, [lists, vocab]."""
    lengths = torch.tensor([len(ids) for ids in tokens], device=like.device)
    rows = torch.arange(len(tokens), device=like.device).repeat_interleave(lengths)
    columns = torch.tensor(list(chain.from_iterable(tokens)), device=like.device, dtype=torch.long)
    ones = like.new_ones(len(columns))
    return torch.zeros_like(like).index_put_((rows, columns), ones, accumulate=True)


def _column(values: list[float], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device).unsqueeze(1)


@dataclass(frozen=True, slots=True)
class _Limits:
    """What restricts each of n draws, [n, 1] each."""

    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    uniform: torch.Tensor

    def of(self, rows: torch.Tensor) -> "_Limits":
        return _Limits(self.top_k[rows], self.top_p[rows], self.min_p[rows], self.uniform[rows])


def _draw(logits: torch.Tensor, sequences: list[Sequence]) -> torch.Tensor:
    """A token for each row [n, vocab]: among the likeliest, or where these do not decide, all."""
    params = [each.sampling for each in sequences]
    vocab = logits.shape[1]
    wide = logits.new_zeros((), dtype=torch.float64)
    numbers = uniforms([s.seed for s in sequences], [s.output_len for s in sequences])
    limits = _Limits(
        _column([float(min(p.top_k or vocab, vocab)) for p in params], wide),
        _column([p.top_p for p in params], wide),
        _column([p.min_p for p in params], wide),
        _column(numbers.tolist(), wide),
    )
    scaled = logits / _column([p.temperature for p in params], logits)
    total = scaled.logsumexp(-1, keepdim=True).double()
    values, tokens = scaled.topk(min(CANDIDATES, vocab))
    place, settled = _pick((values.double() - total).exp(), limits, vocab)
    picked = tokens.gather(1, place)
    unsettled = (~settled).nonzero()[:, 0]
    if len(unsettled):
        values, tokens = scaled[unsettled].sort(descending=True)
        probabilities = (values.double() - total[unsettled]).exp()
        place, _ = _pick(probabilities, limits.of(unsettled), vocab)
        picked[unsettled] = tokens.gather(1, place)
    return picked[:, 0]


def _pick(
    probabilities: torch.Tensor, limits: _Limits, vocab: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """From the [n, width] highest probabilities, best first: the place drawn [n, 1], and whether
    tokens beyond the width could not have changed it [n]. top_p is relative to what top_k left."""
    width = probabilities.shape[1]
    mass = probabilities.cumsum(-1)
    by_k = limits.top_k.clamp(max=width).long()
    left = torch.where(limits.top_k <= width, mass.gather(1, by_k - 1), 1.0)
    by_p = (mass < limits.top_p * left).sum(-1, keepdim=True) + 1
    by_p = torch.where(limits.top_p < 1, by_p, width)
    by_min_p = (probabilities >= limits.min_p * probabilities[:, :1]).sum(-1, keepdim=True)
    kept = torch.minimum(torch.minimum(by_k, by_p), by_min_p).clamp(min=1, max=width)
    free = (limits.top_k >= vocab) & (limits.top_p >= 1) & (limits.min_p <= 0)
    ahead = limits.uniform * torch.where(free, 1.0, mass.gather(1, kept - 1))
    place = torch.searchsorted(mass, ahead, right=True).minimum(kept - 1)
    certain = torch.where(free, ahead < mass[:, -1:], kept < width)
    certain &= (limits.top_k <= width) | (limits.top_k >= vocab)
    return place, certain[:, 0] | (width == vocab)


def _logprobs(
    logits: torch.Tensor, token_ids: list[int], sequences: list[Sequence]
) -> dict[int, TokenLogprob]:
    """The chosen token's log-probability and the asked number of alternatives."""
    rows = [
        row
        for row, each in enumerate(sequences)
        if each.sampling.logprobs is not None and token_ids[row] != NO_TOKEN
    ]
    if not rows:
        return {}
    wanted = [min(sequences[row].sampling.logprobs or 0, logits.shape[1]) for row in rows]
    table = logits[rows].log_softmax(-1)
    chosen = torch.tensor([token_ids[row] for row in rows], device=logits.device)
    own = table.gather(1, chosen.unsqueeze(1))[:, 0].tolist()
    best = table.topk(max(wanted))
    values, tokens = best.values.tolist(), best.indices.tolist()
    return {
        row: TokenLogprob(own[i], list(zip(tokens[i][:count], values[i][:count])))
        for i, (row, count) in enumerate(zip(rows, wanted))
    }
