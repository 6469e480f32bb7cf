"""An answer's own count of its tokens, read from its last bytes."""

import pytest

from surgetank.engine.backends.remote.api import Usage
from surgetank.engine.backends.remote.usage import KEEP, Tail, read_usage

PLAIN = b'{"choices":[{"text":"\\"usage\\":{"}],"usage":{"prompt_tokens":7,"completion_tokens":3}}'
STREAM = (
    b'data: {"choices":[],"usage":{"prompt_tokens": 9, "completion_tokens": 0}}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens": 9, "completion_tokens": 40,'
    b'"prompt_tokens_details":{"cached_tokens":8}}}\n\ndata: [DONE]\n\n'
)

RESPONSE = (
    b'{"usage":{"input_tokens":11,"input_tokens_details":{"cached_tokens":2},"output_tokens":5}}'
)
MESSAGES = (
    b'event: message_start\ndata: {"message":{"usage":{"input_tokens":21,"output_tokens":0}}}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","usage":{"cache_read_input_tokens":16,'
    b'"input_tokens":21,"output_tokens":12}}\n\nevent: message_stop\ndata: {}\n\n'
)


@pytest.mark.parametrize(
    ("tail", "usage"),
    [
        (RESPONSE, Usage(11, 5, 2)),
        (MESSAGES, Usage(37, 12, 16)),
        (PLAIN, Usage(7, 3, None)),
        (STREAM, Usage(9, 40, 8)),
        (b'data: {"usage":null}\n\n', Usage()),
        (b"", Usage()),
    ],
)
def test_the_last_usage_counts(tail: bytes, usage: Usage) -> None:
    assert read_usage(tail) == usage


def test_the_tail_keeps_the_end_of_what_goes_by_and_no_more() -> None:
    tail = Tail()
    for _ in range(1000):
        tail.add(b"x" * 100)
    tail.add(PLAIN)
    assert tail.usage() == Usage(7, 3, None)
    tail.add(b"y" * KEEP)
    assert tail.usage() == Usage()
