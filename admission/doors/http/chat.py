"""POST /v1/chat/completions: its fields, its prompt, its answers."""

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

_ROLES = ("system", "developer", "user", "assistant")


class _Part(msgspec.Struct):
    type: str
    text: str | None = None


class _Message(msgspec.Struct):
    """Other members (name, refusal, annotations ...) are left alone: clients echo what they got."""

    role: str
    content: str | list[_Part] | None = None
    tool_calls: Any = None


class ChatFields(Fields, kw_only=True, forbid_unknown_fields=True):
    """The fields of chat/completions."""

    messages: list[_Message]
    logprobs: bool | None = None
    top_logprobs: int | None = None


class ChatRoute:
    """Chat completions, as OpenAI's clients speak it."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(ChatFields)

    def read(self, body: bytes, config: HttpConfig) -> TextOrder:
        fields = read(self._decoder, body)
        messages = _messages(fields.messages)
        limit = _max_tokens(fields)
        if fields.top_logprobs and not fields.logprobs:
            raise out_of_range("top_logprobs", fields.top_logprobs, "only with logprobs: true")

        def ask(served: TextModel) -> Ask:
            check_ids("stop_token_ids", fields.stop_token_ids or [], served.card.vocab_size)
            codec, context = served.codec, served.card.context_length
            prompt = prompt_ids("messages", lambda: codec.encode_chat(messages, most=context))
            room = max(1, context - len(prompt))
            max_tokens = limit or min(config.default_max_tokens, room)
            logprobs = (fields.top_logprobs or 0) if fields.logprobs else None
            params = sampling(fields, max_tokens, logprobs)
            return Ask(prompt, params, fields.n or 1, stop_strings(fields))

        return order(fields, bool(fields.logprobs), ask, ChatRendering)


CHAT = ChatRoute()


def _messages(messages: list[_Message]) -> list[dict[str, str]]:
    """Role and text of each message, as chat templates read them."""
    if not messages:
        raise out_of_range("messages", "an empty list", "at least one message")
    return [
        {"role": _role(m.role, at), "content": _content(m, at)} for at, m in enumerate(messages)
    ]


def _role(role: str, at: int) -> str:
    if role not in _ROLES:
        raise out_of_range(f"messages[{at}].role", repr(role), ", ".join(_ROLES))
    return "system" if role == "developer" else role


def _content(message: _Message, at: int) -> str:
    name = f"messages[{at}]"
    if message.tool_calls:
        raise out_of_range(f"{name}.tool_calls", "given", "leave it out: tools are not supported")
    if message.content is None:
        if message.role != "assistant":
            raise out_of_range(f"{name}.content", "null", "a string or a list of text parts")
        return ""
    if isinstance(message.content, str):
        return message.content
    for place, part in enumerate(message.content):
        if part.type != "text" or part.text is None:
            raise out_of_range(f"{name}.content[{place}].type", repr(part.type), "text, with text")
    return "\n".join(part.text or "" for part in message.content)


def _max_tokens(fields: ChatFields) -> int | None:
    """max_completion_tokens is the newer name of max_tokens."""
    old, new = fields.max_tokens, fields.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise out_of_range("max_completion_tokens", new, f"the same as max_tokens, {old}")
    limit = old if new is None else new
    if limit is not None and (fields.min_tokens or 0) > limit:
        raise out_of_range("min_tokens", fields.min_tokens, f"0 to max_tokens, {limit}")
    return limit


class ChatRendering:
    """Writes chat.completion and chat.completion.chunk objects."""

    def __init__(self, order: TextOrder, served: TextModel, request_id: str, created: int) -> None:
        answer_id = f"chatcmpl-{request_id}"
        self._frame = Frame(
            order.include_usage, served, answer_id, created, "chat.completion.chunk"
        )
        self._codec = served.codec
        self._with_logprobs = order.logprobs
        self._silent = set(range(order.n))  # choices that have not told their role

    def part(self, delta: Delta) -> bytes:
        finish = FINISH.get(delta.finish)
        if finish is None and not delta.text and not delta.logprobs:
            return b""
        content = b'"delta":{'
        if delta.index in self._silent:
            self._silent.discard(delta.index)
            content += b'"role":"assistant",'
        content += b'"content":' + orjson.dumps(delta.text) + b"}"
        return self._frame.choice(delta.index, content, self._logprobs(delta), finish)

    def usage_part(self, end: End) -> bytes:
        return self._frame.usage(end)

    def whole(self, choices: Sequence[Choice], end: End) -> bytes:
        rendered = [
            {
                "index": index,
                "message": {"role": "assistant", "content": choice.text, "refusal": None},
                "logprobs": (
                    _logprobs(self._codec, choice.token_ids, choice.logprobs)
                    if self._with_logprobs
                    else None
                ),
                "finish_reason": choice.finish,
            }
            for index, choice in enumerate(choices)
        ]
        top = {**self._frame.top, "object": "chat.completion"}
        return orjson.dumps({**top, "choices": rendered, "usage": usage(end)})

    def _logprobs(self, delta: Delta) -> bytes:
        if not self._with_logprobs or delta.logprobs is None:
            return b"null"
        return orjson.dumps(_logprobs(self._codec, delta.token_ids, delta.logprobs))


def _logprobs(
    codec: TextCodec, token_ids: Sequence[int], logprobs: Sequence[TokenLogprob]
) -> dict[str, Any]:
    content = [
        {
            **_token(codec, token_id, found.logprob),
            "top_logprobs": [_token(codec, other, value) for other, value in found.top],
        }
        for token_id, found in zip(token_ids, logprobs, strict=True)
    ]
    return {"content": content, "refusal": None}


def _token(codec: TextCodec, token_id: int, logprob: float) -> dict[str, Any]:
    return {
        "token": codec.token(token_id),
        "logprob": logprob,
        "bytes": list(codec.token_bytes(token_id)),
    }
