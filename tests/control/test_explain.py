"""explain: stages that add up, the decision with its numbers, the queue it found, what if now."""

import pytest
from tests.admission.rig import CODEC, Door, Rig
from tests.control.diagnose.watched import Watched

from surgetank.admission.api import Ask
from surgetank.admission.gate import GateConfig
from surgetank.admission.outcome import Refused
from surgetank.control.explain import ExplainOut, Known, UnknownRequest, explain, stages
from surgetank.engine.api import SamplingParams, Started
from surgetank.telemetry.vocabulary import Priority


def told(service: Watched, request_id: str) -> ExplainOut:
    return explain(
        request_id,
        live=service.desk.peek.live(),
        ended=service.desk.recent(),
        what_if=service.desk.peek.what_if,
        now=service.clock.monotonic(),
    )


def send(service: Watched, request_id: str, *, prompt: int = 50, max_tokens: int = 20) -> Door:
    headers = [("x-request-id", request_id)]
    return service.send(headers=headers, prompt=prompt, max_tokens=max_tokens)


def test_a_served_request_has_every_stage_and_they_add_up() -> None:
    service = Watched()
    service.warm_up()
    send(service, "one", prompt=600, max_tokens=10)
    service.timer.advance(5.0)
    answer = told(service, "one")
    assert answer.state == "served"
    assert [stage.stage for stage in answer.stages] == [
        "door and gate",
        "queue",
        "first step",
        "rest of prefill",
        "decode",
        "last words",
    ]
    assert sum(stage.seconds for stage in answer.stages) == pytest.approx(answer.total)
    by_stage = {stage.stage: stage.seconds for stage in answer.stages}
    # 600 tokens in steps of 256: the first, then two more; nine tokens after the first one.
    assert by_stage["first step"] == pytest.approx(0.008 + 256 * 0.0001, rel=0.1)
    assert by_stage["rest of prefill"] == pytest.approx(0.016 + 344 * 0.0001, rel=0.1)
    assert by_stage["decode"] == pytest.approx(9 * 0.0086, rel=0.1)
    assert (answer.prompt_tokens, answer.output_tokens) == (600, 10)
    assert (answer.prompt_known, answer.output_known) == (Known.EXACT, Known.EXACT)
    assert answer.cached_tokens == 0
    assert answer.decision.admitted
    assert answer.sentence.startswith("served in 0.1")


def test_a_request_in_flight_is_where_it_is() -> None:
    service = Watched()
    service.warm_up()
    for number in range(17):
        send(service, f"r{number}", max_tokens=30)
    service.timer.advance(0.2)
    running, queued = told(service, "r0"), told(service, "r16")
    assert (running.state, running.stages[-1].stage) == ("running", "decode")
    assert (queued.state, queued.stages[-1].stage) == ("queued", "queue")
    assert queued.stages[-1].running
    assert queued.stages[-1].seconds == pytest.approx(0.2)
    assert queued.found is not None
    assert queued.found.queued + queued.found.running == 16
    assert queued.found.predicted is not None
    assert queued.found.predicted.binding == "slot"


def test_a_refusal_has_the_measured_value_and_the_limit() -> None:
    service = Watched()
    service.warm_up()
    for number in range(80):
        send(service, f"r{number}", max_tokens=100)
    answer = told(service, "r79")
    assert answer.state == "refused"
    assert not answer.decision.admitted
    assert answer.decision.limit_name == "wait_threshold"
    assert answer.decision.measured is not None
    assert answer.decision.limit == pytest.approx(0.7)
    assert answer.decision.measured > 0.6
    assert answer.found is not None
    assert answer.found.queued > 0
    assert answer.decision.message in answer.sentence
    fates = {each.priority: each.admitted for each in answer.what_if}
    assert (fates["critical"], fates["default"]) == (True, False)


def test_what_if_the_queue_is_gone() -> None:
    service = Watched()
    service.warm_up()
    for number in range(80):
        send(service, f"r{number}", max_tokens=100)
    service.timer.advance(60.0)
    fates = {each.priority: each.admitted for each in told(service, "r79").what_if}
    assert fates == dict.fromkeys([priority.label for priority in Priority], True)


def test_a_request_that_never_came_to_the_gate_found_nothing() -> None:
    service = Watched()
    ticket = service.desk.arrive("http", [("x-request-id", "lost")])
    with pytest.raises(Refused) as caught:
        service.desk.find("no such model")
    service.desk.refuse(ticket, caught.value.refusal)
    answer = told(service, "lost")
    assert (answer.found, answer.decision.reason) == (None, "unknown_model")


def test_the_newest_of_one_id_is_told_and_the_others_counted() -> None:
    service = Watched()
    for _ in range(3):
        send(service, "same")
        service.timer.advance(1.0)
    answer = told(service, "same")
    assert answer.same_id == 3
    assert answer.age == pytest.approx(1.0)


def test_an_unknown_id_is_a_sentence() -> None:
    service = Watched()
    send(service, "one")
    service.timer.advance(5.0)
    with pytest.raises(UnknownRequest, match="no request 'two' is in flight or among the last 1 "):
        told(service, "two")


def test_no_prompt_text_is_told() -> None:
    service = Watched()
    ticket = service.desk.arrive("http", [("x-request-id", "secret")])
    ask = Ask(CODEC.encode("a secret prompt"), SamplingParams(max_tokens=4), 1)
    service.desk.submit(ticket, service.desk.find("default"), ask, Door())
    assert "secret prompt" not in told(service, "secret").model_dump_json()


def test_each_wait_of_a_request_that_moved_is_told_and_the_time_in_between() -> None:
    rig = Rig(GateConfig(in_flight_seqs=1), engines=2)
    rig.send()
    rig.send()
    door = rig.send()
    rig.timer.advance(1.0)
    rig.backends[0].finish(min(rig.backends[0].open))  # it goes to this one
    ((request, sink),) = rig.backends[0].open.values()
    sink.on_started(Started(request.request_id, 0))
    rig.timer.advance(3.0)
    rig.backends[0].die()
    rig.timer.advance(0.5)
    assert door.call is not None
    ticket = door.call.ticket
    waits = [("door and gate", 0.0), ("queue", 1.0), ("in 0, in vain", 3.0), ("queue again", 0.5)]
    assert [(each.stage, each.seconds) for each in stages(ticket, 4.5)] == waits
    rig.backends[1].finish(min(rig.backends[1].open))
    rig.timer.advance(0.25)
    told = [(each.stage, each.seconds) for each in stages(ticket, 4.75)]
    assert told == [*waits, ("first step", 0.25)]
