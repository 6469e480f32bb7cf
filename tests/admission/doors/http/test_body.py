"""Bodies in parts: the same bytes come out however they were cut, and never too many."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surgetank.admission.doors.http.body import ChunkedBody, SizedBody
from surgetank.admission.outcome import Refused
from surgetank.telemetry.vocabulary import Reason


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.integers(1, 50))
def test_chunks_join_to_the_body_however_they_are_cut(chunks: list[bytes], cut: int) -> None:
    framed = b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"
    data, body, buffer, done = framed + b"NEXT", ChunkedBody(1000), bytearray(), False
    for at in range(0, len(data), cut):
        buffer += data[at : at + cut]
        done = done or body.take(buffer)
    assert done
    assert body.data == b"".join(chunks)
    assert buffer == b"NEXT"


@given(st.binary(max_size=50), st.integers(1, 60))
def test_a_body_of_known_length_leaves_the_rest(content: bytes, cut: int) -> None:
    data, body, buffer, done = content + b"NEXT", SizedBody(len(content)), bytearray(), False
    for at in range(0, len(data), cut):
        buffer += data[at : at + cut]
        done = done or body.take(buffer)
    assert done
    assert bytes(body.data + buffer) == content + b"NEXT"


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n",
        b"-1\r\n",
        b"0x5\r\n",
        b"5 5\r\nhello\r\n",
        b"5\nhello\r\n",
        b"5\r\nhello!\r\n",
        b"5\r\nhelloXX0\r\n\r\n",
        b"5;a\rb\r\nhello\r\n",
        b"11112222333344445\r\n",
        b"5;" + b"x" * 300,
        b"0\r\n" + b"T: v\r\n" * 40,
    ],
)
def test_malformed_chunks_are_refused(data: bytes) -> None:
    with pytest.raises(Refused) as caught:
        ChunkedBody(1000).take(bytearray(data))
    assert caught.value.refusal.reason is Reason.BAD_REQUEST


def test_a_chunk_beyond_the_limit_is_refused_before_it_comes() -> None:
    body = ChunkedBody(10)
    assert not body.take(bytearray(b"8\r\n12345678\r\n"))
    with pytest.raises(Refused) as caught:
        body.take(bytearray(b"3\r\n"))
    assert caught.value.refusal.reason is Reason.BODY_TOO_LARGE
    assert (caught.value.refusal.measured, caught.value.refusal.limit) == (11, 10)
