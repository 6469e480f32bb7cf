"""Gate and engine agree on what is in it, and a place that is never given back is seen."""

import pytest
from tests.admission.virtual_engine import Service
from tests.fakes import engine_look

from surgetank.admission.snapshot import EngineLook
from surgetank.engine.backends.remote.found import Vitals


def look(drift: int | None, requests: int | None, dispatched: int) -> EngineLook:
    vitals = Vitals("vllm", "http://a", drift=drift, requests=requests)
    return engine_look("a", vitals=vitals, dispatched=dispatched)


@pytest.mark.parametrize(
    ("seen", "drift"),
    [
        (look(None, 4, 4), None),  # it tells no count
        (look(0, 4, 4), 0),
        (look(2, 4, 4), 2),  # it does not know of two of them
        (look(-3, 4, 4), -3),  # somebody else has three there
        (look(0, 4, 5), 1),  # one holds its place and is not there any more
        (look(2, None, 5), 2),  # nobody counts the requests
    ],
)
def test_a_drift_is_what_engine_and_gate_count_apart(seen: EngineLook, drift: int | None) -> None:
    assert seen.drift == drift


def test_a_place_that_is_never_given_back_is_a_drift_of_one_for_good_and_traffic_is_none() -> None:
    service = Service()
    drifts = set[int | None]()
    for _ in service.arrivals(rate=30.0, seconds=5.0):
        service.send(n=2)
        drifts.add(service.desk.snapshot().ledger_drift)
    assert drifts == {0}
    lost = service.send()
    assert lost.call is not None
    service.engine.cancel(lost.call.request_id or 0)  # and tells nobody
    drifts = {
        service.desk.snapshot().ledger_drift
        for _ in service.arrivals(rate=10.0, seconds=2.0)
        if service.send()
    }
    assert drifts == {1}
