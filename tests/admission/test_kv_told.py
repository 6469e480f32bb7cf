"""The KV gate where an engine tells the share of its pool in use, and maybe not the pool's size."""

import pytest
from tests.admission.rig import Rig, refused
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


def test_promises_are_made_of_what_the_engine_lets_its_sequences_hold() -> None:
    """As it was started, and as it says that it was told since: else it would take what the gate
    sends, and hold it back in a line of its own."""
    rig = Rig(card=tiny_card(kv_blocks=100, kv_watermark=0.5, max_num_seqs=8))
    sent = [rig.send(prompt=16 * 14, max_tokens=16) for _ in range(4)]  # 15 blocks each
    assert len(rig.backend.started) == 3  # 45 of 46
    assert rig.desk.snapshot().engines[0].kv_promised == pytest.approx(0.9)
    limit(rig, 100)
    assert len(rig.backend.started) == 4
    limit(rig, 60)
    assert rig.desk.snapshot().laws.kv_used == pytest.approx(1.0)
    rig.backend.finish(1)
    rig.send(prompt=16 * 14, max_tokens=16)
    assert len(rig.backend.started) == 4  # 60 of 55
    limit(rig, 0)  # what is not told changes nothing
    assert rig.desk.snapshot().engines[0].kv_promised == pytest.approx(0.75)
    assert [door.refusal for door in sent] == [None] * 4


def test_what_never_fits_there_is_refused_at_once() -> None:
    rig = Rig(card=tiny_card(kv_blocks=100, kv_watermark=0.5))
    refusal = refused(rig.send(prompt=16 * 50, max_tokens=16))
    assert (refusal.reason, refusal.outcome) == (Reason.NEVER_FITS_KV, Outcome.INVALID)
    assert (refusal.measured, refusal.limit) == (51, 50)


def limit(rig: Rig, blocks: int) -> None:
    """The engine says how many blocks its sequences may hold."""
    record = step_record(kv_used=0, kv_cached=0, kv_free=100, kv_limit=blocks, prefill_tokens=9999)
    rig.desk.engines.watchers[0].on_step(StepOutput([], [], record))
