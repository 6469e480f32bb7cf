"""The engine protocol before an engine that speaks it: a door of ours, before another of ours."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc
import pytest
from tests.admission.doors.grpc.rig import PATIENCE, ended, eventually, refusal_of, trailer
from tests.admission.doors.vllm.rig import Rig, ask, before, serve
from tests.engine.backends.remote.rig import Seen
from tests.fakes import FakeDesk

from surgetank.admission.desk import AnyDesk, FrontDesk
from surgetank.admission.doors.grpc.config import GrpcConfig
from surgetank.admission.doors.grpc.server import GrpcDoor
from surgetank.admission.doors.vllm.relayed import Messages, RelayedEngine, shortened
from surgetank.admission.gate import GateConfig
from surgetank.admission.outcome import Refusal
from surgetank.admission.relay import RelayAdapter, RelayEngine
from surgetank.admission.routing.affinity import Prefix, prefix_key
from surgetank.engine.backends.remote.backend import RemoteBackend
from surgetank.engine.backends.remote.config import BackendConfig
from surgetank.engine.backends.remote.grpc_engine import GrpcEngine
from surgetank.engine.protocols import smg_common_pb2 as common
from surgetank.engine.protocols import vllm_engine_pb2 as pb
from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.registry import Registry
from surgetank.telemetry.vocabulary import FinishReason, Outcome, Reason

A, B, C = 65, 66, 67
GENERATE = "/vllm.grpc.engine.VllmEngine/Generate"


@dataclass
class Relayed:
    """The engine as its own door shows it, and the door before it."""

    engine: FakeDesk
    inner: Rig
    outer: Rig
    desk: AnyDesk
    backend: RemoteBackend

    def last(self) -> tuple[Outcome | None, Reason, int]:
        """How the newest request ended, and its output tokens."""
        ticket = self.desk.recent()[-1].ticket
        return ticket.outcome, ticket.reason, ticket.output_tokens


@pytest.fixture
async def relayed(request: pytest.FixtureRequest) -> AsyncIterator[Relayed]:
    """Its parameter: the engine's script of tokens; without one the test plays it."""
    engine, clock = FakeDesk(script=getattr(request, "param", None)), ManualClock()
    async with serve(engine, clock) as inner:
        config = BackendConfig(url=f"grpc://127.0.0.1:{inner.port}")
        spoken = GrpcEngine(config, clock)
        backend = RemoteBackend(config, clock, spoken, spoken, look_every=0.01)
        adapter = RelayAdapter(RelayEngine(backend))
        adapter.sizes.beginning = 8  # as if there were several
        desk: AnyDesk = FrontDesk(
            adapter=adapter,
            recorder=Recorder(Registry(Process.SIDECAR)),
            clock=clock,
            rng=random.Random(1),
            call_later=asyncio.get_running_loop().call_later,
            config=GateConfig(in_flight_seqs=2),
        )
        seen = Seen()
        backend.watch(desk.engines.watchers[0])
        backend.watch(seen)
        backend.start()
        await seen.until(1)
        async with before(
            desk,
            desk.snapshot,
            clock,
            lambda shared, look: RelayedEngine(shared, look, [spoken], adapter.sizes),
        ) as outer:
            yield Relayed(engine, inner, outer, desk, backend)
        await backend.aclose()


scripted = pytest.mark.parametrize("relayed", [[A, B, C]], indirect=True)


async def raw(rig: Rig, request: pb.GenerateRequest) -> list[bytes]:
    """The bytes of an answer's messages."""
    call = rig.channel.unary_stream(GENERATE)(request.SerializeToString())
    return [message async for message in call]


@scripted
@pytest.mark.parametrize("stream", [True, False])
async def test_answers_pass_byte_for_byte_and_are_counted(relayed: Relayed, stream: bool) -> None:
    request = ask([104, 101], stream=stream, logprobs=1)
    assert await raw(relayed.outer, request) == await raw(relayed.inner, request)
    assert relayed.last() == (Outcome.OK, Reason.NONE, 3)
    ticket = relayed.desk.recent()[-1].ticket
    assert ticket.prompt_tokens == 2
    assert ticket.prefix == Prefix(prefix_key("104 101"), 2)


@scripted
async def test_requests_pass_with_their_id_and_trace(relayed: Relayed) -> None:
    await relayed.outer.answer(
        ask(request_id="r-7", max_tokens=2),
        metadata=(("x-surgetank-priority", "batch"), ("x-other", "stays")),
    )
    headers = dict(relayed.engine.headers[-1])
    assert headers["x-request-id"] == "r-7"
    assert headers["x-other"] == "stays"
    assert "x-surgetank-priority" not in headers
    assert relayed.engine.calls[-1].ask.max_tokens == 2


@scripted
async def test_it_is_described_by_the_engine_itself(relayed: Relayed) -> None:
    for method, kind in (
        ("GetModelInfo", pb.GetModelInfoRequest),
        ("GetServerInfo", pb.GetServerInfoRequest),
    ):
        told = await relayed.outer.call(method, kind())
        assert told == await relayed.inner.call(method, kind())
    call = relayed.outer.stream(
        "GetTokenizer", common.GetTokenizerRequest(), common.GetTokenizerChunk
    )
    assert [chunk async for chunk in call][-1].sha256
    card = relayed.backend.card
    assert card is not None
    assert (card.name, card.max_num_seqs, card.context_length) == ("tiny", 8, 2048)
    assert relayed.backend.vitals.kind == "vllm-grpc"


@scripted
async def test_what_it_refuses_is_told_in_its_own_words(relayed: Relayed) -> None:
    request = ask([999])
    theirs = await refusal_of(relayed.inner.answer(request))
    ours = await refusal_of(relayed.outer.answer(request, metadata=(("x-request-id", "r"),)))
    assert ours.code() is theirs.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "input_ids holds 999; allowed: token ids 0 to 260" in (ours.details() or "")
    assert trailer(ours, "grpc-retry-pushback-ms") == "-1"
    assert relayed.last()[:2] == (Outcome.INVALID, Reason.ENGINE_REFUSED)


@scripted
async def test_a_full_engine_pushes_back_with_our_hint(relayed: Relayed) -> None:
    relayed.engine.refuse_submit = Refusal(Outcome.OVERLOAD, Reason.QUEUE_REQUESTS, "full")
    error = await refusal_of(relayed.outer.answer(ask()))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert trailer(error, "x-surgetank-reason") == "engine_full"
    assert int(str(trailer(error, "grpc-retry-pushback-ms"))) >= 50
    assert relayed.backend.vitals.pushbacks == 1


async def test_a_client_that_leaves_takes_it_out_of_the_engine(relayed: Relayed) -> None:
    call = relayed.outer.generate(ask(stream=True))
    await eventually(lambda: len(relayed.engine.calls) == 1)
    relayed.engine.calls[0].emit([A])
    assert list((await call.read()).chunk.token_ids) == [A]
    call.cancel()
    await ended(relayed.engine)
    assert relayed.engine.calls[0].cancelled == (Outcome.CANCELLED, Reason.CLIENT_GONE)
    await eventually(lambda: relayed.last() == (Outcome.CANCELLED, Reason.CLIENT_GONE, 1))


async def test_abort_reaches_the_engine(relayed: Relayed) -> None:
    call = relayed.outer.generate(ask(request_id="r-1"))
    await eventually(lambda: len(relayed.engine.calls) == 1)
    await relayed.outer.call("Abort", pb.AbortRequest(request_ids=["r-1"]))
    async with asyncio.timeout(PATIENCE):
        assert await call.code() is grpc.StatusCode.CANCELLED
    await ended(relayed.engine)


async def test_an_engine_that_dies_amid_an_answer_and_comes_back(relayed: Relayed) -> None:
    call = relayed.outer.generate(ask(stream=True))
    await eventually(lambda: len(relayed.engine.calls) == 1)
    relayed.engine.calls[0].emit([A])
    await call.read()
    await relayed.inner.door.stop(0)
    error = await refusal_of(call.read())
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert trailer(error, "x-surgetank-reason") == "engine_lost"
    await eventually(lambda: relayed.backend.card is None)
    error = await refusal_of(relayed.outer.call("GetModelInfo", pb.GetModelInfoRequest()))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    look = relayed.desk.snapshot
    again = GrpcDoor(GrpcConfig(port=relayed.inner.port), relayed.engine, ManualClock(), look=look)
    await again.start()
    await eventually(lambda: relayed.backend.card is not None)
    await again.stop(0)


async def test_an_answer_that_the_engine_breaks_off_says_why(relayed: Relayed) -> None:
    call = relayed.outer.generate(ask(stream=True))
    await eventually(lambda: len(relayed.engine.calls) == 1)
    relayed.engine.calls[0].emit([A])
    await call.read()
    relayed.engine.calls[0].end(Refusal(Outcome.OVERLOAD, Reason.OUT_OF_MEMORY, "no memory left"))
    error = await refusal_of(call.read())
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert "RESOURCE_EXHAUSTED: no memory left" in (error.details() or "")


async def test_its_load_is_ours_to_see(relayed: Relayed) -> None:
    relayed.outer.generate(ask(stream=True))
    await eventually(lambda: len(relayed.engine.calls) == 1)
    await eventually(lambda: relayed.backend.signals.at is not None)  # it was looked at
    signals = relayed.backend.signals
    assert (signals.running, signals.waiting, signals.kv_used) == (0.0, 0.0, 0.0)
    (load,) = (await relayed.outer.call("GetLoads", pb.GetLoadsRequest())).loads
    assert (load.num_running_reqs, load.max_running_requests) == (1, 2)
    relayed.engine.calls[0].emit([A], finish=FinishReason.STOP)
    relayed.engine.calls[0].end()


async def test_messages_that_nobody_reads_hold_the_engine_back() -> None:
    cut = asyncio.Event()
    messages = Messages(cut.set, patience=0.01)
    held: list[bool] = []
    messages.hold = held.append
    for _ in range(70):
        messages.on_data(b"x", True)
    assert held == [True]
    taken = [await messages.take() for _ in range(69)]
    assert held == [True]
    async with asyncio.timeout(PATIENCE):
        await cut.wait()  # the last one was not taken in time
    assert [*taken, await messages.take()] == 70 * [b"x"]
    assert held == [True, False]


def test_a_brown_outs_cut_leaves_the_rest_as_it_is() -> None:
    unknown = b"\xfa\x07\x03new"  # field 127, which a later version may have
    body = ask([1, 2], max_tokens=50, seed=3).SerializeToString() + unknown
    cut = shortened(body, 8)
    request = pb.GenerateRequest.FromString(cut)
    assert (request.sampling_params.max_tokens, request.sampling_params.seed) == (8, 3)
    assert unknown in cut
