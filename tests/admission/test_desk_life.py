"""Each way in which a request's life can end, at each stage, and what the desk then gives back."""

import pytest
from tests.admission.rig import Door, Rig, refused
from tests.fakes import tiny_card

from surgetank.admission.api import Ask, Delta, End
from surgetank.admission.gate import GateConfig
from surgetank.admission.limits import Limit
from surgetank.admission.outcome import Refused
from surgetank.engine.api import GenerateRequest, SamplingParams, Sink, Started
from surgetank.telemetry.vocabulary import FinishReason, Outcome, Priority, Reason

ONE = GateConfig(in_flight_seqs=1)


def free(rig: Rig) -> bool:
    """Nothing is held anywhere."""
    desk, dispatcher = rig.desk.snapshot(), rig.desk._dispatcher
    assert not dispatcher.calls
    assert not len(dispatcher._running)
    held = desk.queue_requests, desk.queue_tokens, desk.dispatched, desk.dispatched_seqs
    return (*held, desk.kv_blocks_reserved, desk.in_flight) == (0, 0, 0, 0, 0, 0)


def test_tokens_become_text_and_the_end_says_what_was_used() -> None:
    rig = Rig()
    door = rig.send(prompt=5, n=2, headers=[("x-stainless-read-timeout", "600")])
    rig.backend.open[1][1].on_started(Started(1, 3))
    rig.clock.advance(1.0)
    rig.backend.emit(1, "he")
    rig.clock.advance(0.5)
    rig.backend.emit(1, "llo", finish=FinishReason.STOP)
    assert door.outcome is None
    rig.backend.emit(1, "x", index=1, finish=FinishReason.LENGTH)
    assert [(delta.index, delta.text, delta.finish) for delta in door.deltas] == [
        (0, "he", None),
        (0, "llo", FinishReason.STOP),
        (1, "x", FinishReason.LENGTH),
    ]
    used = sum(len(delta.token_ids) for delta in door.deltas)
    assert door.ends == [End(Outcome.OK, None, 5, used, 3)]
    assert rig.backend.cancelled == []
    assert free(rig)
    rig.check_conservation()


def test_a_stop_string_ends_its_choice_and_tells_the_engine() -> None:
    rig = Rig()
    door = rig.send(n=2, stop=["END"])
    rig.backend.emit(1, "abEN")
    rig.backend.emit(1, "Dxyz")
    rig.backend.emit(1, "more")
    assert door.text == "ab"
    assert door.deltas[-1].finish is FinishReason.STOP
    assert rig.backend.cancelled == [(1, 0)]
    rig.backend.emit(1, "fine", index=1, finish=FinishReason.STOP)
    assert door.outcome is Outcome.OK
    assert rig.backend.cancelled == [(1, 0)]


def test_cancelling_a_queued_request_leaves_the_running_one_alone() -> None:
    rig = Rig(ONE)
    running, queued = rig.send(), rig.send()
    assert queued.call is not None
    queued.call.cancel()
    queued.call.cancel()
    assert queued.outcome is Outcome.CANCELLED
    assert refused(queued).reason is Reason.CLIENT_GONE
    rig.backend.finish(1, "whole")
    assert (running.text, running.outcome) == ("whole", Outcome.OK)
    assert len(rig.backend.started) == 1
    assert rig.backend.cancelled == []
    assert free(rig)


@pytest.mark.parametrize("tokens", ["", "he"])
def test_a_client_that_leaves_a_running_request_frees_its_place_for_the_next(tokens: str) -> None:
    rig = Rig(ONE)
    gone, waiting = rig.send(), rig.send()
    rig.backend.emit(1, tokens)
    assert gone.call is not None
    gone.call.cancel()
    assert gone.outcome is Outcome.CANCELLED
    assert rig.backend.cancelled == [(1, -1)]
    rig.backend.finish(2)
    assert waiting.outcome is Outcome.OK
    assert free(rig)


def test_those_who_left_and_those_who_are_late_never_reach_the_engine() -> None:
    rig = Rig(ONE)
    rig.occupy()
    late = [rig.send(headers=[("x-surgetank-timeout", "1")]) for _ in range(3)]
    others = [rig.send() for _ in range(17)]
    for door in others[:15]:
        assert door.call is not None
        door.call.cancel()
    rig.clock.advance(1.5)  # the timer has not fired yet: a busy event loop
    for request_id in (1, 2, 3):
        rig.backend.finish(request_id)
    assert len(rig.backend.started) == 1 + 2
    assert {door.outcome for door in late} == {Outcome.EXPIRED}
    assert {door.outcome for door in others[15:]} == {Outcome.OK}
    assert free(rig)


def test_the_timer_ends_the_late_while_the_engine_stands_still() -> None:
    rig = Rig(ONE)
    running = rig.send(headers=[("grpc-timeout", "5S")])
    queued = rig.send(headers=[("grpc-timeout", "2S")])
    rig.timer.advance(2.0)
    refusal = refused(queued)
    assert (refusal.outcome, refusal.reason) == (Outcome.EXPIRED, Reason.DEADLINE_IN_QUEUE)
    assert refusal.measured == pytest.approx(2.0)
    assert refusal.limit == pytest.approx(2.0)
    assert running.outcome is None
    rig.timer.advance(3.0)
    assert refused(running).reason is Reason.DEADLINE_IN_DECODE
    assert running.outcome is Outcome.DEADLINE
    assert rig.backend.cancelled == [(1, -1)]
    assert free(rig)


def test_nothing_waits_longer_than_the_queue_allows_and_a_shorter_bound_holds_at_once() -> None:
    rig = Rig(GateConfig(in_flight_seqs=1, queue_wait=20))
    rig.occupy()
    door = rig.send()
    rig.timer.advance(8)
    later = rig.send()
    rig.desk.limits.set_base(Limit.QUEUE_WAIT, 5, "config")
    assert refused(door).reason is Reason.QUEUE_TIMEOUT
    assert refused(door).limit == 5
    assert refused(door).retry_after is not None
    assert later.outcome is None
    rig.timer.advance(5)
    assert later.outcome is Outcome.EXPIRED


def test_a_read_timeout_ends_a_plain_answer_but_of_a_stream_only_the_wait() -> None:
    rig = Rig()
    timeout = [("x-stainless-read-timeout", "3.0")]
    plain, stream, silent = (rig.send(headers=timeout, stream=s) for s in (False, True, True))
    assert [request.time_left for request in rig.backend.started] == [3.0, None, None]
    rig.backend.emit(1, "a")
    rig.backend.emit(2, "a")
    rig.timer.advance(3.0)
    assert (plain.outcome, stream.outcome, silent.outcome) == (
        Outcome.DEADLINE,
        None,
        Outcome.DEADLINE,
    )


def test_a_deadline_that_has_passed_is_infeasible_and_no_retry_is_advised() -> None:
    rig = Rig()
    refusal = refused(rig.send(headers=[("grpc-timeout", "0n")]))
    assert (refusal.outcome, refusal.reason) == (Outcome.INFEASIBLE, Reason.DEADLINE_ON_ARRIVAL)
    assert refusal.retry_after is None
    assert rig.backend.started == []


def test_when_the_engine_dies_every_request_is_told_so_once() -> None:
    rig = Rig(ONE)
    doors = [rig.send() for _ in range(4)]
    rig.backend.emit(1, "some")
    rig.backend.die("killed")
    assert {door.outcome for door in doors} == {Outcome.BACKEND_DOWN}
    assert all(0.5 <= (refused(door).retry_after or 0) <= 1.5 for door in doors)
    assert rig.backend.cancelled == []
    assert free(rig)
    assert not rig.desk.ready()
    assert rig.desk.names() == ["tiny", "default"]
    with pytest.raises(Refused, match="backend down"):
        rig.desk.find("tiny")
    rig.backend.come_up(tiny_card(pid=2))
    assert rig.desk.ready()
    assert rig.send().outcome is None


def test_a_model_found_before_the_engine_restarted_is_not_used_on_the_new_one() -> None:
    rig = Rig()
    ticket, old = rig.arrive(), rig.desk.find("default")
    rig.backend.die()
    rig.backend.come_up(tiny_card(pid=2))
    with pytest.raises(Refused, match="backend down"):
        rig.desk.submit(ticket, old, Ask([1], SamplingParams(max_tokens=1)), Door())
    assert ticket.outcome is Outcome.BACKEND_DOWN
    assert rig.backend.started == []


@pytest.mark.parametrize(
    ("finish", "outcome", "reason"),
    [
        (FinishReason.DEADLINE, Outcome.DEADLINE, Reason.DEADLINE_IN_DECODE),
        (FinishReason.REFUSED, Outcome.INVALID, Reason.ENGINE_REFUSED),
        (FinishReason.CANCELLED, Outcome.BACKEND_DOWN, Reason.ENGINE_LOST),
        (FinishReason.ERROR, Outcome.INTERNAL, Reason.BUG),
    ],
)
def test_an_end_by_the_engine_ends_all_choices(
    finish: FinishReason, outcome: Outcome, reason: Reason
) -> None:
    rig = Rig()
    door = rig.send(n=2)
    rig.backend.emit(1, index=1, finish=finish, detail="because")
    assert (door.outcome, refused(door).reason) == (outcome, reason)
    assert door.deltas[-1].finish is finish
    assert rig.backend.cancelled == [(1, -1)]
    assert free(rig)


class BrokenDoor(Door):
    """Fails at whatever it is told."""

    def on_delta(self, delta: Delta) -> None:
        raise RuntimeError("no delta")

    def on_end(self, end: End) -> None:
        super().on_end(end)
        raise RuntimeError("no end")


def test_a_door_that_fails_ends_its_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    broken, sound = rig.send(door=BrokenDoor()), rig.send()
    rig.backend.emit(1, "x")
    rig.backend.finish(2, "fine")
    assert (broken.outcome, sound.outcome) == (Outcome.INTERNAL, Outcome.OK)
    assert "no delta" in caplog.text
    assert "no end" in caplog.text
    assert free(rig)
    rig.check_conservation()


def test_a_fault_in_submit_still_ends_the_ticket(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    refusal = refused(rig.send(stop=[""]))
    assert refusal.outcome is Outcome.INTERNAL
    assert "could not be submitted" in caplog.text
    assert free(rig)


def test_a_fault_in_handing_over_ends_that_request_and_gives_back_all(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(ONE)
    rig.occupy()
    doors = [rig.send(), rig.send()]
    hand_over = rig.backend.submit

    def fragile(request: GenerateRequest, sink: Sink) -> None:
        if request.request_id == 2:
            raise RuntimeError("odd")
        hand_over(request, sink)

    monkeypatch.setattr(rig.backend, "submit", fragile)
    rig.backend.finish(1)
    assert [door.outcome for door in doors] == [Outcome.INTERNAL, None]
    assert "could not be handed over" in caplog.text
    rig.backend.finish(3)
    assert doors[1].outcome is Outcome.OK
    assert free(rig)
    rig.check_conservation()


def test_draining_refuses_the_new_finishes_the_old_and_says_when_it_is_done() -> None:
    rig = Rig(ONE)
    running, queued = rig.send(), rig.send()
    served, done = rig.desk.find("tiny"), []
    rig.desk.drain(lambda: done.append(rig.clock.monotonic()))
    with pytest.raises(Refused) as found:
        rig.desk.find("tiny")
    assert found.value.refusal.outcome is Outcome.DRAINING
    assert not rig.desk.ready()
    refusal = rig.desk.refuse(rig.arrive(), found.value.refusal)
    assert 0.5 <= (refusal.retry_after or 0) <= 1.5
    assert served.name == "tiny"
    rig.backend.finish(1)
    assert done == []
    rig.backend.finish(2)
    assert (running.outcome, queued.outcome) == (Outcome.OK, Outcome.OK)
    assert len(done) == 1
    rig.desk.undrain()
    assert rig.send().outcome is None
    assert len(done) == 1


def test_a_drain_that_takes_too_long_is_cut_short() -> None:
    rig = Rig(ONE)
    doors = [rig.send() for _ in range(3)]
    done: list[bool] = []
    rig.desk.drain(lambda: done.append(True))
    rig.desk.end_all()
    assert {door.outcome for door in doors} == {Outcome.DRAINING}
    assert done == [True]
    assert free(rig)


def test_an_unknown_model_is_named_with_those_that_are_there() -> None:
    rig = Rig()
    with pytest.raises(Refused, match=r"'gpt-9' is not served here; available: tiny, default"):
        rig.desk.find("gpt-9")


def test_the_desk_remembers_who_ended_and_how() -> None:
    rig = Rig()
    rig.send(headers=[("x-request-id", "first")], priority=Priority.BATCH)
    rig.backend.finish(1)
    (ended,) = rig.desk.recent()
    assert (ended.ticket.id, ended.ticket.outcome, ended.refusal) == ("first", Outcome.OK, None)
    events = [name for _, name in ended.ticket.events]
    assert events == ["arrived", "queued", "dispatched", "started", "first_token", "ok"]
