"""The step model finds the coefficients, stays non-negative, and shrugs off a stall."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surgetank.telemetry.stepmodel import ENOUGH, StepFit, StepModel

TRUTH = StepModel(t0=0.02, a=0.0012, b=0.006, c=1e-5)


def steps(fit: StepFit, model: StepModel, count: int, *, noise: float = 0.0, seed: int = 1) -> None:
    """Mixed steps: mostly decoding, every fourth with a chunk of prompt."""
    rng = random.Random(seed)
    batch = 4
    for _ in range(count):
        batch = max(1, min(32, batch + rng.choice([-1, 0, 1])))
        resident = batch * rng.uniform(100, 400)
        prefill = rng.choice([0, 0, 0, rng.randrange(1, 512)])
        factor = max(0.3, rng.gauss(1.0, noise))
        fit.learn(prefill, batch, resident, model.seconds(prefill, batch, resident) * factor)


def test_there_is_no_model_before_there_is_enough_to_go_by() -> None:
    fit = StepFit()
    steps(fit, TRUTH, ENOUGH - 1)
    assert fit.model is None
    assert not fit.alarm
    steps(fit, TRUTH, 1)
    assert fit.model is not None


def test_exact_steps_give_exact_coefficients() -> None:
    fit = StepFit()
    steps(fit, TRUTH, 300)
    model = fit.model
    assert model is not None
    for name in ("t0", "a", "b", "c"):
        assert getattr(model, name) == pytest.approx(getattr(TRUTH, name), rel=1e-3)
    assert fit.error < 0.01


def test_noisy_steps_are_predicted_within_their_noise_and_the_alarm_is_silent() -> None:
    fit = StepFit()
    steps(fit, TRUTH, 2000, noise=0.05)
    model = fit.model
    assert model is not None
    for size in ((0, 8, 2000), (256, 16, 4000), (0, 30, 8000)):
        assert model.seconds(*size) == pytest.approx(TRUTH.seconds(*size), rel=0.05)
    assert 0.02 < fit.error < 0.1
    assert not fit.alarm


def test_one_stalled_step_hardly_moves_it() -> None:
    fit = StepFit()
    steps(fit, TRUTH, 500)
    fit.learn(0, 8, 2000, 10.0)
    model = fit.model
    assert model is not None
    assert model.seconds(0, 8, 2000) == pytest.approx(TRUTH.seconds(0, 8, 2000), rel=0.01)


def test_a_lasting_change_raises_the_alarm_and_is_learned() -> None:
    fit = StepFit()
    steps(fit, TRUTH, 1000)
    slow = StepModel(t0=0.06, a=0.0036, b=0.018, c=3e-5)
    steps(fit, slow, 100, seed=2)
    assert fit.alarm
    steps(fit, slow, 6000, seed=3)
    model = fit.model
    assert model is not None
    assert model.seconds(100, 8, 2000) == pytest.approx(slow.seconds(100, 8, 2000), rel=0.05)


def test_a_term_that_would_have_to_be_negative_is_0() -> None:
    fit, rng = StepFit(), random.Random(4)
    for _ in range(400):
        resident = rng.uniform(0, 50_000)
        fit.learn(0, rng.randrange(1, 32), resident, 0.1 - 1e-6 * resident)
    assert fit.model is not None
    assert fit.model.c == 0.0
    assert fit.model.t0 > 0.0


@given(
    st.lists(
        st.tuples(
            st.integers(0, 4096), st.integers(0, 64), st.integers(0, 100_000), st.floats(1e-4, 20)
        ),
        max_size=120,
    )
)
def test_no_coefficient_is_ever_negative(rows: list[tuple[int, int, int, float]]) -> None:
    fit = StepFit()
    for row in rows:
        fit.learn(*row)
        assert 0.0 <= fit.error <= 1.0
    if fit.model is not None:
        assert min(fit.model.t0, fit.model.a, fit.model.b, fit.model.c) >= 0.0
