"""The KV gate where an engine tells the share of its pool in use, and maybe not the pool's size."""

import pytest
from tests.admission.rig import Rig
from tests.fakes import step_record, tiny_card

from surgetank.engine.api import StepOutput
from surgetank.telemetry.vocabulary import Outcome, Priority, Reason


def told(rig: Rig, used: int, of: int = 1000) -> None:
    """The engine says how full its pool is."""
    record = step_record(kv_used=used, kv_cached=0, kv_free=of - used)
    rig.desk.engines.watchers[0].on_step(StepOutput([], [], record))


@pytest.mark.parametrize("blocks", [0, 512], ids=["unknown size", "known size"])
def test_a_share_is_enough_to_keep_low_classes_out_and_let_them_in_again(blocks: int) -> None:
    rig = Rig(card=tiny_card(kv_blocks=blocks))
    told(rig, 930)
    batch = rig.send(priority=Priority.BATCH)
    assert batch.refusal is not None
    assert (batch.refusal.reason, batch.outcome) == (Reason.KV_PRESSURE, Outcome.OVERLOAD)
    assert batch.refusal.measured == pytest.approx(0.93)
    assert rig.send().outcome is None
    told(rig, 850)
    assert rig.send(priority=Priority.BATCH).outcome is Outcome.OVERLOAD  # not yet below the lower
    told(rig, 700)
    assert rig.send(priority=Priority.BATCH).outcome is None


def test_where_both_are_known_the_larger_counts() -> None:
    rig = Rig(card=tiny_card(kv_blocks=100))
    rig.send(prompt=16 * 48, max_tokens=16 * 2)
    told(rig, 10)
    assert rig.desk.snapshot().laws.kv_used == pytest.approx(0.5)
    told(rig, 600)
    assert rig.desk.snapshot().laws.kv_used == pytest.approx(0.6)


def test_where_nothing_is_told_nothing_is_known() -> None:
    rig = Rig(card=tiny_card(kv_blocks=0))
    assert rig.desk.snapshot().laws.kv_used is None
    told(rig, 0, of=0)
    assert rig.desk.snapshot().laws.kv_used is None
    assert rig.send(priority=Priority.SHEDDABLE).outcome is None
