"""The desk under more work than the engine takes: bounds, places, refusals, limits that change."""

from dataclasses import replace

import pytest
from tests.admission.rig import Rig, refused
from tests.fakes import tiny_card

from surgetank.admission.flow import Flow
from surgetank.admission.gate import GateConfig
from surgetank.admission.limits import Limit
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.telemetry.vocabulary import Outcome, Priority, Reason


def held(rig: Rig) -> DeskSnapshot:
    """Everything that a refused request must leave as it was; that it arrived is counted."""
    return replace(rig.desk.snapshot(), flow=Flow())


def test_a_stopped_engine_lets_the_queue_grow_to_its_bound_and_no_further() -> None:
    rig = Rig(GateConfig(queue_requests=100, queue_tokens=50_000, in_flight_seqs=1))
    rig.occupy()
    doors = [rig.send(prompt=4) for _ in range(10_000)]
    assert sum(door.outcome is Outcome.OVERLOAD for door in doors) == 9_900
    assert rig.queued == 100
    assert rig.recorder.in_flight() == 101
    refusal = refused(doors[-1])
    assert (refusal.reason, refusal.measured, refusal.limit) == (Reason.QUEUE_REQUESTS, 101, 100)
    assert refusal.limit_name == "queue_requests"


def test_n_choices_take_n_places() -> None:
    rig = Rig(GateConfig(queue_requests=10, in_flight_seqs=1))
    rig.occupy()
    assert rig.send(n=5).outcome is None
    assert rig.queued == 5
    assert rig.send(n=5).outcome is None
    assert refused(rig.send()).measured == 11


def test_prompt_tokens_bound_the_queue_too() -> None:
    rig = Rig(GateConfig(queue_tokens=1000, in_flight_seqs=1))
    rig.occupy()
    assert rig.send(prompt=990).outcome is None
    refusal = refused(rig.send(prompt=11))
    assert (refusal.reason, refusal.measured, refusal.limit) == (Reason.QUEUE_TOKENS, 1001, 1000)
    assert rig.send(prompt=10).outcome is None


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "n", "reason", "limit_name"),
    [
        (2048, 8, 1, Reason.NEVER_FITS_CONTEXT, "context_length"),
        (4, 3000, 1, Reason.NEVER_FITS_CONTEXT, "max_output_tokens"),
        (4, 8, 9, Reason.NEVER_FITS_SLOTS, "max_num_seqs"),
        (4, 8, 5_000_000, Reason.NEVER_FITS_SLOTS, "max_n"),
        (810, 8, 1, Reason.NEVER_FITS_QUEUE, "queue_tokens"),
        (4, 8, 7, Reason.NEVER_FITS_QUEUE, "queue_requests"),
        (700, 200, 1, Reason.NEVER_FITS_KV, "kv_blocks"),
    ],
)
def test_what_never_fits_is_invalid_at_once_and_leaves_no_trace(
    prompt: int, max_tokens: int, n: int, reason: Reason, limit_name: str
) -> None:
    card = tiny_card(kv_blocks=56, max_num_seqs=8)
    rig = Rig(GateConfig(queue_tokens=800, queue_requests=6, max_output_tokens=2500), card)
    before = held(rig)
    refusal = refused(rig.send(prompt=prompt, max_tokens=max_tokens, n=n))
    assert (refusal.outcome, refusal.reason) == (Outcome.INVALID, reason)
    assert refusal.limit_name == limit_name
    assert refusal.retry_after is None
    assert refusal.measured is not None
    assert refusal.limit is not None
    assert refusal.measured > refusal.limit
    assert held(rig) == before
    assert rig.send().outcome is None
    assert len(rig.backend.started) == 1


def test_refusals_leave_every_counter_as_it_was_and_a_small_request_gets_in() -> None:
    rig = Rig(GateConfig(queue_tokens=100, in_flight_seqs=1))
    rig.occupy()
    rig.send(prompt=60)
    before = held(rig)
    for _ in range(20):
        assert refused(rig.send(prompt=50)).reason is Reason.QUEUE_TOKENS
    assert refused(rig.send(prompt=2000)).outcome is Outcome.INVALID
    assert held(rig) == before
    assert rig.send(prompt=40).outcome is None
    assert rig.desk.snapshot().queue_tokens == 100


def test_a_raised_limit_holds_at_once_and_refusals_name_the_one_in_force() -> None:
    rig = Rig(GateConfig(queue_requests=20, in_flight_seqs=1))
    rig.occupy()
    doors = [rig.send() for _ in range(30)]
    assert sum(door.outcome is None for door in doors) == 20
    assert "limit queue_requests is 20" in refused(doors[-1]).message
    rig.desk.limits.override(Limit.QUEUE_REQUESTS, 50, until=60, who="op", why="burst")
    doors = [rig.send() for _ in range(40)]
    assert sum(door.outcome is None for door in doors) == 30
    assert "limit queue_requests is 50" in refused(doors[-1]).message
    assert refused(doors[-1]).limit == 50


def test_more_slots_dispatch_what_waits_at_once_and_an_override_ends_by_itself() -> None:
    rig = Rig(GateConfig(in_flight_seqs=1))
    for _ in range(6):
        rig.send()
    rig.desk.limits.override(Limit.IN_FLIGHT_SEQS, 4, until=10, who="op", why="test")
    assert len(rig.backend.started) == 4
    rig.timer.advance(10)
    assert rig.desk.limits.get(Limit.IN_FLIGHT_SEQS) == 1
    rig.backend.finish(1)
    assert len(rig.backend.started) == 4
    for request_id in (2, 3, 4):
        rig.backend.finish(request_id)
    assert len(rig.backend.started) == 5


def test_what_only_an_override_excludes_may_be_retried() -> None:
    rig = Rig(GateConfig(queue_tokens=500))
    rig.desk.limits.override(Limit.QUEUE_TOKENS, 100, until=60, who="op", why="test")
    refusal = refused(rig.send(prompt=200))
    assert refusal.outcome is Outcome.OVERLOAD
    assert refusal.retry_after is not None


def test_classes_are_served_in_order_and_each_first_come_first_served() -> None:
    rig = Rig(GateConfig(in_flight_seqs=1))
    rig.occupy()
    order = (Priority.BATCH, Priority.DEFAULT, Priority.CRITICAL, Priority.DEFAULT)
    for prompt, priority in enumerate(order, start=1):
        rig.send(prompt=prompt, priority=priority)
    for request_id in range(1, 5):
        rig.backend.finish(request_id)
    assert [len(request.prompt) for request in rig.backend.started[1:]] == [3, 2, 4, 1]


def test_only_sheddable_requests_are_displaced_newest_first() -> None:
    rig = Rig(GateConfig(queue_requests=3, in_flight_seqs=1))
    rig.occupy()
    old, new = (rig.send(priority=Priority.SHEDDABLE) for _ in range(2))
    batch = rig.send(priority=Priority.BATCH)
    assert rig.send(priority=Priority.DEFAULT).outcome is None
    assert (old.outcome, new.outcome) == (None, Outcome.EVICTED)
    assert refused(new).reason is Reason.DISPLACED
    assert rig.send(priority=Priority.CRITICAL).outcome is None
    assert old.outcome is Outcome.EVICTED
    assert rig.send(priority=Priority.CRITICAL).outcome is Outcome.OVERLOAD
    assert batch.outcome is None


def test_nobody_is_displaced_when_it_would_not_suffice() -> None:
    rig = Rig(GateConfig(queue_requests=4, in_flight_seqs=1))
    rig.occupy()
    sheddable = [rig.send(priority=Priority.SHEDDABLE) for _ in range(2)]
    rig.send(n=2)
    assert rig.send(n=3).outcome is Outcome.OVERLOAD
    assert [door.outcome for door in sheddable] == [None, None]
    assert rig.send(priority=Priority.SHEDDABLE).outcome is Outcome.OVERLOAD


def test_kv_blocks_are_promised_once_and_a_wide_request_runs_alone() -> None:
    rig = Rig(GateConfig(kv_reserve=0.5), tiny_card(kv_blocks=64, max_num_seqs=8))
    first = rig.send(prompt=160, max_tokens=160)  # 20 of the 32 blocks that may be promised
    rig.send(prompt=160, max_tokens=160)
    assert rig.desk.snapshot().kv_blocks_reserved == 20
    assert first.call is not None
    first.call.cancel()
    assert rig.desk.snapshot().kv_blocks_reserved == 20
    assert len(rig.backend.started) == 2
    wide = rig.send(prompt=500, max_tokens=500)  # 63 blocks
    assert len(rig.backend.started) == 2
    rig.backend.finish(2)
    assert rig.desk.snapshot().kv_blocks_reserved == 63
    rig.backend.finish(3)
    assert wide.outcome is Outcome.OK
    assert rig.desk.snapshot().kv_blocks_reserved == 0


def test_one_running_one_queued_ten_refused_makes_twelve_answers() -> None:
    rig = Rig(GateConfig(queue_requests=1, in_flight_seqs=1))
    doors = [rig.send() for _ in range(12)]
    rig.backend.finish(1)
    rig.backend.finish(2)
    outcomes = [door.outcome for door in doors]
    assert outcomes.count(Outcome.OK) == 2
    assert outcomes.count(Outcome.OVERLOAD) == 10


def test_a_gate_wide_open_queues_everything_and_knows_no_deadline() -> None:
    rig = Rig(GateConfig(enforce=False, queue_requests=1, in_flight_seqs=1))
    doors = [rig.send(headers=[("x-surgetank-timeout", "1")]) for _ in range(500)]
    rig.timer.advance(100)
    assert {door.outcome for door in doors} == {None}
    rig.backend.finish(1)
    assert len(rig.backend.started) == 2
    assert rig.backend.started[1].time_left is None


def test_those_whose_clients_give_up_at_the_same_moment_all_end() -> None:
    rig = Rig(GateConfig(in_flight_seqs=1))
    patient = [("x-stainless-read-timeout", "5")]
    doors = [rig.send(headers=patient) for _ in range(4)]
    rig.timer.advance(5.0)
    assert [door.outcome for door in doors] == [Outcome.DEADLINE, *[Outcome.EXPIRED] * 3]
