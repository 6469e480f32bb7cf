"""Where bodies end, and what passes by in them, whatever pieces the bytes come in."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surgetank.engine.backends.remote.framing import Chunked, EventCount, FramingError, Sized

NEXT = b"HTTP/1.1 200 OK\r\n\r\n"


def chunked(parts: list[bytes], end: bytes = b"0\r\n\r\n") -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part) + end


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(st.lists(st.binary(min_size=1, max_size=50)), st.lists(st.integers(0, 10_000), max_size=12))
def test_a_chunked_body_ends_where_it_ends_in_whatever_pieces(
    parts: list[bytes], cuts: list[int]
) -> None:
    body = chunked(parts)
    framing, taken = Chunked(), 0
    for piece in pieces(body, cuts):
        assert not framing.complete or not piece
        taken += framing.take(piece)
    assert framing.complete
    assert taken == len(body)
    whole = Chunked()
    assert whole.take(body + NEXT) == len(body)


@pytest.mark.parametrize("size", [1, 250, 4095, 4096, 70_000])
def test_whole_chunks_that_come_one_by_one_end_between_two(size: int) -> None:
    framing = Chunked()
    chunk = b"%x\r\n%b\r\n" % (size, b"\r\nab" * (size // 4) + b"x" * (size % 4))
    for _ in range(3):
        assert (framing.take(chunk), framing.between, framing.complete) == (len(chunk), True, False)
    assert framing.take(chunk[:-1]) == len(chunk) - 1, "one byte less is no whole chunk"
    assert not framing.between
    assert framing.take(b"\n" + b"0\r\n\r\n" + NEXT) == 6
    assert framing.complete


def test_trailers_and_extensions_are_part_of_the_body() -> None:
    body = b"5;x=y\r\nhello\r\n0\r\nchecksum: 1\r\n\r\n"
    framing = Chunked()
    assert framing.take(body + NEXT) == len(body)
    assert framing.complete


@pytest.mark.parametrize("body", [b"\r\n", b"-1\r\n", b"0x5\r\n", b"zz\r\n", b"1" * 2000])
def test_what_is_no_size_is_refused(body: bytes) -> None:
    with pytest.raises(FramingError, match="chunk"):
        Chunked().take(body)


def test_something_can_be_put_in_between_two_chunks_only() -> None:
    framing = Chunked()
    seen = []
    for piece in (b"5\r\n", b"hel", b"lo", b"\r\n", b"3\r", b"\nabc\r\n", b"0\r\n\r\n"):
        framing.take(piece)
        seen.append(framing.between)
    assert seen == [False, False, False, True, False, True, False]


def test_a_sized_body_takes_no_more_than_its_size() -> None:
    framing = Sized(5)
    assert framing.take(b"abc") == 3
    assert not framing.complete
    assert framing.take(b"defgh") == 2
    assert framing.complete
    assert Sized(0).complete


@given(
    st.lists(st.sampled_from([b"data: {}", b": ping", b'data: {"text": "a data: b"}', b""])),
    st.sampled_from([b"\n\n", b"\r\n\r\n"]),
    st.lists(st.integers(0, 10_000), max_size=30),
)
def test_events_are_counted_in_whatever_pieces(
    events: list[bytes], separator: bytes, cuts: list[int]
) -> None:
    parts = [event + separator for event in events]
    expected = sum(event.startswith(b"data:") for event in events)
    for body in (b"".join(parts), chunked(parts)):
        counter = EventCount()
        assert sum(counter.count(piece) for piece in pieces(body, cuts)) == expected


def named(name: str, **fields: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode()


MESSAGE = [
    named("message_start", message={"content": []}),
    named("content_block_start", content_block={"type": "text", "text": ""}),
    named("ping"),
    named("content_block_delta", delta={"type": "text_delta", "text": "hel"}),
    named("content_block_delta", delta={"type": "text_delta", "text": ' "content_block_delta" '}),
    named("content_block_stop"),
    named("message_delta", usage={"output_tokens": 2}),
    named("message_stop"),
]
RESPONSE = [
    named("response.created"),
    named("response.output_item.added"),
    named("response.output_text.delta", delta="hel"),
    named("response.reasoning_text.delta", delta='it ends in ".delta" '),
    named("response.function_call_arguments.delta", delta="{"),
    named("response.output_text.done", text="hello"),
    named("response.completed"),
]


@pytest.mark.parametrize(
    ("path", "events", "bearing"),
    [
        ("/v1/messages", MESSAGE, 2),
        ("/v1/responses", RESPONSE, 3),
        ("/v1/chat/completions", MESSAGE, 8),
    ],
)
@given(st.lists(st.integers(0, 10_000), max_size=30))
def test_only_events_that_bear_output_count_where_most_do_not(
    path: str, events: list[bytes], bearing: int, cuts: list[int]
) -> None:
    counter, body = EventCount(path), b"".join(events)
    assert sum(counter.count(piece) for piece in pieces(body, cuts)) == bearing
