"""ModelInfer and the methods about models, over a real connection with plain grpc.aio."""

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import grpc
import msgspec
import pytest
from tests.admission.doors.grpc.rig import (
    ask,
    elements,
    ended,
    refusal_of,
    serve,
    texts,
    trailer,
    until,
)
from tests.fakes import FakeDesk

from surgetank.admission.doors.grpc import inference_pb2 as pb
from surgetank.admission.outcome import Refusal
from surgetank.telemetry.clock import ManualClock, SystemClock
from surgetank.telemetry.vocabulary import Outcome, Priority, Reason

FULL = Refusal(
    Outcome.OVERLOAD, Reason.QUEUE_REQUESTS, "the queue is full", 256, 256, "queue_requests", 0.3
)


async def test_plain_answer() -> None:
    async with serve() as rig:
        response = await rig.infer(
            ask("hello ", request_id="7", return_finish_reason=True, return_num_input_tokens=True)
        )
        assert (response.id, response.model_name) == ("7", "tiny")
        assert texts(response) == ["hello bcd"]
        assert texts(response, "finish_reason") == ["stop"]
        assert elements(response, "num_input_tokens") == [len(rig.desk.calls[0].ask.prompt)]
        assert "triton_final_response" not in response.parameters


async def test_what_reaches_the_desk() -> None:
    async with serve(clock=ManualClock(50.0)) as rig:
        request = ask(request_id="r-7", sampling={"n": 2, "stop": "x", "seed": "5"})
        request.parameters["timeout"].int64_param = 2_000_000
        request.parameters["priority"].uint64_param = 3
        metadata = (("x-request-id", "shared"), ("x-surgetank-attempt", "1"), ("a-bin", b"\0"))
        await rig.infer(request, metadata=metadata)
        (call,) = rig.desk.calls
        assert (call.ask.n, call.ask.stop, call.ask.sampling.seed) == (2, ("x",), 5)
        assert call.ask.prompt == call.served.codec.encode("hello")
        assert (call.ticket.id, call.ticket.door) == ("r-7", "grpc")
        assert call.ticket.priority is Priority.BATCH
        assert call.ticket.deadline == 2.0  # arrived at 0
        assert ("x-surgetank-attempt", "1") in rig.desk.headers[0]


async def test_a_request_cannot_raise_its_class_and_keeps_the_tighter_deadline() -> None:
    async with serve(clock=ManualClock(50.0)) as rig:
        request = ask()
        request.parameters["timeout"].int64_param = 3_600_000_000
        request.parameters["priority"].uint64_param = 1
        await rig.infer(request, timeout=20)
        ticket = rig.desk.tickets[0]
        assert ticket.priority is Priority.DEFAULT
        assert ticket.deadline is not None
        assert 50 < ticket.deadline < 80  # not an hour


@pytest.mark.parametrize("raw", [True, False])
async def test_answer_comes_in_the_requests_encoding(raw: bool) -> None:
    async with serve() as rig:
        response = await rig.infer(ask(raw=raw, exclude_input_in_output=True))
        assert bool(response.raw_output_contents) is raw
        assert texts(response) == ["bcd"]


async def test_long_prompts_are_tokenized_beside_the_event_loop() -> None:
    async with serve() as rig:
        text = "word " * 1000
        await rig.infer(ask(text))
        assert rig.desk.calls[0].ask.prompt == rig.desk.served.codec.encode(text)


@pytest.mark.parametrize(
    ("request_", "code", "reason"),
    [
        (ask(model="gpt"), "NOT_FOUND", "unknown_model"),
        (ask(stream=True), "INVALID_ARGUMENT", "bad_request"),
        (ask(""), "INVALID_ARGUMENT", "bad_request"),
        (ask("x" * 30_000), "INVALID_ARGUMENT", "never_fits_context"),
        (ask("x" * 50_000), "INVALID_ARGUMENT", "body_too_large"),
    ],
    ids=["unknown model", "stream", "no text", "too long", "too large"],
)
async def test_bad_requests_end_their_ticket_and_say_why(
    request_: pb.ModelInferRequest, code: str, reason: str
) -> None:
    async with serve(max_message_bytes=40_000) as rig:
        error = await refusal_of(rig.infer(request_))
        assert error.code().name == code
        assert trailer(error, "x-surgetank-reason") == reason
        assert trailer(error, "grpc-retry-pushback-ms") == "-1"
        assert not rig.desk.calls
        ((ticket, refusal),) = rig.desk.refused
        assert refusal.reason == reason
        assert ticket.id in (error.details() or "")


async def test_garbage_on_the_wire_is_invalid() -> None:
    async with serve() as rig:
        call = rig.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        error = await refusal_of(call(b"\xff\xff\xff"))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert rig.desk.refused[0][1].reason is Reason.BAD_REQUEST


async def test_refused_by_the_gate() -> None:
    desk = FakeDesk()
    desk.refuse_submit = FULL
    async with serve(desk) as rig:
        call = rig.channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer", pb.ModelInferRequest.SerializeToString
        )(ask(request_id="r-7"))
        error = await refusal_of(call)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert trailer(error, "grpc-retry-pushback-ms") == "300"
        assert trailer(error, "x-surgetank-reason") == "queue_requests"
        assert trailer(error, "grpc-status-details-bin")
        assert "request: r-7; retry after 300 ms" in (error.details() or "")
        assert not await call.initial_metadata()  # decided before: a client may still retry


async def test_a_wait_past_the_deadline_is_no_hint() -> None:
    desk = FakeDesk()
    desk.refuse_submit = msgspec.structs.replace(FULL, retry_after=60.0)
    async with serve(desk) as rig:
        error = await refusal_of(rig.infer(ask(), timeout=30))
        assert trailer(error, "grpc-retry-pushback-ms") == "-1"


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("retry_after", [0.0, 1e-9])
async def test_no_response_ever_carries_pushback_zero(reason: Reason, retry_after: float) -> None:
    desk = FakeDesk()
    desk.refuse_submit = Refusal(Outcome.OVERLOAD, reason, "busy", retry_after=retry_after)
    desk.hint = retry_after
    async with serve(desk) as rig:
        for request in (ask(), ask(model="gpt")):
            error = await refusal_of(rig.infer(request))
            assert trailer(error, "grpc-retry-pushback-ms") == "50"


async def test_grpcs_own_retry_follows_the_hint() -> None:
    """A client with a retry policy comes back after the pushback, marked as a retry."""
    desk = FakeDesk(script=[65])
    desk.refuse_submit = msgspec.structs.replace(FULL, retry_after=0.0)
    policy = {
        "name": [{}],
        "retryPolicy": {
            "maxAttempts": 3,
            "initialBackoff": "60s",
            "maxBackoff": "60s",
            "backoffMultiplier": 1,
            "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
        },
    }
    options = [("grpc.service_config", json.dumps({"methodConfig": [policy]}))]
    async with (
        serve(desk) as rig,
        grpc.aio.insecure_channel(f"127.0.0.1:{rig.port}", options=options) as channel,
    ):
        call = replace(rig, channel=channel).infer(ask(), timeout=30)
        answer = asyncio.ensure_future(call)
        await until(desk, lambda: len(desk.tickets) == 2)
        desk.refuse_submit = None
        assert texts(await answer) == ["hellob"]
        attempts = [dict(headers).get("grpc-previous-rpc-attempts") for headers in desk.headers]
        assert attempts[:2] == [None, "1"]


@pytest.mark.parametrize("patience", [None, 60])
async def test_client_gone_ends_the_request(patience: float | None) -> None:
    desk = FakeDesk()
    async with serve(desk, SystemClock()) as rig:
        call = asyncio.ensure_future(rig.infer(ask(), timeout=patience))
        await until(desk, lambda: len(desk.calls) == 1)
        call.cancel()
        await ended(desk)
        assert desk.calls[0].cancelled == (Outcome.CANCELLED, Reason.CLIENT_GONE)


@pytest.mark.parametrize(
    ("dispatched", "cancelled"),
    [
        (False, (Outcome.EXPIRED, Reason.DEADLINE_IN_QUEUE)),
        (True, (Outcome.DEADLINE, Reason.DEADLINE_IN_DECODE)),
    ],
)
async def test_deadline_passed(dispatched: bool, cancelled: tuple[Outcome, Reason]) -> None:
    desk = FakeDesk()
    async with serve(desk, SystemClock()) as rig:
        await rig.call("ServerLive", pb.ServerLiveRequest())  # connected: the time starts now
        call = asyncio.ensure_future(refusal_of(rig.infer(ask(), timeout=0.5)))
        await until(desk, lambda: len(desk.calls) == 1)
        ticket = desk.calls[0].ticket
        assert ticket.deadline is not None
        assert ticket.deadline - time.monotonic() < 1  # grpc rounds a timeout up
        ticket.dispatched_at = time.monotonic() if dispatched else None
        assert (await call).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await ended(desk)
        assert desk.calls[0].cancelled == cancelled


async def test_a_bug_is_internal_and_ends_the_ticket(caplog: pytest.LogCaptureFixture) -> None:
    desk = FakeDesk()
    desk.find = None  # type: ignore[method-assign, assignment]
    async with serve(desk) as rig:
        error = await refusal_of(rig.infer(ask()))
        assert error.code() is grpc.StatusCode.INTERNAL
        assert "NoneType" not in (error.details() or "")
        assert desk.tickets[0].outcome is Outcome.INTERNAL
    assert "failed in the gRPC door" in caplog.text


async def test_models_and_server_describe_themselves() -> None:
    async with serve() as rig:
        assert (await rig.call("ServerLive", pb.ServerLiveRequest())).live
        server = await rig.call("ServerMetadata", pb.ServerMetadataRequest())
        assert (server.name, "statistics" in server.extensions) == ("surgetank", True)
        model = await rig.call("ModelMetadata", pb.ModelMetadataRequest(name="default"))
        assert (model.name, model.versions) == ("default", ["1"])
        assert [(t.name, t.datatype, list(t.shape)) for t in model.inputs][:2] == [
            ("text_input", "BYTES", [1]),
            ("stream", "BOOL", [1]),
        ]
        assert [t.name for t in model.outputs] == [
            "text_output",
            "finish_reason",
            "cumulative_logprob",
            "logprobs",
            "num_input_tokens",
            "num_output_tokens",
        ]
        config = (await rig.call("ModelConfig", pb.ModelConfigRequest(name="tiny"))).config
        assert config.model_transaction_policy.decoupled
        assert [i.name for i in config.input if not i.optional] == ["text_input"]
        assert config.parameters["context_length"].string_value == "2048"
        index = await rig.call("RepositoryIndex", pb.RepositoryIndexRequest())
        assert [(m.name, m.state) for m in index.models] == [
            ("tiny", "READY"),
            ("default", "READY"),
        ]


async def test_readiness_follows_the_desk() -> None:
    async with serve() as rig:
        cases: list[tuple[str, Any]] = [
            ("ServerReady", pb.ServerReadyRequest()),
            ("ModelReady", pb.ModelReadyRequest(name="tiny", version="1")),
        ]
        assert [(await rig.call(*case)).ready for case in cases] == [True, True]
        unknown = pb.ModelReadyRequest(name="gpt"), pb.ModelReadyRequest(name="tiny", version="2")
        for request in unknown:
            assert not (await rig.call("ModelReady", request)).ready
        rig.desk.is_ready = False
        assert [(await rig.call(*case)).ready for case in cases] == [False, False]
        rig.desk.refuse_find = Refusal(Outcome.BACKEND_DOWN, Reason.ENGINE_LOST, "engine away")
        index = await rig.call("RepositoryIndex", pb.RepositoryIndexRequest())
        assert [(m.state, m.reason) for m in index.models] == [("UNAVAILABLE", "engine away")] * 2
        assert not (await rig.call("RepositoryIndex", pb.RepositoryIndexRequest(ready=True))).models
        error = await refusal_of(rig.call("ModelConfig", pb.ModelConfigRequest(name="tiny")))
        assert error.code() is grpc.StatusCode.UNAVAILABLE


async def test_statistics_count_what_happened() -> None:
    desk = FakeDesk(script=[65])
    clock = ManualClock()
    async with serve(desk, clock) as rig:
        clock.advance(2.0)  # the fake's tickets arrive at 0
        await rig.infer(ask())
        desk.refuse_submit = FULL
        await refusal_of(rig.infer(ask(model="default")))
        await refusal_of(rig.infer(ask(model="gpt")))
        request = pb.ModelStatisticsRequest(name="tiny")
        (stats,) = (await rig.call("ModelStatistics", request)).model_stats
        assert (stats.name, stats.inference_count) == ("tiny", 1)
        success, fail = stats.inference_stats.success, stats.inference_stats.fail
        assert (success.count, success.ns, fail.count) == (1, 2_000_000_000, 1)
        everything = await rig.call("ModelStatistics", pb.ModelStatisticsRequest())
        assert [s.name for s in everything.model_stats] == ["tiny"]
        missing = rig.call("ModelStatistics", pb.ModelStatisticsRequest(name="gpt"))
        assert (await refusal_of(missing)).code() is grpc.StatusCode.NOT_FOUND


async def test_what_is_not_served_is_unimplemented() -> None:
    async with serve() as rig:
        call = rig.channel.unary_unary("/inference.GRPCInferenceService/RepositoryModelLoad")
        assert (await refusal_of(call(b""))).code() is grpc.StatusCode.UNIMPLEMENTED
