"""The laws as arithmetic: each formula on numbers that can be checked by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import step_record

from surgetank.admission.backlog import PrefillBacklog
from surgetank.admission.binding import added_seconds, largest_batch
from surgetank.admission.cost import engine_seconds
from surgetank.admission.engine_view import EngineView, Rates
from surgetank.admission.headroom import headroom, low_batch, noticed
from surgetank.admission.kv import Pressure, blocks_for
from surgetank.admission.line import Line, Work
from surgetank.admission.output_length import ENOUGH, OutputLengths
from surgetank.admission.ration import Ration
from surgetank.admission.served import FadingRate, ServedRates
from surgetank.admission.threshold import queue_bound, threshold
from surgetank.admission.wait import GAMMA_RANGE, Calibration, Wait, reading
from surgetank.telemetry.stepmodel import StepModel
from surgetank.telemetry.vocabulary import Priority

MODEL = StepModel(t0=0.01, a=0.001, b=0.002, c=1e-6)
RATES = Rates(MODEL, drain=0.5, batch=10, chunk=100, decoding=5, resident=1000, tpot=0.02)


def test_a_request_costs_its_prompt_its_share_of_steps_and_its_context() -> None:
    # .1 for the prompt; 50 * (.01/10 + .002) = .15; 1e-6 * (100*50 + 50*50/2) = .00625
    assert engine_seconds(MODEL, 10, 100, 50, 1) == pytest.approx(0.25625)
    assert engine_seconds(MODEL, 10, 100, 50, 3) == pytest.approx(0.1 + 3 * 0.15625)


def test_the_wait_is_the_longer_of_slots_and_prompts_corrected_plus_the_silence() -> None:
    # a full step of 100 prompt tokens: .01 + .1 + .01 + .001 = .121, twice that at half the drain
    wait = Wait(0.3, reading(RATES, 250), age=0.0, gamma=1.5)
    assert wait.prefill == pytest.approx(2.5 * 0.242)
    assert wait.seconds == pytest.approx(1.5 * 2.5 * 0.242)
    assert wait.binding == "prefill"
    assert Wait(0.9, 0.2, 0.1).binding == "slot"
    assert Wait(0.1, 0.2, 0.7).binding == "age"
    assert Wait(0.1, 0.2, 0.7, gamma=2.0).seconds == pytest.approx(1.1)


def test_the_threshold_is_the_tighter_of_target_and_deadline() -> None:
    assert threshold(0.6, 1.0, math.inf, 0.0).seconds == pytest.approx(0.6)
    tight = threshold(0.6, 1.0, 0.5, 0.0)
    assert tight.seconds == pytest.approx(0.5), "a caller's own slack has no reserve"
    assert tight.by_deadline
    assert not threshold(0.6, 1.0, 0.7, 0.0).by_deadline
    assert threshold(0.6, 1.0, -3.0, 0.0).seconds == 0.0
    assert threshold(0.6, 1.0, math.inf, 0.7).seconds == pytest.approx(0.3)
    assert threshold(0.6, 1.0, math.inf, 5.0).seconds == 0.0
    assert queue_bound(0.6, drain=0.5, mean_cost=0.03) == pytest.approx(10)


def test_the_queue_bound_falls_with_the_drain_rate_and_with_dearer_requests() -> None:
    usual = queue_bound(0.6, 1.0, 0.03)
    assert queue_bound(0.6, 0.5, 0.03) == pytest.approx(usual / 2)
    assert queue_bound(0.6, 1.0, 0.12) == pytest.approx(usual / 4)


def test_the_largest_batch_keeps_tpot() -> None:
    # each sequence: .001*100/50 + .002 + 1e-6*125 = .004125; (.09 - .01) / .004125 = 19.4
    batch = largest_batch(MODEL, target=0.1, prompt=100, output=50, least=4)
    assert batch == pytest.approx(19.39, rel=1e-3)
    assert largest_batch(MODEL, target=0.005, prompt=100, output=50, least=4) == 4
    free = StepModel(t0=0.01, a=0, b=0, c=0)
    assert largest_batch(free, target=0.1, prompt=100, output=50, least=4) == math.inf


def test_higher_classes_stretch_a_wait_and_the_floor_bounds_it() -> None:
    def line(rate: float) -> Line:
        return Line(Work(1.0, 100), rate, Work(2.0, 200), 0.0, 1, 9.0)

    assert line(0.0).seconds(1.0, 0.05, 0.5) == pytest.approx(3.5)
    assert line(0.5).seconds(1.0, 0.05, 0.5) == pytest.approx(7.0)
    assert line(3.0).seconds(1.0, 0.05, 0.5) == pytest.approx(3.5 / 0.05)
    assert line(0.5).tokens(1.0, 0.05) == pytest.approx(600)


def test_a_hogs_queue_is_not_the_others_wait() -> None:
    hogs = Work(20.0, 2000)
    newcomer = Line(Work(), 0.0, hogs, peers_rate=1.0, tenants=2, turns=0.06)
    assert newcomer.seconds(1.0, 0.05, 0.0) == pytest.approx(0.06)
    assert newcomer.tokens(1.0, 0.05) == pytest.approx(6)
    hog = Line(Work(), 0.0, hogs, peers_rate=0.4, tenants=2, turns=40.0)
    assert hog.seconds(1.0, 0.05, 0.0) == pytest.approx(20 / 0.6)


def test_gamma_follows_what_waits_turned_out_to_be_class_by_class() -> None:
    calibration = Calibration()
    for _ in range(200):
        calibration.observe(Priority.BATCH, 0.2, 0.3)
        calibration.observe(Priority.DEFAULT, 0.2, 9.0)
        calibration.observe(Priority.CRITICAL, 0.001, 9.0)  # too short to say anything
    assert calibration.gamma(Priority.BATCH) == pytest.approx(1.5, rel=0.01)
    assert calibration.gamma(Priority.DEFAULT) == pytest.approx(GAMMA_RANGE[1], rel=0.01)
    assert calibration.gamma(Priority.CRITICAL) == 1.0


def test_silence_counts_beyond_what_a_step_may_take() -> None:
    view = EngineView(8, 256)
    assert view.age(0.2) == 0.0
    assert view.age(1.0) == pytest.approx(0.75)
    view.rates = RATES
    assert view.age(1.0) == pytest.approx(1.0 - 2 * 0.242)
    assert view.age(None) == 0.0


def test_blocks_are_counted_once_for_the_prompt_and_for_each_choice_beyond() -> None:
    assert blocks_for(160, 160, 1, 16) == 20
    assert blocks_for(20, 12, 2, 16) == 3
    assert blocks_for(1, 1, 1, 16) == 1


def test_kv_pressure_closes_high_and_opens_low() -> None:
    pressure = Pressure()
    seen = [pressure.update(used, low=0.8, high=0.92) for used in (0.9, 0.92, 0.85, 0.79, 0.9)]
    assert seen == [False, True, True, False, False]


def test_headroom_covers_what_the_classes_above_bring_in_a_turnover() -> None:
    assert headroom(0.0, 1.0) == 0
    assert headroom(0.3, 1.0) == 2
    assert headroom(0.3, 0.3) == 4
    assert headroom(4.0, 1.0) == 9


def test_low_classes_leave_steps_short_for_those_above() -> None:
    assert not noticed(0.009, 1.0)
    assert noticed(0.009, 0.5)
    each = added_seconds(StepModel(0.006, 25e-6, 50e-6, 40e-9), 640.0, 80.0)
    assert each == pytest.approx(0.0002 + 0.00005 + 0.0000272)
    assert low_batch(0.3, 25e-6 * 1024, each) == pytest.approx(27.7, abs=0.1)
    assert low_batch(0.3, 0.0256, 0.0) == math.inf


def test_the_chunk_is_what_steps_have_room_for() -> None:
    view = EngineView(8, 256)
    for _ in range(200):
        view.stepped(step_record(prefill_tokens=10, prefill_budget=100), waiting=False)
    assert view.chunk == pytest.approx(100, rel=0.01)


def test_output_lengths_are_learned_from_their_like() -> None:
    lengths = OutputLengths(0.7)
    assert lengths.expected("a", "http", 500).mean == 500
    for tokens in range(10, 10 + 10 * ENOUGH, 10):
        lengths.observe("a", "http", 500, tokens)
    seen = lengths.expected("a", "http", 500)
    assert (seen.mean, seen.high) == (45.0, 60)
    assert lengths.expected("b", "grpc", 400).mean == 45.0, "everybody's of that size"
    assert lengths.expected("b", "grpc", 30).mean == 30, "four powers below would be a guess"
    assert lengths.expected("a", "http", 1000).mean == 90.0, "in proportion"
    assert lengths.expected("a", "http", 100_000).mean == 100_000


@given(st.lists(st.tuples(st.sampled_from("drsl"), st.sampled_from(Priority)), max_size=80))
def test_the_backlog_stays_within_what_awaits_its_first_token(
    events: list[tuple[str, Priority]],
) -> None:
    backlog, silent = PrefillBacklog(), []
    for what, priority in events:
        if what == "d":
            backlog.dispatched(priority, 100)
            silent.append(priority)
        elif what == "r":
            backlog.read(70)
        elif silent:
            backlog.settled(silent.pop(0), 100)
        assert 0 <= backlog.tokens <= 100 * len(silent)
        befores = [backlog.before(each) for each in Priority]
        assert befores == sorted(befores)
        assert befores[-1] == backlog.tokens


@given(st.lists(st.floats(0, 1), min_size=1, max_size=200))
def test_a_ration_lets_its_share_through_to_within_one(shares: list[float]) -> None:
    ration = Ration()
    counted = [share for share in shares if share < 1.0]
    passed = sum(ration.passes(share) for share in shares if share < 1.0)
    assert sum(counted) - 1.0 - 1e-6 <= passed <= sum(counted) + 1e-6


def test_a_fading_rate_is_the_flow_and_fades_when_it_stops() -> None:
    rates = ServedRates()
    for tick in range(600):
        rates.add("a" if tick % 4 else "b", 0.05, tick * 0.1)
    assert rates.total(60.0) == pytest.approx(0.5, rel=0.05)
    assert rates.others("b", 60.0) == pytest.approx(0.375, rel=0.05)
    assert rates.total(65.0) == pytest.approx(0.25, rel=0.05)
    assert FadingRate().per_second(9.0) == 0.0
