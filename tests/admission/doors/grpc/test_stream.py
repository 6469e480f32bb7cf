"""ModelStreamInfer: many requests at once, ends and errors of one that leave the others alone."""

import asyncio
from typing import Any

import grpc
import pytest
from tests.admission.doors.grpc.rig import (
    EOF,
    PATIENCE,
    Rig,
    ask,
    elements,
    ended,
    eventually,
    refusal_of,
    serve,
    texts,
    trailer,
    until,
)
from tests.fakes import FakeDesk

from surgetank.admission.api import Delta
from surgetank.admission.doors.grpc import inference_pb2 as pb
from surgetank.admission.outcome import Refusal
from surgetank.telemetry.vocabulary import FinishReason, Outcome, Reason


async def drain(stream: Any) -> list[pb.ModelStreamInferResponse]:
    """Everything until the stream ends."""
    responses = []
    async with asyncio.timeout(PATIENCE):
        while (response := await stream.read()) is not EOF:
            responses.append(response)
    return responses


def text_of(responses: list[pb.ModelStreamInferResponse], request_id: str) -> str:
    """All the text of one request."""
    mine = [r.infer_response for r in responses if r.infer_response.id == request_id]
    return "".join(texts(response)[0] for response in mine if response.outputs)


async def test_streamed_text_adds_up_and_half_close_drains() -> None:
    async with serve(FakeDesk(script=list(range(65, 85)))) as rig:
        stream = rig.stream()
        flags: dict[str, Any] = {"stream": True, "return_num_output_tokens": True}
        await stream.write(ask(request_id="a", sampling={"max_tokens": 99}, **flags))
        await stream.done_writing()
        responses = await drain(stream)
        assert await stream.code() is grpc.StatusCode.OK
        assert text_of(responses, "a") == rig.desk.served.codec.token(65) + "cdefghijklmnopqrstu"
        counts = [elements(r.infer_response, "num_output_tokens")[0] for r in responses]
        assert sum(counts) == 20
        marks = [r.infer_response.parameters["triton_final_response"].bool_param for r in responses]
        assert marks == [False] * (len(marks) - 1) + [True]


async def test_a_request_that_does_not_stream_has_one_response() -> None:
    async with serve() as rig:
        stream = rig.stream()
        request = ask("hi ", request_id="a")
        request.parameters["triton_enable_empty_final_response"].bool_param = True
        await stream.write(request)
        await stream.done_writing()
        whole, final = [r.infer_response for r in await drain(stream)]
        assert texts(whole) == ["hi bcd"]
        assert not whole.parameters["triton_final_response"].bool_param
        assert (final.id, len(final.outputs)) == ("a", 0)
        assert final.parameters["triton_final_response"].bool_param


async def test_requests_of_one_stream_run_together() -> None:
    desk = FakeDesk()
    async with serve(desk) as rig:
        stream = rig.stream(metadata=(("x-request-id", "shared"),))
        for name in ("a", "b", "c"):
            await stream.write(ask(request_id=name, stream=True))
        await until(desk, lambda: len(desk.calls) == 3)
        assert [call.ticket.id for call in desk.calls] == ["a", "b", "c"]
        for position in (2, 0, 1):  # in an order of their own
            desk.calls[position].emit([65 + position], finish=FinishReason.STOP)
            desk.calls[position].end()
            response = await stream.read()
            assert response.infer_response.id == "abc"[position]
            assert texts(response.infer_response) == ["bcd"[position]]


async def test_a_refusal_is_a_message_and_the_stream_goes_on() -> None:
    desk = FakeDesk(script=[65])
    desk.refuse_submit = Refusal(
        Outcome.OVERLOAD, Reason.KV_PRESSURE, "KV cache full", retry_after=0.25
    )
    async with serve(desk) as rig:
        stream = rig.stream()
        await stream.write(ask(request_id="a", stream=True))
        refused = await stream.read()
        assert refused.error_message == (
            "KV cache full [reason: kv_pressure; request: a; retry after 250 ms]"
        )
        assert refused.infer_response.id == "a"
        desk.refuse_submit = None
        await stream.write(ask(request_id="b", model="gpt", stream=True))
        assert "reason: unknown_model; request: b" in (await stream.read()).error_message
        await stream.write(ask(request_id="c", stream=True))
        assert texts((await stream.read()).infer_response) == ["b"]
        await stream.done_writing()
        assert await drain(stream) == []
        assert await stream.code() is grpc.StatusCode.OK


async def test_an_end_after_some_output_is_told_in_the_stream() -> None:
    desk = FakeDesk()
    async with serve(desk) as rig:
        stream = rig.stream()
        await stream.write(ask(request_id="a", stream=True))
        await until(desk, lambda: len(desk.calls) == 1)
        desk.calls[0].emit([65])
        assert texts((await stream.read()).infer_response) == ["b"]
        desk.calls[0].end(Refusal(Outcome.BACKEND_DOWN, Reason.ENGINE_LOST, "the engine died"))
        assert "the engine died [reason: engine_lost" in (await stream.read()).error_message


async def test_one_request_too_many_on_a_stream() -> None:
    desk = FakeDesk()
    async with serve(desk, max_requests_per_stream=2) as rig:
        stream = rig.stream()
        for name in ("a", "b", "c"):
            await stream.write(ask(request_id=name, stream=True))
        refused = await stream.read()
        assert refused.infer_response.id == "c"
        assert "2 requests in flight; allowed: 2 [reason: queue_requests" in refused.error_message
        desk.calls[0].emit([65], finish=FinishReason.STOP)
        desk.calls[0].end()
        await stream.read()
        await stream.write(ask(request_id="d", stream=True))
        await until(desk, lambda: len(desk.calls) == 3)
        assert len(desk.tickets) == 4
        assert [refusal.reason for _, refusal in desk.refused] == [Reason.QUEUE_REQUESTS]


async def test_one_stream_too_many() -> None:
    desk = FakeDesk()
    async with serve(desk, max_streams=1) as rig:
        first = rig.stream()
        await first.write(ask(request_id="a", stream=True))
        await until(desk, lambda: len(desk.calls) == 1)
        error = await refusal_of(rig.stream().read())
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert trailer(error, "x-surgetank-reason") == "queue_requests"
        assert "1 streams are open; allowed: 1" in (error.details() or "")


async def test_cancel_at_the_third_token_ends_every_request_of_the_stream() -> None:
    desk = FakeDesk()
    async with serve(desk) as rig:
        before = len(asyncio.all_tasks())
        stream = rig.stream()
        await stream.write(ask(request_id="a", stream=True))
        await stream.write(ask(request_id="b"))
        await until(desk, lambda: len(desk.calls) == 2)
        for token in (65, 66, 67):
            desk.calls[0].emit([token])
            await stream.read()
        stream.cancel()
        await ended(desk, 2)
        for call in desk.calls:
            assert call.cancelled == (Outcome.CANCELLED, Reason.CLIENT_GONE)
        await eventually(lambda: len(asyncio.all_tasks()) <= before)  # and nothing stays behind


async def test_tokens_after_the_client_left_are_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async with serve(FakeDesk(script=[65] * 500)) as rig:
        for taken in range(8):
            stream = rig.stream()
            sampling = {"max_tokens": 500}
            for name in ("a", "b", "c"):
                await stream.write(ask(request_id=name, stream=True, sampling=sampling))
            for _ in range(taken):
                await stream.read()
            stream.cancel()
        await ended(rig.desk, len(rig.desk.tickets))
    assert caplog.text == ""


async def test_a_slow_reader_is_cut_off() -> None:
    desk = FakeDesk()
    async with serve(desk, max_unread_tokens=50) as rig:
        stream = rig.stream()
        await stream.write(ask(request_id="a", stream=True, sampling={"max_tokens": 1000}))
        await stream.write(ask(request_id="b"))
        await until(desk, lambda: len(desk.calls) == 2)
        for _ in range(60):  # in one turn of the event loop: nobody can have read it
            desk.calls[0].emit([65])
        await ended(desk, 2)
        for call in desk.calls:
            assert call.cancelled == (Outcome.CANCELLED, Reason.SLOW_READER)
        error = await refusal_of(drain(stream))
        assert trailer(error, "x-surgetank-reason") == "slow_reader"
        assert "were not read in time" in (error.details() or "")


async def test_a_client_that_never_reads_cannot_hold_its_handler() -> None:
    desk = FakeDesk()
    async with serve(desk, max_unread_tokens=3, max_streams=1) as rig:
        stuck = rig.stream()
        await stuck.write(ask(request_id="a", stream=True))
        await until(desk, lambda: len(desk.calls) == 1)
        call = desk.calls[0]
        while call.ended is None:  # far more than flow control lets through
            call.listener.on_delta(Delta(0, "x" * 1_000_000, [65], None, None))
            await asyncio.sleep(0.001)
        assert call.cancelled == (Outcome.CANCELLED, Reason.SLOW_READER)
        desk.script = [65]
        async with asyncio.timeout(PATIENCE):  # until its place, the only one, is free again
            while not await answered(rig):
                continue


async def answered(rig: Rig) -> bool:
    """Whether a new stream is taken and served."""
    stream = rig.stream()
    try:
        await stream.write(ask(request_id="b", stream=True))
        return (await stream.read()) is not EOF
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return False


async def test_stopping_finishes_what_runs_and_takes_no_more() -> None:
    desk = FakeDesk()
    async with serve(desk) as rig:
        stream = rig.stream()
        await stream.write(ask(request_id="a", stream=True))
        await until(desk, lambda: len(desk.calls) == 1)
        stopping = asyncio.ensure_future(rig.door.stop(grace=PATIENCE))
        await asyncio.sleep(0)
        desk.calls[0].emit([65], finish=FinishReason.STOP)
        desk.calls[0].end()
        assert text_of(await drain(stream), "a") == "b"  # the server ends it: we never half-closed
        async with asyncio.timeout(5):
            await stopping


async def test_stopping_ends_what_does_not_finish_in_time() -> None:
    desk = FakeDesk()
    async with serve(desk) as rig:
        stream = rig.stream()
        await stream.write(ask(request_id="a", stream=True))
        await until(desk, lambda: len(desk.calls) == 1)
        async with asyncio.timeout(5):
            await rig.door.stop(grace=0.05)
        await ended(desk)
        assert desk.calls[0].cancelled == (Outcome.DRAINING, Reason.OPERATOR)
