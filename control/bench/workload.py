"""The batches that every engine is given, and how ours are counted as their steps come."""

import random
from collections.abc import Sequence

from surgetank.control.bench.document import BenchError
from surgetank.control.bench.rival import Sample
from surgetank.engine.api import GenerateRequest, SamplingParams, StepOutput
from surgetank.telemetry.steprecord import StepRecord

STAGES = ("drain", "schedule", "forward", "sample", "emit")
_ORDINARY = (1000, 40_000)  # token ids that are words in the vocabularies compared here


def prompts(count: int, length: int, rng: random.Random, vocabulary: int) -> list[list[int]]:
    """Random tokens: no prompt shares a prefix with another, so no cache shortens any."""
    low, high = min(_ORDINARY[0], vocabulary - 1), min(_ORDINARY[1], vocabulary)
    return [[rng.randrange(low, high) for _ in range(length)] for _ in range(count)]


def requests_of(prompts: Sequence[Sequence[int]], output: int, first: int) -> list[GenerateRequest]:
    """One greedy request for each prompt, that ignores the end token; ids count from `first`."""
    sampling = SamplingParams(max_tokens=output, temperature=0.0, ignore_eos=True)
    return [
        GenerateRequest(request_id=first + row, prompt=list(prompt), sampling=sampling)
        for row, prompt in enumerate(prompts)
    ]


class Tally:
    """Step outputs of one batch, as they come: which part of the time was prefill, which decode."""

    def __init__(self, sequences: int, begun: float) -> None:
        self._waiting = sequences  # for their first token
        self._open = sequences
        self._begun = self._first = self._last = begun
        self._decoded = 0
        self._records: list[StepRecord] = []
        self._seen: set[int] = set()

    @property
    def done(self) -> bool:
        """Every sequence has its last token."""
        return self._open == 0

    def step(self, output: StepOutput, now: float) -> None:
        """Take one in, that came at `now`. Raises BenchError when a request was refused."""
        all_started = self._waiting == 0
        for tokens in output.tokens:
            if tokens.detail:
                raise BenchError(f"the engine refused: {tokens.detail}")
            self._open -= tokens.finish is not None
            if all_started:
                self._decoded += len(tokens.token_ids)
            elif tokens.request_id not in self._seen:
                self._seen.add(tokens.request_id)
                self._waiting -= 1
        self._last = now
        if not all_started:
            self._first = now
        elif output.record is not None:
            self._records.append(output.record)

    def sample(self) -> Sample:
        """All of it, with the seconds of the decode steps by stage."""
        stages = {name: sum(getattr(record, name) for record in self._records) for name in STAGES}
        decode = self._last - self._first
        return Sample(self._first - self._begun, decode, self._decoded, stages)
