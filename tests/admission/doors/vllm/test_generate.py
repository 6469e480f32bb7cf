"""Generate over a real connection: answers, what reaches the desk, refusals, and every way out."""

import asyncio

import grpc
import pytest
from tests.admission.doors.grpc.rig import PATIENCE, ended, eventually, refusal_of, trailer
from tests.admission.doors.vllm.rig import ask, serve
from tests.fakes import FakeDesk

from surgetank.admission.outcome import Refusal
from surgetank.admission.refusals import barred
from surgetank.engine.protocols import vllm_engine_pb2 as pb
from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.vocabulary import FinishReason, Outcome, Reason

FULL = Refusal(
    Outcome.OVERLOAD, Reason.QUEUE_REQUESTS, "the queue is full", 256, 256, "queue_requests", 0.3
)
A, B, C = 65, 66, 67  # token ids of the script, which mean b, c and d


@pytest.fixture
def desk() -> FakeDesk:
    return FakeDesk(script=[A, B, C])


async def test_a_plain_answer_is_one_complete(desk: FakeDesk) -> None:
    async with serve(desk) as rig:
        (response,) = await rig.answer(ask([104, 101, 108]))
    complete = response.complete
    assert list(complete.output_ids) == [A, B, C]
    assert (complete.finish_reason, complete.completion_tokens) == ("stop", 3)
    assert complete.WhichOneof("matched_stop") is None


async def test_a_stream_is_chunks_and_a_complete(desk: FakeDesk) -> None:
    async with serve(desk) as rig:
        responses = await rig.answer(ask(stream=True, max_tokens=2))
    *chunks, last = responses
    assert [token for chunk in chunks for token in chunk.chunk.token_ids] == [A, B]
    assert sum(chunk.chunk.completion_tokens for chunk in chunks) == 2
    assert last.complete.finish_reason == "length"
    assert list(last.complete.output_ids) == list(chunks[-1].chunk.token_ids)


async def test_choices_are_told_apart(desk: FakeDesk) -> None:
    async with serve(desk) as rig:
        plain = await rig.answer(ask(n=2))
        streamed = await rig.answer(ask(n=2, stream=True))
    assert [(each.complete.index, list(each.complete.output_ids)) for each in plain] == [
        (0, [A, B, C]),
        (1, [A, B, C]),
    ]
    completes = [each.complete.index for each in streamed if each.HasField("complete")]
    assert sorted(completes) == [0, 1]


async def test_what_reaches_the_desk(desk: FakeDesk) -> None:
    request = ask([104, 101], request_id="r-7", n=2, stop=["x"], stop_token_ids=[3], seed=5)
    request.sampling_params.temperature = 0.0
    async with serve(desk, ManualClock(50.0)) as rig:
        await rig.answer(request, metadata=(("x-request-id", "other"),), timeout=20)
    (call,) = desk.calls
    assert (call.ask.prompt, call.ask.n, call.ask.stop) == ([104, 101], 2, ("x",))
    params = call.ask.sampling
    assert (params.temperature, params.top_p, params.seed) == (0.0, 1.0, 5)
    assert params.stop_token_ids == (3,)
    assert params.logprobs is None
    assert call.ticket.id == "r-7"
    assert call.ticket.route == "vllm.grpc.engine.VllmEngine/Generate"
    assert call.ticket.deadline is not None
    assert 60 < call.ticket.deadline <= 70.3


async def test_without_a_maximum_the_default_holds_and_the_context_ends_it(desk: FakeDesk) -> None:
    context = desk.served.card.context_length
    async with serve(desk, default_max_tokens=100) as rig:
        await rig.answer(ask())
        await rig.answer(ask([104] * (context - 7)))
    assert [call.ask.max_tokens for call in desk.calls] == [100, 7]


async def test_text_is_tokenised_here(desk: FakeDesk) -> None:
    async with serve(desk) as rig:
        await rig.answer(pb.GenerateRequest(text="hello"))
    assert desk.calls[0].ask.prompt == desk.served.codec.encode("hello")


async def test_log_probabilities(desk: FakeDesk) -> None:
    async with serve(desk) as rig:
        (plain,) = await rig.answer(ask(logprobs=0, max_tokens=2))
        (ranked,) = await rig.answer(ask(logprobs=2, max_tokens=2))
    told = plain.complete.output_logprobs
    assert (list(told.token_logprobs), list(told.token_ids)) == ([-0.5, -0.5], [A, B])
    assert not told.top_logprobs
    first = ranked.complete.output_logprobs.top_logprobs[0]
    assert (list(first.token_ids), list(first.values)) == ([A, A], [-0.5, -1.5])


async def test_what_ended_it_is_named() -> None:
    desk = FakeDesk()
    async with serve(desk) as rig:
        by_string = asyncio.ensure_future(rig.answer(ask(stop=["zz", "cd"])))
        await eventually(lambda: len(desk.calls) == 1)
        desk.calls[0].emit([A])
        desk.calls[0].emit([B])
        desk.calls[0].emit([C])
        desk.calls[0].end()
        by_id = asyncio.ensure_future(rig.answer(ask(stop_token_ids=[C])))
        await eventually(lambda: len(desk.calls) == 2)
        desk.calls[1].emit([A, C], finish=FinishReason.STOP)
        desk.calls[1].end()
        assert (await by_string)[0].complete.matched_stop_str == "cd"
        assert (await by_id)[0].complete.matched_token_id == C


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (ask([]), "input_ids is empty; allowed: at least one token id"),
        (ask([1, 999]), "input_ids holds 999; allowed: token ids 0 to"),
        (ask([104] * 3000), "request: 3000 tokens asked for; limit context_length is 2048"),
        (ask(None), "the request has no input; allowed: tokenized or text"),
        (ask(stop_token_ids=[999]), "stop_token_ids holds 999; allowed: token ids 0 to"),
        (ask(temperature=3.0), "temperature is '3.0'; allowed: a number from 0 to 2"),
        (ask(logprobs=-1), "logprobs is '-1'; allowed: a whole number from 0 to 20"),
        (ask(max_tokens=0), "max_tokens is '0'; allowed: a whole number from 1 to"),
        (ask(n=99999), "n is '99999'; allowed: a whole number from 1 to"),
        (ask(prompt_logprobs=1), "prompt_logprobs is not supported by this engine"),
        (ask(logit_bias={1: 2.0}), "logit_bias is not supported by this engine"),
        (ask(json_schema="{}"), "json_schema is not supported by this engine"),
        (
            pb.GenerateRequest(text="x", mm_inputs=pb.MultimodalInputs()),
            "mm_inputs is not supported by this engine",
        ),
        (pb.GenerateRequest(text="x", data_parallel_rank=1), "data_parallel_rank is 1; allowed: 0"),
        (pb.GenerateRequest(text=""), "text is empty; allowed: at least one token"),
        (ask(request_id="x" * 200), "request_id has 200 characters; allowed: 128"),
    ],
)
async def test_what_is_wrong_is_named(
    desk: FakeDesk, request_: pb.GenerateRequest, sentence: str
) -> None:
    async with serve(desk) as rig:
        error = await refusal_of(rig.answer(request_))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert sentence in (error.details() or "")
    assert trailer(error, "grpc-retry-pushback-ms") == "-1"
    assert [refusal.outcome for _, refusal in desk.refused] == [Outcome.INVALID]


async def test_bytes_that_are_no_request(desk: FakeDesk) -> None:
    async with serve(desk, max_message_bytes=1024) as rig:
        for data, sentence in (
            (b"\xff\xff", "is not a GenerateRequest"),
            (b"\x1a" + b"x" * 1100, "is 1101 bytes; allowed: 1024"),
        ):
            call = rig.channel.unary_stream("/vllm.grpc.engine.VllmEngine/Generate")(data)
            error = await refusal_of(call.read())
            assert sentence in (error.details() or "")


async def test_a_refusal_has_status_reason_and_hint(desk: FakeDesk) -> None:
    desk.refuse_submit = FULL
    async with serve(desk) as rig:
        call = rig.generate(ask(stream=True))
        error = await refusal_of(call.read())
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert trailer(error, "grpc-retry-pushback-ms") == "300"
    assert trailer(error, "x-surgetank-reason") == "queue_requests"
    assert "[reason: queue_requests; request: request-0; retry after 300 ms]" in (
        error.details() or ""
    )
    assert not error.initial_metadata()  # trailers only: a gateway may still choose its status


async def test_keys_hold_here_too(desk: FakeDesk) -> None:
    desk.bar = barred("an API key is needed")
    async with serve(desk) as rig:
        error = await refusal_of(rig.answer(ask()))
    assert error.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_without_an_engine(desk: FakeDesk) -> None:
    desk.refuse_find = Refusal(Outcome.BACKEND_DOWN, Reason.ENGINE_LOST, "no engine")
    async with serve(desk) as rig:
        error = await refusal_of(rig.answer(ask()))
    assert error.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_failure_amid_a_stream_is_its_status() -> None:
    desk = FakeDesk()
    async with serve(desk) as rig:
        call = rig.generate(ask(stream=True))
        await eventually(lambda: len(desk.calls) == 1)
        desk.calls[0].emit([A])
        assert list((await call.read()).chunk.token_ids) == [A]
        desk.calls[0].end(Refusal(Outcome.BACKEND_DOWN, Reason.ENGINE_LOST, "it died"))
        error = await refusal_of(call.read())
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert trailer(error, "x-surgetank-reason") == "engine_lost"


async def test_a_client_that_leaves_ends_it() -> None:
    desk = FakeDesk()
    async with serve(desk) as rig:
        call = rig.generate(ask(stream=True))
        await eventually(lambda: len(desk.calls) == 1)
        call.cancel()
        await ended(desk)
    assert desk.calls[0].cancelled == (Outcome.CANCELLED, Reason.CLIENT_GONE)


async def test_a_deadline_that_passes_ends_it() -> None:
    desk = FakeDesk()
    clock = ManualClock()
    async with serve(desk, clock) as rig:
        call = asyncio.ensure_future(rig.answer(ask(), timeout=0.2))
        await eventually(lambda: len(desk.calls) == 1)
        clock.advance(0.2)
        assert (await refusal_of(call)).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await ended(desk)
    assert desk.calls[0].cancelled == (Outcome.EXPIRED, Reason.DEADLINE_IN_QUEUE)


async def test_tokens_that_nobody_reads_end_it() -> None:
    desk = FakeDesk()
    async with serve(desk, max_unread_tokens=1) as rig:
        call = rig.generate(ask(stream=True))
        await eventually(lambda: len(desk.calls) == 1)
        desk.calls[0].emit([A, B, C])
        await ended(desk)
        async with asyncio.timeout(PATIENCE):
            assert await call.code() is grpc.StatusCode.CANCELLED
    assert desk.calls[0].cancelled == (Outcome.CANCELLED, Reason.SLOW_READER)


@pytest.mark.parametrize("stream", [True, False])
async def test_abort_ends_it_with_what_there_is(stream: bool) -> None:
    desk = FakeDesk()
    async with serve(desk) as rig:
        call = rig.generate(ask(request_id="r-1", stream=stream, n=2))
        await eventually(lambda: len(desk.calls) == 1)
        desk.calls[0].emit([A], index=0, finish=FinishReason.LENGTH)
        desk.calls[0].emit([B], index=1)
        await rig.call("Abort", pb.AbortRequest(request_ids=["unknown", "r-1"]))
        responses = [response async for response in call]
        assert await call.code() is grpc.StatusCode.OK
    assert desk.calls[0].cancelled == (Outcome.CANCELLED, Reason.CLIENT_GONE)
    completes = [each.complete for each in responses if each.HasField("complete")]
    assert [(each.index, each.finish_reason) for each in completes] == [(0, "length"), (1, "abort")]
    assert list(completes[1].output_ids) == ([] if stream else [B])


async def test_no_id_is_nobodys() -> None:
    desk = FakeDesk()
    async with serve(desk) as rig:
        call = rig.generate(ask(request_id=""))
        await eventually(lambda: len(desk.calls) == 1)
        await rig.call("Abort", pb.AbortRequest(request_ids=[""]))
        assert desk.calls[0].cancelled is None
        call.cancel()


async def test_nobody_aborts_what_others_asked() -> None:
    desk = FakeDesk()
    async with serve(desk) as rig:
        mine = (("authorization", "Bearer mine"),)
        call = rig.generate(ask(request_id="r-1"), metadata=mine)
        await eventually(lambda: len(desk.calls) == 1)
        abort = pb.AbortRequest(request_ids=["r-1"])
        await rig.call("Abort", abort, metadata=(("authorization", "Bearer theirs"),))
        assert desk.calls[0].ended is None
        await rig.call("Abort", abort, metadata=mine)
        assert (await call.read()).complete.finish_reason == "abort"
