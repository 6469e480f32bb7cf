"""KServe requests before an engine that speaks OpenAI's HTTP: asked by /v1/completions, and back.

The engine is asked in HTTP/1.0, which has no chunks to take apart; its answer is read here, unlike
at the HTTP door, because a response of this protocol is built of it.
"""

import logging
from typing import Any

import msgspec
import orjson
from msgspec.structs import replace

from surgetank.admission.api import Delta, End
from surgetank.admission.doors.grpc.inbox import Inbox
from surgetank.admission.doors.grpc.query import Query
from surgetank.admission.doors.grpc.responder import Responder
from surgetank.admission.doors.grpc.tensors import bad
from surgetank.admission.doors.http.relay_body import KINDS, shortened
from surgetank.admission.outcome import Refusal
from surgetank.admission.prompt_size import PromptSizes
from surgetank.admission.relay import RelayAsk, RelayModel
from surgetank.engine.api import SamplingParams
from surgetank.engine.backends.remote.api import AnswerHead, Forward
from surgetank.telemetry.vocabulary import FinishReason, Outcome, Reason

log = logging.getLogger(__name__)

PATH = "/v1/completions"
# Other engines know these under the same names; what is at its default is not sent, since not every
# engine knows every one.
_SENT = (
    *("min_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty"),
    *("presence_penalty", "frequency_penalty", "seed", "ignore_eos", "stop_token_ids"),
)
_NEED_TOKENS = ("logprobs", "cumulative_logprob")
_FINISH = {"length": FinishReason.LENGTH}
_UNREADABLE = "the engine's answer cannot be read"
_SOME_TOKEN = 0  # of tokens that came as text only their number is known


class RelayTongue:
    """Implements tongue.Tongue."""

    def __init__(self, sizes: PromptSizes) -> None:
        self._sizes = sizes

    async def ask(self, query: Query, served: RelayModel, request_id: str) -> RelayAsk:
        """Raises Refused for outputs that need token ids."""
        for name in _NEED_TOKENS:
            if name in query.outputs:
                raise bad(f"{name} cannot be had of the engine behind this door", name)
        sampling, prompt = query.sampling, max(1, self._sizes.tokens(len(query.text)))
        headers = (("content-type", "application/json"), ("x-request-id", request_id))
        return RelayAsk(
            forward=Forward(
                path=PATH,
                headers=headers,
                body=_body(query, served.name),
                prompt_tokens=prompt,
                stream=query.stream,
                http_1_0=True,
                seqs=sampling.n,
                max_tokens=sampling.params.max_tokens,
            ),
            max_tokens=sampling.params.max_tokens,
            n=sampling.n,
            exact=sampling.params.ignore_eos,
            characters=len(query.text),
            rewrite=lambda body, most: shortened(body, KINDS[PATH], most),
            beginning=query.text[: self._sizes.beginning],
        )

    def listener(self, query: Query, inbox: Inbox) -> "RelayText":
        """Reads the engine's answer."""
        return RelayText(query, inbox)

    def responder(self, query: Query, served: RelayModel, ask: RelayAsk) -> Responder:
        """Without a tokenizer: num_input_tokens is an estimate."""
        return Responder(query, str, ask.prompt_tokens)


def _body(query: Query, model: str) -> bytes:
    params, sampling = query.sampling.params, query.sampling
    usual = msgspec.structs.asdict(SamplingParams(max_tokens=params.max_tokens))
    given = msgspec.structs.asdict(params)
    fields: dict[str, Any] = {"model": model, "prompt": query.text, "stream": query.stream}
    fields |= {"max_tokens": params.max_tokens, "temperature": params.temperature}
    fields |= {name: given[name] for name in _SENT if given[name] != usual[name]}
    if sampling.n > 1:
        fields["n"] = sampling.n
    if sampling.stop:
        fields["stop"] = sampling.stop
    return orjson.dumps(fields)


class RelayText:
    """Implements relay.RelayListener: choices of text out of an answer's bytes, into the inbox."""

    def __init__(self, query: Query, inbox: Inbox) -> None:
        self._stream = query.stream
        self._inbox = inbox
        self._open = set(range(query.sampling.n))  # choices that have not said their last
        self._buffer = b""
        self._failed = False

    def on_head(self, head: AnswerHead) -> None:
        """Of an error only the status is told, by the refusal that it becomes."""
        self._failed = head.status != 200

    def on_data(self, data: bytes, between: bool) -> None:
        """Events as they come; a plain answer once it is whole."""
        if self._failed:
            return
        self._buffer += data
        if self._stream:
            *events, self._buffer = self._buffer.replace(b"\r\n", b"\n").split(b"\n\n")
            for event in events:
                _, mark, text = event.partition(b"data:")
                if mark and text.strip() != b"[DONE]":
                    self._read(orjson.loads(text), tokens=1)

    def direct(self) -> None:
        """Never: all of it is translated."""

    def on_end(self, end: End, complete: bool) -> None:
        """The request is over for the desk already; an answer that makes no sense is still told."""
        if end.refusal is None:
            try:
                self._finish()
            except (ValueError, LookupError, TypeError, AttributeError):
                log.exception("an engine's answer cannot be read")
                refusal = Refusal(Outcome.INTERNAL, Reason.ENGINE_ERROR, _UNREADABLE)
                end = replace(end, outcome=refusal.outcome, refusal=refusal)
        self._inbox.on_end(end)

    def _finish(self) -> None:
        """A choice that did not say why it ended has stopped."""
        if not self._stream:
            answer = orjson.loads(self._buffer)
            total = (answer.get("usage") or {}).get("completion_tokens") or 0
            self._read(answer, tokens=total // len(self._open))
        for index in sorted(self._open):
            self._inbox.on_delta(Delta(index, "", [], None, FinishReason.STOP))

    def _read(self, answer: dict[str, Any], *, tokens: int) -> None:
        for choice in answer.get("choices") or ():
            index, text, said = choice["index"], choice.get("text") or "", choice["finish_reason"]
            finish = None if said is None else _FINISH.get(said, FinishReason.STOP)
            if finish is not None:
                self._open.discard(index)
            ids = [_SOME_TOKEN] * tokens if text else []
            self._inbox.on_delta(Delta(index, text, ids, None, finish))
