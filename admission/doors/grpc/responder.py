"""Output deltas as ModelInfer responses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import orjson

from surgetank.admission.api import Delta
from surgetank.admission.doors.grpc import inference_pb2 as pb
from surgetank.admission.doors.grpc.query import VERSION, Query
from surgetank.admission.doors.grpc.tensors import OUTPUTS, Elements, fill, pack
from surgetank.engine.api import TokenLogprob
from surgetank.telemetry.vocabulary import FinishReason

FINAL = "triton_final_response"


@dataclass(slots=True)
class _Choice:
    """One choice's state: the first three since the last response, the others since the start."""

    text: str = ""
    tokens: int = 0
    logprobs: list[dict[str, object]] | None = None
    cumulative: float = 0.0
    finish: FinishReason | None = None


@dataclass
class Responder:
    """Builds one request's responses. One message object is filled again for each of them."""

    query: Query
    token: Callable[[int], str]  # an id's text
    prompt_tokens: int
    message: pb.ModelStreamInferResponse = field(default_factory=pb.ModelStreamInferResponse)

    def __post_init__(self) -> None:
        prefix = self.query.text if self.query.echo else ""
        self._choices = [_Choice(text=prefix) for _ in range(self.query.sampling.n)]
        response = self.message.infer_response
        response.model_name, response.model_version = self.query.model, VERSION
        response.id = self.query.id
        for name in self.query.outputs:
            spec = OUTPUTS[name]
            length = len(self._choices) if spec.length < 0 else spec.length
            response.outputs.add(name=name, datatype=spec.datatype, shape=[length])

    @property
    def complete(self) -> bool:
        """Every choice has said its last."""
        return all(choice.finish is not None for choice in self._choices)

    def add(self, deltas: Sequence[Delta]) -> None:
        """Take in output for the next response."""
        for delta in deltas:
            choice = self._choices[delta.index]
            choice.text += delta.text
            choice.tokens += len(delta.token_ids)
            choice.finish = delta.finish or choice.finish
            if delta.logprobs is not None:
                self._add_logprobs(choice, delta.token_ids, delta.logprobs)

    def whole(self) -> bytes:
        """The only response to a ModelInfer, serialised."""
        self._fill()
        return self.message.infer_response.SerializeToString()

    def part(self) -> bytes:
        """A response on a stream with what was added since the last one, serialised.

        The last one is marked final, unless an empty final response will follow it.
        """
        self._fill()
        final = self.complete and not self.query.empty_final
        self.message.infer_response.parameters[FINAL].bool_param = final
        for choice in self._choices:
            choice.text, choice.tokens, choice.logprobs = "", 0, None
        return self.message.SerializeToString()

    def empty_final(self) -> bytes:
        """The response without outputs that marks a request's end on a stream, serialised."""
        return _bare(self.query.id, self.query.model).SerializeToString()

    def _fill(self) -> None:
        response = self.message.infer_response
        response.ClearField("raw_output_contents")
        for output in response.outputs:
            elements = self._elements(output.name)
            if self.query.raw:
                response.raw_output_contents.append(pack(output.datatype, elements))
            else:
                output.ClearField("contents")
                fill(output.contents, output.datatype, elements)

    def _elements(self, name: str) -> Elements:
        match name:
            case "text_output":
                return [choice.text.encode() for choice in self._choices]
            case "finish_reason":  # "None" while a choice goes on, as Triton's backend says
                return [str(choice.finish).encode() for choice in self._choices]
            case "cumulative_logprob":
                return [choice.cumulative for choice in self._choices]
            case "logprobs":
                return [orjson.dumps(choice.logprobs) for choice in self._choices]
            case "num_input_tokens":
                return [self.prompt_tokens]
            case _:
                return [choice.tokens for choice in self._choices]

    def _add_logprobs(
        self, choice: _Choice, token_ids: Sequence[int], logprobs: Sequence[TokenLogprob]
    ) -> None:
        choice.cumulative += sum(entry.logprob for entry in logprobs)
        if "logprobs" not in self.query.outputs:
            return
        choice.logprobs = choice.logprobs or []
        for token_id, entry in zip(token_ids, logprobs):
            ranked: dict[int, tuple[float, int | None]] = {
                i: (logprob, rank) for rank, (i, logprob) in enumerate(entry.top, start=1)
            }
            ranked.setdefault(token_id, (entry.logprob, None))
            choice.logprobs.append(
                {
                    str(i): {"logprob": value, "rank": rank, "decoded_token": self.token(i)}
                    for i, (value, rank) in ranked.items()
                }
            )


def error(message: str, request_id: str, model: str) -> bytes:
    """A failed request on a stream that goes on, serialised."""
    response = _bare(request_id, model)
    response.error_message = message
    return response.SerializeToString()


def _bare(request_id: str, model: str) -> pb.ModelStreamInferResponse:
    response = pb.ModelStreamInferResponse()
    response.infer_response.id, response.infer_response.model_name = request_id, model
    response.infer_response.model_version = VERSION
    response.infer_response.parameters[FINAL].bool_param = True
    return response
