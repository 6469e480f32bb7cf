"""The rate limit service, message for message: what a question counts at a tenant's quota."""

from collections.abc import AsyncIterator

import pytest
from google.protobuf.wrappers_pb2 import UInt64Value
from tests.admission.doors.carriage_rig import CarriageRig, carriage_rig

from surgetank.admission.doors.envoy import wire_pb2 as pb
from surgetank.admission.doors.envoy.ratelimit import RateLimit
from surgetank.admission.leases.config import LeasesConfig, TenantQuota

OK, OVER = pb.RateLimitResponse.OK, pb.RateLimitResponse.OVER_LIMIT


class Context:
    """Of the call, what the service asks."""

    def peer(self) -> str:
        return "ipv4:10.0.0.1:5000"


@pytest.fixture
async def rig() -> AsyncIterator[CarriageRig]:
    """Ten requests at once, one in six seconds after that."""
    leases = LeasesConfig(default=TenantQuota(requests_per_minute=10), burst=60)
    async with carriage_rig(leases) as rig:
        yield rig


async def asked(rig: CarriageRig, hits: int = 0, *descriptors: int | None) -> int:
    """One question; `descriptors`: the hits of each, None for one that says nothing."""
    request = pb.RateLimitRequest(hits_addend=hits)
    for said in descriptors or (None,):
        added = None if said is None else UInt64Value(value=said)
        request.descriptors.add(hits_addend=added).entries.add(key="route", value="engine")
    answer = await RateLimit(rig.carriage).should_rate_limit(request, Context())  # type: ignore[arg-type]
    assert [status.code for status in answer.statuses] == [answer.overall_code] * max(
        1, len(descriptors)
    )
    return answer.overall_code


async def test_a_question_counts_one(rig: CarriageRig) -> None:
    assert [await asked(rig) for _ in range(11)] == [*10 * [OK], OVER]


async def test_it_counts_the_hits_that_it_says(rig: CarriageRig) -> None:
    assert [await asked(rig, 4) for _ in range(3)] == [OK, OK, OVER]
    assert await asked(rig, 2) == OK  # those that were left


async def test_a_descriptors_own_hits_go_before(rig: CarriageRig) -> None:
    assert await asked(rig, 1, 9, None) == OK
    assert await asked(rig, 1, 2, 1) == OVER
    assert await asked(rig, 9, 1) == OK


async def test_none_at_all_only_asks(rig: CarriageRig) -> None:
    assert [await asked(rig, 0, 0) for _ in range(20)] == 20 * [OK]
    assert await asked(rig, 10) == OK
    assert await asked(rig, 0, 0) == OVER  # one more would not pass
