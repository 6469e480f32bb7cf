"""POST /v1/completions: its fields, its prompt, its answers."""

from collections.abc import Sequence
from typing import Any

import msgspec
import orjson

from surgetank.admission.api import Ask, Delta, End, TextModel
from surgetank.admission.doors.http.config import HttpConfig
from surgetank.admission.doors.http.fields import (
    Fields,
    check_ids,
    order,
    out_of_range,
    prompt_ids,
    read,
    sampling,
    stop_strings,
)
from surgetank.admission.doors.http.order import Choice
from surgetank.admission.doors.http.render import FINISH, Frame, usage
from surgetank.admission.doors.http.text_order import TextOrder
from surgetank.engine.api import TokenLogprob
from surgetank.engine.text.codec import TextCodec

_DEFAULT_MAX_TOKENS = 16  # OpenAI's


class CompletionFields(Fields, kw_only=True, forbid_unknown_fields=True):
    """The fields of completions."""

    prompt: str | list[Any]
    logprobs: int | None = None


class CompletionRoute:
    """Plain completions, as OpenAI's clients speak it."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(CompletionFields)

    def read(self, body: bytes, config: HttpConfig) -> TextOrder:
        fields = read(self._decoder, body)
        prompt = _one_prompt(fields.prompt)
        max_tokens = fields.max_tokens or _DEFAULT_MAX_TOKENS
        if fields.max_completion_tokens is not None:
            raise out_of_range("max_completion_tokens", "given", "max_tokens on this route")
        if (fields.min_tokens or 0) > max_tokens:
            raise out_of_range("min_tokens", fields.min_tokens, f"0 to max_tokens, {max_tokens}")

        def ask(served: TextModel) -> Ask:
            check_ids("stop_token_ids", fields.stop_token_ids or [], served.card.vocab_size)
            params = sampling(fields, max_tokens, fields.logprobs)
            return Ask(_ids(prompt, served), params, fields.n or 1, stop_strings(fields))

        return order(fields, fields.logprobs is not None, ask, CompletionRendering)


COMPLETIONS = CompletionRoute()


def _one_prompt(prompt: str | list[Any]) -> str | list[int]:
    """A text or token ids; a list of one of either."""
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt
    if set(map(type, prompt)) == {int}:
        return prompt
    several = prompt and all(isinstance(each, (str, list)) for each in prompt)
    measured = f"a list of {len(prompt)} prompts" if several else "neither text nor token ids"
    raise out_of_range("prompt", measured, "a string, a list of token ids, or a list of one")


def _ids(prompt: str | list[int], served: TextModel) -> list[int]:
    if isinstance(prompt, list):
        check_ids("prompt", prompt, served.card.vocab_size)
        return prompt
    ids = prompt_ids("prompt", lambda: served.codec.encode(prompt, served.card.context_length))
    if not ids:
        raise out_of_range("prompt", "empty", "at least one token")
    return ids


class CompletionRendering:
    """Writes text_completion objects, whole and as events."""

    def __init__(self, order: TextOrder, served: TextModel, request_id: str, created: int) -> None:
        self._frame = Frame(
            order.include_usage, served, f"cmpl-{request_id}", created, "text_completion"
        )
        self._codec = served.codec
        self._with_logprobs = order.logprobs
        self._offsets = [0] * order.n  # characters told of each choice

    def part(self, delta: Delta) -> bytes:
        finish = FINISH.get(delta.finish)
        if finish is None and not delta.text and not delta.logprobs:
            return b""
        content = b'"text":' + orjson.dumps(delta.text)
        return self._frame.choice(delta.index, content, self._logprobs(delta), finish)

    def usage_part(self, end: End) -> bytes:
        return self._frame.usage(end)

    def whole(self, choices: Sequence[Choice], end: End) -> bytes:
        rendered = [
            {
                "index": index,
                "text": choice.text,
                "logprobs": (
                    _logprobs(self._codec, choice.token_ids, choice.logprobs, 0)
                    if self._with_logprobs
                    else None
                ),
                "finish_reason": choice.finish,
            }
            for index, choice in enumerate(choices)
        ]
        return orjson.dumps({**self._frame.top, "choices": rendered, "usage": usage(end)})

    def _logprobs(self, delta: Delta) -> bytes:
        if not self._with_logprobs or delta.logprobs is None:
            return b"null"
        told = self._offsets[delta.index]
        self._offsets[delta.index] += sum(len(self._codec.token(i)) for i in delta.token_ids)
        return orjson.dumps(_logprobs(self._codec, delta.token_ids, delta.logprobs, told))


def _logprobs(
    codec: TextCodec, token_ids: Sequence[int], logprobs: Sequence[TokenLogprob], offset: int
) -> dict[str, Any]:
    """OpenAI's older form: parallel lists. `offset`: where the first token's text begins."""
    tokens = [codec.token(token_id) for token_id in token_ids]
    offsets = [offset]
    for token in tokens[:-1]:
        offsets.append(offsets[-1] + len(token))
    return {
        "tokens": tokens,
        "token_logprobs": [found.logprob for found in logprobs],
        "top_logprobs": [{codec.token(i): value for i, value in f.top} for f in logprobs],
        "text_offset": offsets if tokens else [],
    }
