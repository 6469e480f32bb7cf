"""The clients of a serving benchmark against played servers: what they send, note and obey."""

import asyncio
import random
from collections.abc import AsyncIterator

import grpc
import openai
import pytest
from tests.control.bench.played_openai import AWAY, BUSY, PlayedOpenAI

from surgetank.admission.client.retrier import ATTEMPT_HEADER
from surgetank.admission.doors.grpc import inference_pb2 as pb
from surgetank.control.bench.load.sdk import Hasty
from surgetank.control.bench.serve.clients import Client, Plain, Server
from surgetank.control.bench.serve.inputs import Call
from surgetank.control.bench.serve.kserve import Streamed, Unary
from surgetank.control.bench.serve.rows import Answer
from surgetank.control.bench.serve.sdk_client import Sdk
from surgetank.control.lab.behaviour import BEHAVIOURS

CALL = Call(0.0, 5, 4, "any")


def made(kind: str, played: PlayedOpenAI, *, chat: bool = False) -> Client:
    server = Server(f"{played.url}/v1", "played", "key", chat, ("ignore_eos",))
    match kind:
        case "openai" | "openai-hasty":
            return Sdk(Hasty if kind == "openai-hasty" else openai.AsyncOpenAI, server, 20.0)
        case _:
            behaviour = None if kind == "httpx" else BEHAVIOURS[kind]
            return Plain(server, 20.0, behaviour, random.Random(1))


async def asked(kind: str, played: PlayedOpenAI, *, chat: bool = False) -> Answer:
    client = made(kind, played, chat=chat)
    try:
        return await client.ask(CALL, "a b c")
    finally:
        await client.close()


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("kind", ["openai", "openai-hasty", "httpx", "no-retry"])
async def test_every_client_notes_pieces_and_counts(kind: str, chat: bool) -> None:
    with PlayedOpenAI() as played:
        answer = await asked(kind, played, chat=chat)
    assert (answer.error, len(answer.times)) == ("", 4)
    assert (answer.prompt_tokens, answer.output_tokens) == (11, 4)
    assert [attempt.status for attempt in answer.attempts] == [200]
    body = played.bodies[0]
    assert (body["max_tokens"], body["ignore_eos"], body["stream"]) == (4, True, True)
    assert body["stream_options"] == {"include_usage": True}
    assert "authorization: bearer key\r\n" in played.heads[0]


@pytest.mark.parametrize(
    ("kind", "attempts", "waits"),
    [("openai", 2, True), ("httpx", 2, True), ("obedient", 2, True), ("openai-hasty", 2, False)],
)
async def test_who_is_told_when_to_come_back(kind: str, attempts: int, waits: bool) -> None:
    with PlayedOpenAI() as played:
        played.refusals = [BUSY]
        answer = await asked(kind, played)
    assert (answer.error, len(answer.attempts)) == ("", attempts)
    first, second = answer.attempts
    assert (first.status, first.reason, first.hint.wait) == (429, "predicted_wait", 0.06)
    if waits:
        assert second.at - first.told >= 0.059


@pytest.mark.parametrize(
    ("kind", "attempts", "error"),
    [
        ("openai", 1, "RateLimitError"),
        ("httpx", 1, "HTTP 429"),
        ("obedient", 1, "HTTP 429"),
        ("no-retry", 1, "HTTP 429"),
        ("immediate-3", 4, "HTTP 429"),
        ("openai-hasty", 3, "RateLimitError"),
    ],
)
async def test_who_is_told_not_to_come_back(kind: str, attempts: int, error: str) -> None:
    with PlayedOpenAI() as played:
        played.refusals = [AWAY] * 4
        answer = await asked(kind, played)
    assert (answer.error, len(answer.attempts)) == (error, attempts)
    assert {attempt.reason for attempt in answer.attempts} == {"retry_budget"}


async def test_behaviours_number_their_attempts() -> None:
    with PlayedOpenAI() as played:
        played.refusals = [AWAY]
        await asked("immediate-1", played)
    counts = [head.partition("x-stainless-retry-count: ")[2][0] for head in played.heads]
    assert counts == ["0", "1"]


@pytest.mark.parametrize(("kind", "heeds"), [("obedient", True), ("backoff", False)])
async def test_our_helpers_repeat_where_a_behaviour_leaves_it_to_them(
    kind: str, heeds: bool
) -> None:
    with PlayedOpenAI() as played:
        played.refusals = [AWAY]
        answer = await asked(kind, played)
        attempts = 1 if heeds else 2
        assert (bool(answer.error), len(answer.attempts)) == (heeds, attempts)
        counts = [head.partition(f"{ATTEMPT_HEADER}: ")[2][0] for head in played.heads]
        assert counts == ["0", "1"][:attempts]
        played.refusals = [BUSY] * 80
        client = made(kind, played)
        failed = [await client.ask(CALL, "a") for _ in range(30)]
        await client.close()
    assert sum(len(each.attempts) for each in failed) < 60  # of 90: its budget is spent
    assert answer.attempts[0].hint.retry is False  # it is noted all the same


async def test_a_server_that_is_gone_is_an_answer_too() -> None:
    with PlayedOpenAI() as played:
        pass
    for kind, error in (("no-retry", "ConnectError"), ("openai-hasty", "APIConnectionError")):
        answer = await asked(kind, played)
        assert (answer.error, answer.attempts[0].status) == (error, 0)


class PlayedKServe:
    """Answers as told; remembers the requests."""

    def __init__(self) -> None:
        self.seen: list[pb.ModelInferRequest] = []
        self.refuses = False

    async def infer(self, data: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        self.seen.append(pb.ModelInferRequest.FromString(data))
        if self.refuses:
            trailers = (("grpc-retry-pushback-ms", "-1"), ("x-surgetank-reason", "retry_budget"))
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy", trailers)
        return self._piece("w w w w", 4).SerializeToString()

    async def stream(
        self, messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> AsyncIterator[bytes]:
        async for data in messages:
            self.seen.append(pb.ModelInferRequest.FromString(data))
            if self.refuses:
                yield pb.ModelStreamInferResponse(error_message="busy").SerializeToString()
                continue
            for text in ("w", " w w", " w", ""):
                piece = self._piece(text, text.count("w"))
                yield pb.ModelStreamInferResponse(infer_response=piece).SerializeToString()

    def _piece(self, text: str, tokens: int) -> pb.ModelInferResponse:
        response = pb.ModelInferResponse()
        output = response.outputs.add(name="text_output")
        output.contents.bytes_contents.append(text.encode())
        response.outputs.add(name="num_input_tokens").contents.uint_contents.append(11)
        response.outputs.add(name="num_output_tokens").contents.uint_contents.append(tokens)
        return response


@pytest.fixture
async def kserve() -> AsyncIterator[tuple[PlayedKServe, str]]:
    played, server = PlayedKServe(), grpc.aio.server()
    handlers = {
        "ModelInfer": grpc.unary_unary_rpc_method_handler(played.infer),
        "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(played.stream),
    }
    service = grpc.method_handlers_generic_handler("inference.GRPCInferenceService", handlers)
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield played, f"127.0.0.1:{port}"
    await server.stop(None)


async def test_grpc_gives_whole_answers_and_streams(kserve: tuple[PlayedKServe, str]) -> None:
    played, address = kserve
    whole, streamed = (kind(address, "m", "key", 20.0) for kind in (Unary, Streamed))
    try:
        one = await whole.ask(CALL, "a b c")
        many = await streamed.ask(CALL, "a b c")
    finally:
        await asyncio.gather(whole.close(), streamed.close())
    assert (one.whole, one.error, one.prompt_tokens, one.output_tokens) == (True, "", 11, 4)
    assert (many.whole, many.error, many.prompt_tokens, many.output_tokens) == (False, "", 11, 4)
    assert len(many.times) == 3
    names = [[each.name for each in request.inputs] for request in played.seen]
    assert "stream" not in names[0]
    assert "stream" in names[1]
    assert "exclude_input_in_output" not in names[1]


async def test_grpc_refusals_keep_their_reason(kserve: tuple[PlayedKServe, str]) -> None:
    played, address = kserve
    played.refuses = True
    whole, streamed = (kind(address, "m", "key", 20.0) for kind in (Unary, Streamed))
    try:
        one = await whole.ask(CALL, "a b c")
        many = await streamed.ask(CALL, "a b c")
    finally:
        await asyncio.gather(whole.close(), streamed.close())
    assert (one.error, one.refusal) == ("RESOURCE_EXHAUSTED", "retry_budget")
    assert (many.error, many.times) == ("error in the stream", [])
