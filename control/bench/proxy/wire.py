"""What the bench and its engine stub say to each other, through whatever stands between them."""

import re

import orjson

MODEL = "stub"
MOST = 4096  # events of one stream
AT_ONCE = 0  # microseconds between events: all come as fast as they are taken, and they are
WIDE = 1500  # characters longer
NEVER = 1_000_000_000  # microseconds between events: none comes after the first
_TOKEN = re.compile(rb'"content"\s*:\s*"\s*(\d+)\s*"')
_ANSWER = b"The river rises."


def request(path: str, body: bytes) -> bytes:
    """A POST over a kept connection."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer bench\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def ask(events: int, gap: int) -> bytes:
    """A chat that is answered by a stream of so many events, `gap` microseconds apart; 0 events: by
    a plain answer at once. Only fields that every gateway passes on may carry that."""
    fields: dict[str, object] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Why do rivers flood in the spring?"}],
        "max_tokens": max(1, events),
        "seed": gap,
    }
    if events:
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
    return request("/v1/chat/completions", orjson.dumps(fields))


def event(number: int, blanks: int = 1) -> bytes:
    """One token, in a chunk of its own; the number tells order and losses."""
    choice = {"index": 0, "delta": {"content": " " * blanks + str(number)}, "finish_reason": None}
    return _chunk(_event([choice], None))


def last(events: int) -> bytes:
    """The stream's end: reason, usage, [DONE]."""
    choice = {"index": 0, "delta": {}, "finish_reason": "length"}
    end = _event([choice], None) + _event([], _usage(events)) + b"data: [DONE]\n\n"
    return _chunk(end) + b"0\r\n\r\n"


def plain() -> bytes:
    """A whole answer, head and body."""
    message = {"role": "assistant", "content": _ANSWER.decode()}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return page(_object("chat.completion", [choice], _usage(5)))


def page(fields: dict[str, object]) -> bytes:
    """A JSON answer, head and body."""
    body = orjson.dumps(fields)
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def tokens(body: bytes) -> list[int]:
    """The numbers of the events in a stream, in the order in which they came."""
    return [int(number) for number in _TOKEN.findall(body)]


def is_plain(body: bytes) -> bool:
    """Whether it is the plain answer, possibly written anew."""
    return _ANSWER in body


def _usage(output: int) -> dict[str, int]:
    return {"prompt_tokens": 16, "completion_tokens": output, "total_tokens": 16 + output}


def _object(kind: str, choices: list[dict[str, object]], usage: object) -> dict[str, object]:
    fields: dict[str, object] = {"id": "chatcmpl-bench", "object": kind, "created": 1_700_000_000}
    return fields | {"model": MODEL, "choices": choices, "usage": usage}


def _event(choices: list[dict[str, object]], usage: object) -> bytes:
    return b"data: " + orjson.dumps(_object("chat.completion.chunk", choices, usage)) + b"\n\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
