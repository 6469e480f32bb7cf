"""vLLM's own gRPC server behind the real product: found, asked, left, and refused by."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from tests.admission.doors.grpc.rig import refusal_of
from tests.admission.doors.vllm.rig import ask
from tests.e2e.foreign.engines import VLLM_GRPC, Foreign
from tests.e2e.running import PATIENCE, Running

from surgetank.engine.model.locate import default_model
from surgetank.engine.protocols import vllm_engine_pb2 as pb

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(900)]

SERVICE = "/vllm.grpc.engine.VllmEngine"
PROMPT = [504, 6376, 314]  # "The sky is"


class GrpcForeign(Foreign):
    """It listens for gRPC alone."""

    @property
    def address(self) -> str:
        return self.url.removeprefix("http://")

    def _serves(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "engine.log").read_text()[-3000:]
        channel: Any  # grpc-stubs demand serializers that grpc does not
        with grpc.insecure_channel(self.address) as channel:
            check = channel.unary_unary(f"{SERVICE}/HealthCheck")
            try:
                return pb.HealthCheckResponse.FromString(check(b"", timeout=5.0)).healthy
            except grpc.RpcError:
                return False


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GrpcForeign, Running]]:
    if why := VLLM_GRPC.missing():
        pytest.skip(why)
    folder: Path = tmp_path_factory.mktemp("vllm-grpc")
    engine = GrpcForeign(VLLM_GRPC, default_model(), folder)
    try:
        engine.start()
        with Running(folder, "--backend", f"grpc://{engine.address}") as service:
            service.wait_for("ready")
            yield engine, service
    finally:
        engine.kill()


class Channel:
    """Who asks one of the two."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def generate(self, request: pb.GenerateRequest) -> Any:
        call = self._channel.unary_stream(
            f"{SERVICE}/Generate", None, pb.GenerateResponse.FromString
        )
        return call(request.SerializeToString())

    async def answer(self, request: pb.GenerateRequest) -> list[Any]:
        return [response async for response in self.generate(request)]

    async def running(self) -> int:
        data = await self._channel.unary_unary(f"{SERVICE}/GetLoads")(b"")
        return sum(load.num_running_reqs for load in pb.GetLoadsResponse.FromString(data).loads)

    async def until_running(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            for _ in itertools.count():
                if await self.running() == count:
                    return
                await asyncio.sleep(0.05)


@asynccontextmanager
async def to(address: str) -> AsyncIterator[Channel]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield Channel(channel)


def test_it_is_known_for_what_it_is(pair: tuple[GrpcForeign, Running]) -> None:
    _, service = pair
    (backend,) = httpx.get(f"{service.listeners['admin']}/backends").json()["backends"]
    assert (backend["maker"], backend["slots"], backend["model"]) == ("vllm-grpc", 4, "smollm2")
    assert backend["version"].startswith("0.")
    told = {each["signal"] for each in backend["signals"] if each["available"]}
    assert told == {"running", "waiting", "kv_used"}


@pytest.mark.parametrize("stream", [False, True])
async def test_answers_are_those_that_it_gives_itself(
    pair: tuple[GrpcForeign, Running], stream: bool
) -> None:
    engine, service = pair
    request = ask(PROMPT, stream=stream, max_tokens=12, temperature=0.0, ignore_eos=True)
    request.request_id = f"direct-{stream}"
    async with to(engine.address) as direct, to(service.listeners["grpc"]) as ours:
        expected = await direct.answer(request)
        request.request_id = f"passed-{stream}"
        passed = await ours.answer(request)
    assert tokens(passed) == tokens(expected)
    assert len(tokens(passed)) == 12
    assert [each.HasField("complete") for each in passed].count(True) == 1


async def test_a_client_that_leaves_takes_it_out_of_the_engine(
    pair: tuple[GrpcForeign, Running],
) -> None:
    engine, service = pair
    request = ask(PROMPT, stream=True, max_tokens=1500, ignore_eos=True, request_id="left")
    async with to(engine.address) as direct, to(service.listeners["grpc"]) as ours:
        call = ours.generate(request)
        assert (await call.read()).HasField("chunk")
        await direct.until_running(1)
        call.cancel()
        await direct.until_running(0)
    outcomes = service.status()["requests"]["outcomes"]
    assert outcomes["cancelled"] == 1


async def test_its_refusals_are_told_in_its_own_words(pair: tuple[GrpcForeign, Running]) -> None:
    engine, service = pair
    request = ask(PROMPT, max_tokens=4, logprobs=1000, request_id="wrong")
    async with to(engine.address) as direct, to(service.listeners["grpc"]) as ours:
        theirs = await refusal_of(direct.answer(request))
        told = await refusal_of(ours.answer(request))
    assert (told.code(), told.details()) == (theirs.code(), theirs.details())


def tokens(responses: list[Any]) -> list[int]:
    chunks = [token for each in responses for token in each.chunk.token_ids]
    return chunks or [token for each in responses for token in each.complete.output_ids]
