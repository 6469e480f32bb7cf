"""Output as GenerateResponses: chunks and each choice's Complete, or the Completes alone.

As vLLM counts: a chunk's completion_tokens are those of the chunk, and the Complete of a stream
repeats its last chunk.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from surgetank.admission.api import Ask, Delta
from surgetank.admission.ticket import Ticket
from surgetank.engine.api import TokenLogprob
from surgetank.engine.protocols import vllm_engine_pb2 as pb
from surgetank.telemetry.vocabulary import FinishReason

ABORTED = "abort"


@dataclass(slots=True)
class _Part:
    """Tokens of one choice: those since the last chunk, or all."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: str | None = None
    matched: str | None = None  # the stop string

    def add(self, delta: Delta) -> None:
        self.ids += delta.token_ids
        self.logprobs += delta.logprobs or ()
        self.matched = delta.matched
        if delta.finish is not None:
            self.finish = str(delta.finish)


class Answer:
    """Writes one request's responses, serialised."""

    def __init__(self, ticket: Ticket, ask: Ask, *, stream: bool) -> None:
        self._ticket = ticket
        self._ask = ask
        self._stream = stream
        self._open = set(range(ask.n))  # choices that have not said their last
        self._whole: dict[int, _Part] = {}  # of an answer in one piece

    def parts(self, deltas: Sequence[Delta]) -> Iterator[bytes]:
        """What can be sent now, given new output. What came together goes out as one chunk."""
        fresh = {} if self._stream else self._whole
        for delta in deltas:
            fresh.setdefault(delta.index, _Part()).add(delta)
            if delta.finish is not None:
                self._open.discard(delta.index)
        if self._stream:
            for index, part in fresh.items():
                yield self._chunk(index, part)
                if part.finish is not None:
                    yield self._complete(index, part)
        elif not self._open:
            yield from self._completes(sorted(fresh))

    def aborted(self) -> Iterator[bytes]:
        """The end of every choice that was still open."""
        for index in self._open:
            self._whole.setdefault(index, _Part()).finish = ABORTED
        yield from self._completes(sorted(self._whole))

    def _completes(self, indices: Iterable[int]) -> Iterator[bytes]:
        for index in indices:
            yield self._complete(index, self._whole[index])

    def _chunk(self, index: int, part: _Part) -> bytes:
        chunk = pb.GenerateStreamChunk(
            token_ids=part.ids,
            prompt_tokens=self._ticket.prompt_tokens,
            completion_tokens=len(part.ids),
            cached_tokens=self._ticket.cached_tokens,
            output_logprobs=self._logprobs(part),
            index=index,
        )
        return pb.GenerateResponse(chunk=chunk).SerializeToString()

    def _complete(self, index: int, part: _Part) -> bytes:
        complete = pb.GenerateComplete(
            output_ids=part.ids,
            finish_reason=part.finish or "",
            prompt_tokens=self._ticket.prompt_tokens,
            completion_tokens=len(part.ids),
            cached_tokens=self._ticket.cached_tokens,
            output_logprobs=self._logprobs(part),
            index=index,
        )
        if part.matched is not None:
            complete.matched_stop_str = part.matched
        elif part.finish == FinishReason.STOP and part.ids[-1:]:
            last = part.ids[-1]
            if last in self._ask.sampling.stop_token_ids:
                complete.matched_token_id = last
        return pb.GenerateResponse(complete=complete).SerializeToString()

    def _logprobs(self, part: _Part) -> pb.OutputLogProbs | None:
        """None when none are wanted, or there are no tokens."""
        if not part.logprobs:
            return None
        told = pb.OutputLogProbs(
            token_logprobs=[entry.logprob for entry in part.logprobs], token_ids=part.ids
        )
        if self._ask.sampling.logprobs:
            for entry in part.logprobs:
                told.top_logprobs.add(
                    token_ids=[token_id for token_id, _ in entry.top],
                    values=[logprob for _, logprob in entry.top],
                )
        return told
