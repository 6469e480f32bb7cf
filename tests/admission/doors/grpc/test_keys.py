"""API keys at the gRPC door: UNAUTHENTICATED for a call, and inside a stream."""

import grpc
import pytest
from tests.admission.doors.grpc.rig import ask, serve, trailer

from surgetank.admission.doors.grpc.exchange import address
from surgetank.admission.refusals import barred
from surgetank.telemetry.vocabulary import Outcome

WHY = "an API key is needed: Authorization: Bearer KEY, or X-API-Key: KEY"


async def test_a_call_without_a_key_is_unauthenticated() -> None:
    async with serve() as rig:
        rig.desk.bar = barred(WHY)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rig.infer(ask(), metadata=(("authorization", "Bearer wrong"),))
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert trailer(caught.value, "grpc-retry-pushback-ms") == "-1"
        assert trailer(caught.value, "x-surgetank-reason") == "api_key"
        assert ("authorization", "Bearer wrong") in rig.desk.headers[0]
        assert [refusal.outcome for _, refusal in rig.desk.refused] == [Outcome.UNAUTHENTICATED]
        assert rig.desk.peers == ["127.0.0.1"]
        assert rig.desk.calls == []


async def test_on_a_stream_each_request_is_told() -> None:
    async with serve() as rig:
        rig.desk.bar = barred(WHY)
        call = rig.stream()
        await call.write(ask())
        message = (await call.read()).error_message
        assert "an API key is needed" in message
        assert "[reason: api_key;" in message
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.OK


@pytest.mark.parametrize(
    ("peer", "found"),
    [
        ("ipv4:10.1.2.3:50051", "10.1.2.3"),
        ("ipv6:%5B::1%5D:50051", "::1"),
        ("ipv6:[fd00::1]:1", "fd00::1"),
        ("unix:/run/x.sock", ""),
        ("", ""),
    ],
)
def test_addresses_as_grpc_writes_them(peer: str, found: str) -> None:
    assert address(peer) == found
