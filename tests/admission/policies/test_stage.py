"""The stage: the live policy decides, shadows are heard and not obeyed, faults harm no request."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.admission.policies.actors import NO, Alternating, Broken, Refusing
from tests.admission.rig import Rig, refused

from surgetank.admission.gate import GateConfig
from surgetank.admission.limits import Limit
from surgetank.admission.policies.canary import Canary, CanaryConfig
from surgetank.admission.policies.judged import Judged, judged
from surgetank.admission.policies.part import MOST_FAULTS, Part
from surgetank.admission.policies.policy import AdmissionPolicy
from surgetank.admission.policies.shadow import BOTH, Shadow
from surgetank.admission.policies.table import PLUGINS
from surgetank.admission.ticket import Ticket
from surgetank.telemetry.family import Counter
from surgetank.telemetry.vocabulary import Outcome, Priority, Reason

SMALL = GateConfig(queue_requests=4, in_flight_seqs=2)


def part(rig: Rig, policy: AdmissionPolicy, name: str = "probe") -> Part:
    return Part(name, policy, rig.desk.limits)


def shadow(rig: Rig, policy: AdmissionPolicy) -> Shadow:
    """Put a policy in the shadow."""
    made = Shadow(part(rig, policy), {both: Counter() for both in BOTH})
    rig.desk.policies.shadows = {"probe": made}
    rig.desk.policies.changed()
    return made


def put_live(rig: Rig, policy: AdmissionPolicy) -> Part:
    rig.desk.policies.live = part(rig, policy)
    rig.desk.policies.changed()
    return rig.desk.policies.live


def canary(rig: Rig, policy: AdmissionPolicy, share: float) -> Canary:
    made = Canary(part(rig, policy), share, CanaryConfig(), salt="s", now=0.0)
    rig.desk.policies.canary = made
    rig.desk.policies.changed()
    return made


def test_a_shadow_is_asked_about_every_request_and_obeyed_for_none() -> None:
    rig = Rig()
    watching = shadow(rig, Alternating())
    doors = [rig.send(prompt=4 + number) for number in range(4)]
    assert [door.refusal for door in doors] == [None] * 4
    seen = watching.seen
    assert (seen.decisions[True, True], seen.decisions[True, False]) == (2, 2)
    assert seen.would_refuse == {Reason.IN_FLIGHT: 2}
    rig.backend.finish(2)  # the second would have been refused, and was answered well
    assert (seen.refused_ended, seen.admitted_ended) == ({Judged.GOOD: 1}, {})


def test_what_a_shadow_would_have_let_in_is_counted_by_why_it_was_refused() -> None:
    rig = Rig(SMALL)
    put_live(rig, Refusing())
    watching = shadow(rig, Alternating())
    assert [rig.send(prompt=4 + number).refusal for number in range(2)] != [None, None]
    assert watching.seen.would_admit == {Reason.IN_FLIGHT: 1}
    assert watching.seen.decisions[False, False] == 1


def test_what_never_fits_is_no_policys_business() -> None:
    rig = Rig()
    watching = shadow(rig, Alternating())
    assert refused(rig.send(n=99)).reason is Reason.NEVER_FITS_SLOTS
    assert not watching.seen.decisions


def test_a_shadow_that_raises_harms_nothing_and_is_switched_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    broken = Broken()
    watching = shadow(rig, broken)
    doors = [rig.send(prompt=4 + number) for number in range(8)]
    assert [door.refusal for door in doors] == [None] * 8
    assert (broken.asked, watching.part.errors.value) == (MOST_FAULTS, MOST_FAULTS)
    assert watching.part.broken
    assert caplog.text.count("ZeroDivisionError: no traffic") == 1


def test_laws_stand_in_for_a_live_policy_that_raises() -> None:
    rig = Rig(SMALL)
    live = put_live(rig, Broken())
    assert rig.send().refusal is None
    assert live.errors.value == 1


def test_a_live_policy_decides_and_hears_how_admitted_requests_end() -> None:
    rig = Rig()
    policy = Alternating()
    put_live(rig, policy)
    first, second = rig.send(prompt=4), rig.send(prompt=5)
    assert first.refusal is None
    assert refused(second).message == NO.message
    rig.backend.finish(1)
    assert [ticket.outcome for ticket in policy.heard] == [Outcome.OK]


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 60), st.sampled_from(Priority)), max_size=25),
    name=st.sampled_from([*PLUGINS]),
)
def test_a_shadow_changes_no_decision(sizes: Sequence[tuple[int, Priority]], name: str) -> None:
    def told(watched: bool) -> list[object]:
        rig = Rig(SMALL)
        rig.desk.limits.set_base(Limit.ADMISSION_SHARE, 0.6, "policy:recovery")
        if watched:
            shadow(rig, rig.desk.policies.fresh(name))
        said: list[object] = []
        for number, (size, priority) in enumerate(sizes):
            door = rig.send(prompt=size, priority=priority)
            said.append(door.refusal and (door.refusal.reason, door.refusal.measured))
            rig.timer.advance(0.1)
            if number % 3 == 2 and rig.backend.open:
                rig.backend.finish(min(rig.backend.open))
        return said

    assert told(watched=True) == told(watched=False)


def test_retries_stay_in_their_arm_and_arms_have_their_share() -> None:
    rig = Rig()
    trial = canary(rig, Alternating(), 0.2)
    tickets = [
        Ticket(id="", arrived=0.0, door="http", fingerprint=number.to_bytes(16))
        for number in range(4000)
    ]
    arms = [trial.takes(ticket) for ticket in tickets]
    assert arms == [trial.takes(ticket) for ticket in tickets]
    assert 720 <= sum(arms) <= 880


def test_a_call_is_judged_once_by_its_first_attempt() -> None:
    rig = Rig()
    trial = canary(rig, Refusing(), 0.5)
    for number in range(20):
        rig.send(prompt=4 + number)
        rig.send(prompt=4 + number)
    while rig.backend.open:
        rig.backend.finish(min(rig.backend.open))
    live, candidate = trial.current.live, trial.current.candidate
    assert live.calls + candidate.calls == 20
    assert (live.refused, candidate.good) == (0, 0)
    assert candidate.refused == candidate.calls > 0
    assert (live.goodput, candidate.goodput) == (1.0, 0.0)
    assert live.late_share == 0.0


def test_a_candidate_whose_calls_only_take_longer_is_not_worse() -> None:
    trial = canary(Rig(), Alternating(), 0.5)
    ends: list[tuple[float, Ticket]] = []
    for number in range(3000):
        ticket = Ticket(id=str(number), arrived=float(number), door="http")
        chosen = trial.takes(ticket)
        trial.decided(ticket, candidate=chosen, admitted=True)
        ends.append((number + (80.0 if chosen else 0.0), ticket))
        while ends and min(ends, key=lambda each: each[0])[0] <= number:
            ended = min(ends, key=lambda each: each[0])
            ends.remove(ended)
            trial.ended(ended[1], Judged.GOOD)
        assert trial.worse(float(number)) is None
    assert trial.current.live.good + trial.current.candidate.good > 900


def test_a_call_that_does_not_end_holds_the_evidence_up_for_a_while_only() -> None:
    trial = canary(Rig(), Alternating(), 0.5)
    first = Ticket(id="long", arrived=0.0, door="http")
    trial.decided(first, candidate=True, admitted=True)
    for number in range(1200):
        ticket = Ticket(id=str(number), arrived=0.0, door="http")
        trial.decided(ticket, candidate=False, admitted=True)
        trial.ended(ticket, Judged.GOOD)
        assert (trial.current.less_good.value > 1.0) == (number >= 999)  # after 1000 others
    before = trial.current.less_good.value
    trial.ended(first, Judged.GOOD)
    assert trial.current.less_good.value < before


def test_a_canary_that_raises_leaves_the_decision_to_the_live_policy() -> None:
    rig = Rig()
    trial = canary(rig, Broken(), 0.5)
    doors = [rig.send(prompt=4 + number) for number in range(12)]
    assert [door.refusal for door in doors] == [None] * 12
    assert trial.part.faults > 0


def test_a_new_window_begins_after_its_time_and_with_enough_calls() -> None:
    rig = Rig()
    trial = canary(rig, Refusing(), 0.5)
    trial.current.live.calls = 1999
    assert trial.worse(600.0) is None
    assert (trial.current.number, trial.last) == (1, None)
    trial.current.candidate.calls = 1
    assert trial.worse(599.0) is None
    assert (trial.current.number, trial.last) == (1, None)
    assert trial.worse(600.0) is None
    assert (trial.current.number, trial.current.began) == (2, 600.0)


@pytest.mark.parametrize(
    ("outcome", "first_token", "ended", "is_"),
    [
        (Outcome.OK, 1.9, 9.0, Judged.GOOD),
        (Outcome.OK, 2.1, 9.0, Judged.LATE),
        (Outcome.CANCELLED, None, 1.0, Judged.OTHER),
        (Outcome.CANCELLED, None, 3.0, Judged.LATE),  # its client waited longer than it should
        (Outcome.EXPIRED, None, 1.0, Judged.LATE),
        (Outcome.BACKEND_DOWN, 0.5, 1.0, Judged.OTHER),
    ],
)
def test_judged(outcome: Outcome, first_token: float | None, ended: float, is_: Judged) -> None:
    ticket = Ticket(id="", arrived=0.0, door="http", outcome=outcome, ended_at=ended)
    ticket.first_token_at = first_token
    assert judged(ticket, 2.0) is is_
