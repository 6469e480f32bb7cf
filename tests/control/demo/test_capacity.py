"""How many callers fill an engine that does not say how many requests it runs at once."""

import pytest

from surgetank.control.demo import storm
from surgetank.control.demo.service import Service, ServiceError
from surgetank.telemetry.clock import ManualClock


class _Served(Service):
    """A product before an engine of so many slots, as far as it says."""

    def __init__(self, slots: int) -> None:
        super().__init__(1, 1)
        self._slots = slots

    def engine(self) -> dict[str, int]:
        return {"max_num_seqs": self._slots}


async def _measured(
    monkeypatch: pytest.MonkeyPatch, slots: int, most: float
) -> tuple[tuple[float, int], list[int]]:
    """Capacity and its width, of an engine that each caller gets 1 answer/s of, `most` in all."""
    widths = []

    async def closed(service: Service, plan: storm.Plan, width: int, clock: ManualClock) -> float:
        widths.append(width)
        return min(float(width), most)

    monkeypatch.setattr(storm, "_closed", closed)
    found = await storm._capacity(_Served(slots), storm.Plan(), ManualClock(), lambda _: None)
    return found, widths


async def test_more_callers_come_until_they_get_no_more_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await _measured(monkeypatch, 256, 5.0) == ((5.0, 8), [2, 4, 8, 16, 8])


async def test_an_engine_that_tells_its_slots_is_not_asked_for_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await _measured(monkeypatch, 6, 100.0) == ((6.0, 6), [2, 4, 6, 6])
    assert await _measured(monkeypatch, 1, 100.0) == ((1.0, 1), [1, 1])


async def test_an_engine_that_answers_nothing_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServiceError, match="answered nothing in 8 s"):
        await _measured(monkeypatch, 256, 0.0)
