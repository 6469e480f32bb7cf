"""A sidecar's part in its fleet: its tasks survive faults, end in time, and can be seen."""

import asyncio
from collections.abc import Mapping

import pytest
from pydantic import SecretStr
from tests.control.service import PlayedService

from surgetank.admission.leases.config import LeasesConfig
from surgetank.admission.leases.renewer import Renewer
from surgetank.control.fleet import membership

LEASES = LeasesConfig(url=SecretStr("redis://127.0.0.1:1"), sidecars=3)


def gauge(service: PlayedService, name: str) -> Mapping[tuple[str, ...], object]:
    """A metric's samples, as a scrape would see them."""
    readings = service.rig.recorder.registry.read()
    return next(dict(each.samples) for each in readings if each.spec.name == name)


async def test_a_fault_of_ours_is_counted_and_begun_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[Renewer] = []
    third = asyncio.Event()

    async def run(renewer: Renewer) -> None:
        begun.append(renewer)
        if len(begun) < 3:
            raise ZeroDivisionError("played")
        third.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(membership, "AGAIN", 0.0)
    monkeypatch.setattr(Renewer, "run", run)
    service = PlayedService(leases=LEASES)
    service.fleet.start()
    async with asyncio.timeout(10):
        await third.wait()
        await service.fleet.stop()
    assert "shared state: the leases failed" in caplog.text
    assert service.fleet.view().failures >= 2
    assert gauge(service, "shared_state_failures_total")[()] == service.fleet.view().failures


async def test_without_redis_it_starts_says_so_and_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, renew = asyncio.Event(), Renewer.renew

    async def heard(renewer: Renewer) -> bool:
        soon = await renew(renewer)
        asked.set()
        return soon

    monkeypatch.setattr(Renewer, "renew", heard)
    service = PlayedService(leases=LEASES)
    service.fleet.start()
    async with asyncio.timeout(10):
        await asked.wait()
        await service.fleet.stop()
    assert service.fleet.view().failures > 0
    modes = gauge(service, "shared_state_mode")
    assert modes == {("single",): 0, ("shared",): 0, ("holding",): 0, ("alone",): 1}
    assert gauge(service, "shared_state_sidecars") == {(): 3}
    assert gauge(service, "fleet_leader") == {(): 0}


def test_a_single_one_has_a_mode_and_no_leader() -> None:
    service = PlayedService()
    assert gauge(service, "shared_state_mode")["single",] == 1
    assert gauge(service, "fleet_leader") == {}
