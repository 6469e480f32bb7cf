"""Inferences end with our load where that is wanted.

The -bin trailer is not seen here: gRPC's clients keep it to themselves, for their load balancers.
"""

from typing import Any

import pytest
from tests.admission.doors.grpc.rig import ask as ask_kserve
from tests.admission.doors.vllm.rig import Rig, ask, serve
from tests.fakes import FakeDesk

from surgetank.admission.doors.grpc import inference_pb2 as kserve
from surgetank.admission.outcome import Refusal
from surgetank.telemetry.vocabulary import Outcome, Reason

HEADER = "endpoint-load-metrics"
IDLE = "named_metrics.num_requests_waiting=0,named_metrics.num_requests_running=0"
FULL = Refusal(Outcome.OVERLOAD, Reason.QUEUE_REQUESTS, "the queue is full")
JSON = ((f"{HEADER}-format", "JSON"),)


def infer(rig: Rig) -> Any:
    return rig.channel.unary_unary(
        "/inference.GRPCInferenceService/ModelInfer",
        kserve.ModelInferRequest.SerializeToString,
        kserve.ModelInferResponse.FromString,
    )(ask_kserve(), metadata=JSON)


async def trailers(call: Any) -> dict[str, Any]:
    return dict(await call.trailing_metadata())


async def test_both_protocols_tell_it() -> None:
    async with serve(FakeDesk(script=[65]), load_trailers=True) as rig:
        call = rig.generate(ask())
        assert [response.HasField("complete") async for response in call] == [True]
        told = await trailers(call)
        assert told[HEADER] == f"TEXT {IDLE}"
        assert (await trailers(infer(rig)))[HEADER].startswith('JSON {"named_metrics":')


@pytest.mark.parametrize("wanted", [True, False])
async def test_refusals_tell_it_too_and_nothing_does_unasked(wanted: bool) -> None:
    desk = FakeDesk()
    desk.refuse_submit = FULL
    async with serve(desk, load_trailers=wanted) as rig:
        for call in (rig.generate(ask()), infer(rig)):
            told = await trailers(call)
            assert told["x-surgetank-reason"] == "queue_requests"
            assert (HEADER in told) is wanted
