"""The gate that measures itself, before an engine in virtual time that really works."""

from collections import Counter

import pytest
from tests.admission.rig import Door, refused
from tests.admission.virtual_engine import Service
from tests.fakes import step_record, tiny_card

from surgetank.admission.gate import GateConfig
from surgetank.admission.laws_config import LawsConfig
from surgetank.admission.limits import Limit
from surgetank.telemetry.stepmodel import StepFit
from surgetank.telemetry.vocabulary import Lane, Outcome, Priority, Reason

CAPACITY = 40.0  # requests of 50 + 20 tokens that the virtual engine serves per second
TARGET = 1.0  # seconds to the first token


def ttft(door: Door) -> float:
    """Fails when it was never served a token."""
    assert door.call is not None
    ticket = door.call.ticket
    assert ticket.first_token_at is not None
    return ticket.first_token_at - ticket.arrived


def served(doors: list[Door]) -> list[Door]:
    return [door for door in doors if door.outcome is Outcome.OK]


def warm(config: GateConfig | None = None) -> Service:
    service = Service(config)
    service.warm_up()
    return service


def test_cold_only_the_fixed_limits_hold_and_the_state_is_shown() -> None:
    service = Service(GateConfig(queue_requests=20))
    doors = [service.send() for _ in range(60)]
    reasons = Counter(refused(door).reason for door in doors if door.refusal)
    assert set(reasons) == {Reason.QUEUE_REQUESTS}
    laws = service.desk.snapshot().laws
    assert (laws.fitted, laws.wait, laws.queue_bound) == (False, None, None)


def test_overload_is_refused_by_predicted_wait_and_what_is_admitted_is_in_time() -> None:
    service = warm()
    doors = service.flow(10 * CAPACITY, 10.0, service.send)
    service.timer.advance(5.0)
    good = served(doors)
    assert len(good) >= 0.95 * CAPACITY * 10.0
    late = [door for door in good if ttft(door) > TARGET]
    assert len(late) <= 0.01 * len(good)
    refusal = next(door.refusal for door in doors if door.refusal)
    assert (refusal.reason, refusal.limit_name) == (Reason.PREDICTED_WAIT, "wait_threshold")
    assert refusal.measured is not None
    assert refusal.measured > 0.7
    assert refusal.limit == pytest.approx(0.7)
    assert "mostly slot" in refusal.message
    assert refusal.retry_after is not None
    assert refusal.retry_after >= 0.9 * refusal.measured  # its own wait is over by then


def doubted(config: GateConfig | None = None) -> Service:
    service = warm(config)
    side = service.desk._dispatcher._sides.all[0]
    side.view.fit = StepFit()
    for step in range(200):  # prompt tokens of two seconds and of ten: no model fits both
        took = 10.0 if step % 2 else 2.0
        wrong = step_record(prefill_tokens=1, decode_tokens=0, decode_seqs=0, forward=took)
        side.view.stepped(wrong, waiting=False)
    service.desk._dispatcher._sides.learned()
    assert side.view.fit.alarm
    return service


def test_a_doubtful_model_keeps_nobody_out_of_a_short_queue() -> None:
    service = doubted(GateConfig(laws=LawsConfig(least_queue=4)))
    service.desk.limits.set_base(Limit.IN_FLIGHT_SEQS, 1, "test")
    doors = [service.send() for _ in range(6)]
    assert [door.refusal is None for door in doors] == [True] * 5 + [False]
    assert refused(doors[5]).reason is Reason.PREDICTED_WAIT
    hurried = service.send(headers=[("x-stainless-read-timeout", "2")])
    assert refused(hurried).reason is Reason.DEADLINE_ON_ARRIVAL


def test_an_idle_engine_whose_model_is_wrong_takes_what_can_put_it_right() -> None:
    service = doubted()
    hurried = [("x-stainless-read-timeout", "2")]
    first, second = (service.send(headers=hurried) for _ in range(2))
    assert first.refusal is None
    assert refused(second).reason is Reason.DEADLINE_ON_ARRIVAL, "the engine is not idle any more"
    service.timer.advance(2.0)
    assert first.outcome is Outcome.OK


def test_a_queue_of_so_many_is_never_too_long() -> None:
    service = warm(GateConfig(laws=LawsConfig(least_queue=60)))
    assert service.desk.snapshot().laws.queue_bound == pytest.approx(60.0)
    doors = service.flow(10 * CAPACITY, 10.0, service.send)
    refusal = next(door.refusal for door in doors if door.refusal)
    assert refusal.reason is Reason.PREDICTED_WAIT
    assert refusal.limit == pytest.approx(60.0 / CAPACITY, rel=0.2)
    hurried = service.send(headers=[("x-stainless-read-timeout", "0.5")])
    assert refused(hurried).reason is Reason.PREDICTED_WAIT
    assert 0.8 * 0.5 < (refused(hurried).limit or 0.0) < 0.5, "all but its own time"


def test_the_visible_threshold_falls_when_the_engine_slows_and_when_requests_grow() -> None:
    service = warm()
    service.flow(2 * CAPACITY, 5.0, service.send)
    usual = service.desk.snapshot().laws.queue_bound
    service.engine.slower = 3.0
    service.flow(2 * CAPACITY, 3.0, service.send)
    slow = service.desk.snapshot().laws.queue_bound
    service.engine.slower = 1.0
    service.flow(2 * CAPACITY, 3.0, service.send)
    service.flow(2 * CAPACITY, 5.0, lambda: service.send(prompt=200, max_tokens=60))
    dear = service.desk.snapshot().laws.queue_bound
    assert usual is not None
    assert slow is not None
    assert dear is not None
    assert slow == pytest.approx(usual / 3, rel=0.25)
    assert dear < usual / 2


def test_a_stall_is_refused_within_a_second_and_over_when_it_is_over() -> None:
    service = warm()
    service.flow(0.8 * CAPACITY, 5.0, service.send)
    service.engine.frozen_until = service.clock.monotonic() + 10.0
    first = service.flow(0.8 * CAPACITY, 1.0, service.send)
    rest = service.flow(0.8 * CAPACITY, 9.0, service.send)
    assert not served(first)
    assert all(refused(door).reason is Reason.PREDICTED_WAIT for door in rest)
    assert "mostly age" in refused(rest[-1]).message
    after = service.flow(0.8 * CAPACITY, 4.0, service.send)
    service.timer.advance(5.0)
    assert len(served(after)) >= 0.95 * len(after)
    assert sum(ttft(door) > TARGET for door in served(after)) <= 0.02 * len(after)


def test_the_engines_queue_stays_empty_while_the_gates_fills() -> None:
    service = warm()
    service.flow(3 * CAPACITY, 5.0, service.send)
    desk = service.desk.snapshot()
    assert desk.queue_requests > 5
    assert desk.dispatched_seqs <= 16
    assert desk.laws.unread < 2 * 256, "a step's worth of prompts, and one request"


def test_prompts_go_to_the_engine_only_as_fast_as_it_reads_them() -> None:
    service = warm()
    before = service.engine.started
    for _ in range(12):
        service.send(prompt=200)
    assert service.engine.started - before == 2, "one is read, one is next; slots are free for 16"
    assert service.desk.snapshot().queue_requests == 10


def test_long_prompts_are_let_in_as_often_as_short_ones() -> None:
    service = warm()
    doors: dict[int, list[Door]] = {20: [], 200: []}
    for _ in service.arrivals(3 * CAPACITY, 15.0):
        prompt = service.rng.choice((20, 200))
        doors[prompt].append(service.send(prompt=prompt))
    service.timer.advance(5.0)
    short, long = (len(served(each)) / len(each) for each in doors.values())
    assert 1 / 1.5 <= short / long <= 1.5


def test_a_hog_takes_what_is_left_and_no_more() -> None:
    service, doors = warm(), dict[str, list[Door]]()
    for _ in service.arrivals(4 * CAPACITY, 20.0):
        tenant = "hog" if service.rng.random() < 0.7 else f"t{service.rng.randrange(9)}"
        doors.setdefault(tenant, []).append(service.send(tenant=tenant))
    service.timer.advance(5.0)
    shares = [len(served(each)) for each in doors.values()]
    assert len(shares) == 10
    assert sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares)) >= 0.98


def test_low_classes_leave_slots_to_the_high_and_get_their_floor() -> None:
    service, doors = warm(), dict[Priority, list[Door]]()
    for _ in service.arrivals(5 * CAPACITY, 20.0):
        priority = Priority.CRITICAL if service.rng.random() < 0.06 else Priority.BATCH
        doors.setdefault(priority, []).append(service.send(priority=priority))
    service.timer.advance(20.0)
    critical = doors[Priority.CRITICAL]
    assert len(served(critical)) == len(critical)
    assert sorted(map(ttft, critical))[int(0.95 * len(critical))] < 0.25
    assert len(served(doors[Priority.BATCH])) >= 0.05 * CAPACITY * 20.0


def test_a_silent_retrier_is_moved_to_the_retry_lane_and_its_wait_is_measured() -> None:
    service = warm()
    service.engine.frozen_until = service.clock.monotonic() + 3.0
    service.send()
    service.timer.advance(2.0)
    first = refused(service.send(same=True))
    assert first.retry_after is not None
    service.timer.advance(2.0)
    door = service.send(same=True)
    assert door.call is not None
    ticket = door.call.ticket
    assert (ticket.lane, ticket.attempt, ticket.detected_by) == (Lane.RETRY, 1, "fingerprint")
    totals = service.recorder.totals()
    assert totals.received == sum(totals.outcomes.values()) + totals.in_flight
    readings = {each.spec.name: each.samples for each in service.recorder.registry.read()}
    assert readings["requests_in_flight"]["retry",] == 1
    assert readings["retry_arrivals_total"]["1", "fingerprint"] == 1
    taken = readings["retry_backoff_taken_seconds"]
    assert sum(each.count for each in taken.values() if not isinstance(each, float)) == 1


def test_a_storm_of_retries_is_held_to_its_budget_while_first_attempts_go_on() -> None:
    service, first, retries = warm(), list[Door](), list[Door]()
    retry = [("x-stainless-retry-count", "1")]
    for _ in service.arrivals(4 * CAPACITY, 20.0):
        if service.rng.random() < 0.5:
            first.append(service.send())
        else:
            retries.append(service.send(headers=retry))
    service.timer.advance(5.0)
    admitted = sum(door.refusal is None for door in retries)
    assert admitted <= 0.15 * sum(door.refusal is None for door in first)
    reasons = Counter(refused(door).reason for door in retries if door.refusal)
    assert set(reasons) <= {Reason.RETRY_BUDGET, Reason.PREDICTED_WAIT}


def test_a_retry_refused_for_its_cost_is_told_what_was_left_for_it() -> None:
    service = warm(GateConfig(laws=LawsConfig(retry_wait_share=1.0)))
    for _ in range(18):
        service.send()  # the slots are taken: whoever comes now waits
    now = service.clock.monotonic()
    service.desk._budget.hold(b"another", 99.0, now + 1.0, now)
    refusal = refused(service.send(headers=[("x-stainless-retry-count", "1")]))
    assert refusal.reason is Reason.RETRY_BUDGET
    assert (refusal.limit_name, refusal.limit) == ("retry_budget_all", 0.0)
    assert refusal.measured is not None
    assert refusal.measured > 0.0


def test_retries_of_an_idle_service_are_free() -> None:
    service = warm()
    for _ in range(20):
        door = service.send(headers=[("x-stainless-retry-count", "2")])
        service.timer.advance(1.0)
        assert door.outcome is Outcome.OK


def test_one_request_for_the_whole_context_does_not_block_the_others() -> None:
    service = Service(card=tiny_card(max_num_seqs=16, kv_blocks=128))
    service.engine.length = 30
    for _ in range(20):
        service.send(max_tokens=1900)
        service.timer.advance(1.0)
    service.engine.length = 1900
    huge = service.send(max_tokens=1900)
    others = [service.send(max_tokens=40) for _ in range(14)]
    service.timer.advance(3.0)
    assert {door.outcome for door in others} == {Outcome.OK}
    assert huge.outcome is None
    service.timer.advance(40.0)
    assert huge.outcome is Outcome.OK


def test_a_promise_grows_with_what_outgrows_it() -> None:
    service = Service(card=tiny_card(max_num_seqs=16, kv_blocks=128))
    service.engine.length = 16
    for _ in range(10):
        service.send(max_tokens=600)
        service.timer.advance(1.0)
    service.engine.length = 600
    service.send(max_tokens=600)
    promised = service.desk.snapshot().kv_blocks_reserved
    service.timer.advance(3.0)
    grown = service.desk.snapshot().kv_blocks_reserved
    assert promised == 5  # 50 prompt tokens and 16 more
    assert grown > promised + 10
    service.timer.advance(20.0)
    assert service.desk.snapshot().kv_blocks_reserved == 0


def test_what_missed_its_target_gives_way_to_what_can_still_meet_it() -> None:
    service = warm(GateConfig(in_flight_seqs=4))
    service.engine.frozen_until = service.clock.monotonic() + 5.0
    stale = [service.send() for _ in range(10)]
    service.timer.advance(5.03)
    fresh = service.send()
    service.timer.advance(5.0)
    assert fresh.outcome is Outcome.OK
    dropped = [door for door in stale if door.outcome is Outcome.EXPIRED]
    assert len(dropped) == 6, "those in the engine stay"
    assert refused(dropped[0]).limit_name == "ttft_target"
    lonely = warm()
    lonely.engine.frozen_until = lonely.clock.monotonic() + 5.0
    stale = [lonely.send() for _ in range(20)]
    lonely.timer.advance(10.0)
    assert {door.outcome for door in stale} == {Outcome.OK}, "nobody else waits"


@pytest.mark.parametrize(
    ("limit", "value", "priority", "said"),
    [
        (Limit.LOWEST_CLASS, 0, Priority.DEFAULT, "only critical requests and what is above"),
        (Limit.SHEDDABLE_SHARE, 0.0, Priority.SHEDDABLE, "0% of the sheddable requests"),
        (Limit.LOWEST_CLASS, 0, Priority.CRITICAL, None),
        (Limit.SHEDDABLE_SHARE, 0.0, Priority.BATCH, None),
    ],
)
def test_what_the_ladder_holds_back_is_refused_by_name(
    limit: Limit, value: float, priority: Priority, said: str | None
) -> None:
    service = warm()
    service.desk.limits.override(limit, value, until=1e9, who="op", why="test")
    door = service.send(priority=priority)
    assert (door.refusal is None) is (said is None)
    if door.refusal and said:
        assert (door.refusal.reason, door.refusal.limit_name) == (Reason.BROWN_OUT, limit)
        assert said in door.refusal.message


def test_in_a_brown_out_low_classes_get_shorter_answers_and_others_do_not() -> None:
    service = warm()
    service.desk.limits.override(Limit.LOW_OUTPUT_TOKENS, 5, until=1e9, who="op", why="test")
    doors = [service.send(priority=each) for each in (Priority.BATCH, Priority.DEFAULT)]
    service.timer.advance(5.0)
    assert [door.ends[0].output_tokens for door in doors] == [5, 20]


def test_admission_share_lets_exactly_that_share_be_looked_at() -> None:
    service = warm()
    service.desk.limits.override(Limit.ADMISSION_SHARE, 0.5, until=1e9, who="op", why="test")
    doors = service.flow(10.0, 10.0, service.send)
    service.timer.advance(5.0)
    assert len(served(doors)) == len(doors) // 2
    critical = [service.send(priority=Priority.CRITICAL) for _ in range(4)]
    assert all(door.refusal is None for door in critical)


def test_without_the_laws_the_fixed_limits_are_all_there_is() -> None:
    service = warm(GateConfig(laws=LawsConfig(dynamic=False), queue_requests=50))
    doors = [service.send() for _ in range(100)]
    reasons = Counter(refused(door).reason for door in doors if door.refusal)
    assert set(reasons) == {Reason.QUEUE_REQUESTS}
    assert sum(reasons.values()) == 100 - 16 - 50
