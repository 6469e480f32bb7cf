"""Settings that cannot work together are named with their values; the defaults can."""

import logging

import pytest
from tests.admission.rig import Rig
from tests.fakes import tiny_card

from surgetank.admission.gate import GateConfig
from surgetank.admission.laws_config import LawsConfig
from surgetank.admission.lint import lint, lint_engine
from surgetank.telemetry.slo import SloTargets


def test_the_defaults_are_sound() -> None:
    assert lint(GateConfig(), SloTargets()) == []
    assert lint_engine(GateConfig(), tiny_card()) == []


@pytest.mark.parametrize(
    ("config", "finding"),
    [
        (GateConfig(kv_reserve_low=0.95), "gate.kv_reserve_low is 0.95: it can never bind"),
        (GateConfig(kappa=1.5), "gate.kappa is 1.5"),
        (GateConfig(in_flight_seqs=2), "gate.laws.least_batch is 4"),
        (GateConfig(queue_wait=0.5), "gate.laws.patience_default allows a wait of 0.7 s"),
        (GateConfig(laws=LawsConfig(patience_batch=20)), "hints end at 10 s"),
        (GateConfig(laws=LawsConfig(patience_default=0.5)), "do not ascend"),
    ],
)
def test_what_contradicts_is_named(config: GateConfig, finding: str) -> None:
    assert any(finding in sentence for sentence in lint(config, SloTargets()))


def test_fixed_limits_alone_know_no_such_waits() -> None:
    config = GateConfig(kappa=1.5, queue_wait=0.5, laws=LawsConfig(dynamic=False))
    assert lint(config, SloTargets()) == []


@pytest.mark.parametrize(
    ("config", "finding"),
    [
        (GateConfig(in_flight_seqs=64), "gate.in_flight_seqs is 64: it can never bind"),
        (GateConfig(max_output_tokens=9000), "gate.max_output_tokens is 9000"),
        (GateConfig(queue_tokens=1000), "gate.queue_tokens is 1000: prompts between"),
    ],
)
def test_limits_that_the_engine_makes_pointless_are_named(config: GateConfig, finding: str) -> None:
    (sentence,) = lint_engine(config, tiny_card())
    assert finding in sentence


def test_findings_are_logged_at_the_start_and_when_the_engine_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        Rig(GateConfig(kappa=1.2, in_flight_seqs=64))
    assert "gate.kappa is 1.2" in caplog.text
    assert "gate.in_flight_seqs is 64" in caplog.text
