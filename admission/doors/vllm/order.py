"""A GenerateRequest, read and checked: what is asked of the engine.

Where vLLM's protocol leaves a value out, its own default holds; 0 stands for that in fields without
presence. What this engine cannot do is refused by name, never skipped.
"""

from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from surgetank.admission.api import Ask, TextModel
from surgetank.admission.doors.grpc.sampling import OTHERS, read_sampling
from surgetank.admission.doors.grpc.tensors import bad
from surgetank.admission.doors.grpc.tongue import encoded
from surgetank.admission.doors.ranges import NUMBERS, unknown_id
from surgetank.admission.outcome import Refused
from surgetank.admission.refusals import over
from surgetank.engine.api import ModelCard
from surgetank.engine.protocols import vllm_engine_pb2 as pb
from surgetank.telemetry.vocabulary import Outcome, Reason

_SAMPLING = frozenset((*NUMBERS, *OTHERS))
_CONSTRAINTS = pb.SamplingParams.DESCRIPTOR.oneofs_by_name["constraint"].fields
_UNSUPPORTED = frozenset(
    (
        *("kv_transfer_params", "kv_transfer_params_json"),
        *("mm_inputs", "extra_mm_inputs", "media_refs"),
        *("prompt_logprobs", "logit_bias", "truncate_prompt_tokens"),
        *(field.name for field in _CONSTRAINTS),
    )
)


@dataclass(frozen=True, slots=True)
class Order:
    """One request, checked as far as that is possible without its model."""

    request: pb.GenerateRequest
    sampling: dict[str, Any]

    @property
    def stream(self) -> bool:
        """Whether tokens are wanted as they come."""
        return self.request.stream

    async def ask(self, served: TextModel, default_max_tokens: int) -> Ask:
        """For the desk. Raises Refused."""
        card = served.card
        if self.request.WhichOneof("input") == "text":
            prompt = await encoded(served, self.request.text, "text")
        else:
            prompt = _ids(self.request.tokenized.input_ids, card)
        room = max(1, card.context_length - len(prompt))
        usual: dict[str, Any] = {"max_tokens": min(default_max_tokens, room)}
        sampling = read_sampling(usual | self.sampling, logprobs=False)
        _known("stop_token_ids", sampling.params.stop_token_ids, card)
        return Ask(prompt, sampling.params, sampling.n, sampling.stop)


def read_order(request: pb.GenerateRequest) -> Order:
    """Raises Refused with a sentence that names what is wrong and what is allowed."""
    _supported(request)
    _supported(request.sampling_params)
    if request.data_parallel_rank:
        raise bad(f"data_parallel_rank is {request.data_parallel_rank}; allowed: 0")
    if request.WhichOneof("input") is None:
        raise bad("the request has no input; allowed: tokenized or text")
    return Order(request, _sampling(request.sampling_params))


def _sampling(params: pb.SamplingParams) -> dict[str, Any]:
    """What is set: fields with presence even to 0. The others concern text, which is not made."""
    return {
        field.name: list(value) if field.is_repeated else value
        for field, value in params.ListFields()
        if field.name in _SAMPLING
    }


def _supported(message: Message) -> None:
    for field, _ in message.ListFields():
        if field.name in _UNSUPPORTED:
            raise bad(f"{field.name} is not supported by this engine; leave it out", field.name)


def _ids(given: Any, card: ModelCard) -> list[int]:
    """Too many are not even copied."""
    if not given:
        raise bad("input_ids is empty; allowed: at least one token id", "input_ids")
    if len(given) > card.context_length:
        outcome, reason = Outcome.INVALID, Reason.NEVER_FITS_CONTEXT
        raise Refused(over(outcome, reason, len(given), card.context_length, "context_length"))
    ids = list(given)
    _known("input_ids", ids, card)
    return ids


def _known(name: str, ids: Any, card: ModelCard) -> None:
    wrong = unknown_id(ids, card.vocab_size)
    if wrong is not None:
        raise bad(f"{name} holds {wrong}; allowed: token ids 0 to {card.vocab_size - 1}", name)
