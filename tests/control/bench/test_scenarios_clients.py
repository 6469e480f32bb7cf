"""The real clients against servers that the test plays: their own retries, and what is counted."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import grpc
import pytest

from surgetank.admission.doors.grpc import inference_pb2 as pb
from surgetank.control.bench.load.infer import infer_request
from surgetank.control.bench.scenarios.clients import Clients
from surgetank.control.bench.scenarios.load import Player
from surgetank.control.bench.scenarios.plan import GRPC, HASTY, LOW, OPENAI, Call
from surgetank.control.bench.scenarios.rows import Row
from surgetank.control.bench.scenarios.wire import Play, Setup

_ANSWER = (
    'data: {"id":"1","object":"text_completion","created":1,"model":"default",'
    '"choices":[{"index":0,"text":"a","finish_reason":null}]}\n\ndata: [DONE]\n\n'
)
SERVED = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + _ANSWER


def refusal(status: str, *headers: str) -> str:
    return "\r\n".join([f"HTTP/1.1 {status}", "content-length: 2", *headers, "", "{}"])


BUSY = refusal("429 Too Many Requests", "x-should-retry: true", "retry-after-ms: 60")
GO_AWAY = refusal("429 Too Many Requests", "x-should-retry: false")


class PlayedHttp:
    """Gives the n-th request the n-th answer, the last one to all that follow."""

    def __init__(self, answers: Sequence[str]) -> None:
        self.answers = answers
        self.heads: list[str] = []
        self.times: list[float] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            self.heads.append(head)
            self.times.append(asyncio.get_running_loop().time())
            answer = self.answers[min(len(self.heads), len(self.answers)) - 1]
            writer.write(answer.encode())
            await writer.drain()
            if answer is SERVED:
                break
        writer.close()


async def _head(reader: asyncio.StreamReader) -> str:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    except asyncio.IncompleteReadError:
        return ""
    length = head.partition("content-length: ")[2].partition("\r")[0]
    await reader.readexactly(int(length))
    return head


@asynccontextmanager
async def clients(http: PlayedHttp, grpc_address: str = "127.0.0.1:1") -> AsyncIterator[Clients]:
    server = await asyncio.start_server(http.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    made = Clients(Setup(f"http://127.0.0.1:{port}/v1", grpc_address, 20.0, 20.0, 1.0, 1))
    try:
        yield made
    finally:
        await made.close()
        server.close()


async def called(http: PlayedHttp, client: str) -> Row:
    async with clients(http) as made:
        return await made.call(Call(0.0, 3, 2, client, int(LOW)), "a b c", 0.0)


async def test_openai_waits_as_it_is_told_and_numbers_its_attempts() -> None:
    http = PlayedHttp([BUSY, BUSY, SERVED])
    row = await called(http, OPENAI)
    assert (row.ok, row.attempts, row.let_in) == (True, 3, 1)
    assert row.heard is not None
    assert row.sent == pytest.approx(http.times[2], abs=0.05)
    assert all(later - earlier >= 0.06 for earlier, later in zip(http.times, http.times[1:]))
    for number, head in enumerate(http.heads):
        assert f"x-stainless-retry-count: {number}\r\n" in head
        assert "x-surgetank-priority: batch\r\n" in head


async def test_openai_stays_away_when_it_is_told_to_and_the_hasty_one_does_not() -> None:
    obedient, hasty = PlayedHttp([GO_AWAY]), PlayedHttp([GO_AWAY])
    row = await called(obedient, OPENAI)
    assert (row.ok, row.attempts, row.let_in, row.error) == (False, 1, 0, "RateLimitError")
    row = await called(hasty, HASTY)
    assert (row.ok, row.attempts, row.let_in) == (False, 4, 0)
    assert len(hasty.heads) == 4


async def test_grpcio_retries_by_its_policy_and_obeys_the_pushback() -> None:
    seen: list[str] = []

    async def infer(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        metadata = dict(context.invocation_metadata() or ())
        seen.append(str(metadata.get("grpc-previous-rpc-attempts", "0")))
        if len(seen) < 3:
            pushback = (("grpc-retry-pushback-ms", "50"),)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy", pushback)
        return pb.ModelInferResponse().SerializeToString()

    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(infer)
    service = grpc.method_handlers_generic_handler(
        "inference.GRPCInferenceService", {"ModelInfer": handler}
    )
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with clients(PlayedHttp([SERVED]), f"127.0.0.1:{port}") as made:
            row = await made.call(Call(0.0, 3, 2, GRPC), "a b c", 0.0)
    finally:
        await server.stop(None)
    assert seen == ["0", "1", "2"]
    assert (row.ok, row.heard, row.attempts) == (True, None, 0)


def test_the_infer_request_asks_for_so_many_tokens_and_no_echo() -> None:
    request = infer_request("a b c", 7)
    assert request.inputs[0].contents.bytes_contents == [b"a b c"]
    assert request.inputs[1].contents.bool_contents == [True]
    assert request.parameters["max_tokens"].int64_param == 7
    assert request.parameters["ignore_eos"].bool_param


async def test_a_player_starts_each_call_at_its_time(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    http = PlayedHttp([SERVED])
    async with clients(http) as made:
        player = Player(made, Setup("", "", 20.0, 20.0, 1.0, 1))
        played = await player.play(Play([Call(0.0, 3, 2), Call(0.2, 3, 2)]))
        turns = await player.play(Play([Call(0.0, 3, 2)] * 5, width=2, seconds=20.0))
    assert [row.ok for row in played.rows] == [True, True]
    assert 0.2 <= played.rows[1].sent < 5.0
    assert played.strain.late_p99 >= 0.0
    assert [row.ok for row in turns.rows] == [True] * 5
    assert capfdbinary.readouterr().out.count(b'"Begun"') == 2
