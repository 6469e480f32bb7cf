"""The history tells what kept requests out: for how long, and only while there are any."""

from tests.control.diagnose.watched import Watched
from tests.fakes import tiny_card

from surgetank.admission.limits import Limit
from surgetank.control.diagnose.hold import Cause
from surgetank.telemetry.catalog import find


def held(service: Watched) -> dict[str, float]:
    """Seconds by cause, without those that never held."""
    children = service.recorder.registry.counter("queue_held_seconds_total").children()
    return {cause: child.value for (cause,), child in children.items() if child.value}


def test_the_metric_knows_every_cause() -> None:
    (label,) = find("queue_held_seconds_total").labels
    assert label.values == tuple(Cause)


def test_nothing_is_told_while_nobody_waits() -> None:
    service = Watched()
    service.warm_up()
    service.flow(10.0, 10.0, service.send)
    service.timer.advance(20.0)
    assert held(service) == {}


def test_a_limit_is_told_for_as_long_as_it_keeps_requests_out() -> None:
    service = Watched()
    service.warm_up()
    until = service.clock.monotonic() + 600.0
    service.desk.limits.override(Limit.IN_FLIGHT_SEQS, 1.0, until=until, who="ada", why="drill")
    service.flow(6.0, 10.0, service.send)
    told = held(service)
    assert set(told) == {"limit"}
    assert 6.0 <= told["limit"] <= 10.0


def test_refusals_tell_too_when_the_queue_is_short() -> None:
    service = Watched(card=tiny_card(max_num_seqs=16, kv_blocks=40))
    service.warm_up()
    service.desk.limits.override(Limit.QUEUE_REQUESTS, 1.0, until=1e9, who="ada", why="drill")
    service.flow(20.0, 15.0, lambda: service.send(prompt=160, max_tokens=100))
    told = held(service)
    assert told["memory"] > 0.8 * sum(told.values()) > 9.0
