"""What fails again and again is left out for a while; what is full is not."""

import pytest

from surgetank.admission import refusals
from surgetank.admission.outcome import Refusal
from surgetank.admission.routing.config import RoutingConfig
from surgetank.admission.routing.outlier import (
    Met,
    Standing,
    is_fault,
    may_eject,
    met_by,
    observed,
)
from surgetank.telemetry.vocabulary import Outcome, Reason

CONFIG = RoutingConfig(eject_after=3, eject_for=30.0, eject_at_most=70.0)


def after(standing: Standing, faults: str, now: float, *, may_go: bool = True) -> Standing:
    """`x` a fault, `o` an answer."""
    for each in faults:
        standing = observed(standing, each == "x", CONFIG, now, may_go=may_go)
    return standing


@pytest.mark.parametrize(
    ("faults", "out"), [("xx", False), ("xxx", True), ("xxoxx", False), ("xxoxxx", True)]
)
def test_so_many_faults_in_a_row_eject(faults: str, out: bool) -> None:
    assert after(Standing(), faults, 10.0).out(10.0) is out


def test_it_is_back_after_its_time_and_longer_away_each_time() -> None:
    once = after(Standing(), "xxx", 0.0)
    assert (once.out(29.9), once.out(30.0)) == (True, False)
    twice = after(once, "xxx", 31.0)
    assert twice.back_at == 31.0 + 60.0
    assert after(twice, "xxx", 92.0).back_at == 92.0 + 70.0  # not above the most
    assert twice.ejections == 2


def test_good_times_are_remembered() -> None:
    once = after(Standing(), "xxx", 0.0)
    assert after(once, "xxx", 30.0 + 31.0).back_at == 61.0 + 30.0  # as if it were the first


def test_faults_while_it_is_out_change_nothing() -> None:
    once = after(Standing(), "xxx", 0.0)
    assert after(once, "xxxx", 5.0) == once


def test_it_stays_where_too_many_are_out_and_goes_once_it_may() -> None:
    kept = after(Standing(), "xxxxx", 0.0, may_go=False)
    assert not kept.out(0.0)
    assert after(kept, "x", 1.0).out(1.0)


@pytest.mark.parametrize(
    ("engines", "out", "share", "may"),
    [
        (1, 0, 1.0, False),
        (2, 0, 0.5, True),
        (2, 1, 0.5, False),
        (3, 0, 0.1, True),  # one may always go
        (4, 1, 0.5, True),
        (4, 2, 0.5, False),
        (4, 3, 1.0, True),
    ],
)
def test_no_more_than_a_share_is_out(engines: int, out: int, share: float, may: bool) -> None:
    assert may_eject(engines, out, share) is may


@pytest.mark.parametrize(
    ("refusal", "fault"),
    [
        (refusals.by_backend(500), True),
        (refusals.backend_down("the engine hung up"), True),
        (refusals.pushback(429), None),
        (refusals.pushback(503), None),
        (refusals.by_backend(400), None),
        (refusals.fault(), None),
        (refusals.cancelled(Outcome.CANCELLED, Reason.CLIENT_GONE), None),
    ],
)
def test_only_the_engines_own_faults_count(refusal: Refusal, fault: bool | None) -> None:
    assert is_fault(refusal.outcome, refusal.reason) is fault


@pytest.mark.parametrize(
    ("refusal", "fault"),
    [
        (refusals.cancelled(Outcome.CANCELLED, Reason.CLIENT_GONE), True),
        (refusals.cancelled(Outcome.DEADLINE, Reason.DEADLINE_IN_DECODE), True),
        (refusals.cancelled(Outcome.DRAINING, Reason.OPERATOR), None),
        (refusals.pushback(429), None),
    ],
)
def test_what_is_given_up_while_an_engine_hangs_is_its_fault(
    refusal: Refusal, fault: bool | None
) -> None:
    assert is_fault(refusal.outcome, refusal.reason, silent=True) is fault


def faults_until_out(*met: Met) -> int:
    """Faults in a row that eject, met by these in turn."""
    standing, count = Standing(), 0
    while not standing.out(0.0):
        by = met[count % len(met)]
        standing = observed(standing, True, CONFIG, 0.0, may_go=True, met=by)
        count += 1
    assert (standing.faults, standing.repeats, standing.met) == (0, 0, frozenset())
    return count


def asked(caller: str, *requests: int) -> list[Met]:
    return [Met(caller, b"%d" % each) for each in requests]


@pytest.mark.parametrize(
    ("met", "faults"),
    [
        (asked("", *range(99)), 3),  # nobody says who asks
        (asked("ann", *range(99)), 12),
        ([*asked("ann", 1, 2), *asked("bob", 1)], 3),
        ([*asked("ann", 1, 2), Met()], 3),  # a connection was lost: anybody's would have been
        (asked("", 1), 9),  # 1 + 8 / 4
        (asked("", 1, 2), 6),  # 2 + 4 / 4
        ([Met()], 3),
    ],
)
def test_whose_requests_fail_counts(met: list[Met], faults: int) -> None:
    assert faults_until_out(*met) == faults


def test_an_answer_begins_a_new_row() -> None:
    standing = Standing()
    for each in asked("ann", *range(11)):
        standing = observed(standing, True, CONFIG, 0.0, may_go=True, met=each)
    assert (standing.faults, len(standing.met)) == (11, 11)
    assert observed(standing, False, CONFIG, 0.0, may_go=True) == Standing()


def test_what_is_kept_of_a_row_is_bounded() -> None:
    standing = Standing()
    for each in asked("ann", *range(99)):
        standing = observed(standing, True, CONFIG, 0.0, may_go=False, met=each)
    assert (standing.faults, len(standing.met)) == (99, 12)


def test_only_an_answer_of_5xx_may_be_the_requests_fault() -> None:
    assert met_by("ann", b"1", Reason.ENGINE_ERROR) == Met("ann", b"1")
    assert (
        met_by("ann", b"1", Reason.ENGINE_LOST) == met_by("bob", b"2", Reason.CLIENT_GONE) == Met()
    )


def test_an_answer_shows_that_it_works() -> None:
    assert is_fault(Outcome.OK, Reason.NONE) is False


def test_nothing_is_ejected_where_that_is_off() -> None:
    config = RoutingConfig(eject_after=0)
    standing = Standing()
    for _ in range(100):
        standing = observed(standing, True, config, 0.0, may_go=True)
    assert not standing.out(0.0)
