"""Sequences that others have in an engine are room that the gate does not have."""

from math import inf

import pytest
from tests.admission.rig import Rig
from tests.fakes import step_record, tiny_card

from surgetank.admission.gate import GateConfig
from surgetank.admission.routing.others import kv_held, left
from surgetank.engine.api import StepOutput


def settled(gates: int, slots: float, ours: float) -> list[float]:
    """What each of several has in the end, where the first began with `ours`."""
    have = [ours] + [0.0] * (gates - 1)
    for _ in range(400):
        for gate in range(gates):
            others = sum(have) - have[gate]
            have[gate] = left(slots, others) if others else slots
    return have


def test_without_others_all_is_ours_and_with_them_a_tenth_of_what_we_hold_stays_free() -> None:
    assert left(64.0, 0) == 64.0
    assert left(64.0, 20) == pytest.approx(40.0)
    assert 10 * (64 - 20 - 40) == 40  # what we hold is ten times what stays free
    assert left(inf, 5.0) == inf


@pytest.mark.parametrize("gates", [2, 3, 5])
def test_all_come_to_the_same_from_wherever_they_begin(gates: int) -> None:
    assert settled(gates, 64.0, 63.0) == pytest.approx([64.0 / (gates + 0.1)] * gates)


def test_who_holds_nothing_back_leaves_us_a_tenth() -> None:
    assert left(64.0, 500) == 6.4


def test_others_hold_of_the_memory_their_part_of_the_sequences() -> None:
    assert kv_held(900.0, 3, 6) == 300.0
    assert kv_held(900.0, 0, 0) == 0.0


def test_they_are_taken_off_slots_and_memory_until_they_are_gone() -> None:
    rig = Rig(card=tiny_card(max_num_seqs=12, kv_blocks=100, max_batch_tokens=4096))
    others(rig, 8, kv_used=60)
    engine = rig.desk.snapshot().engines[0]
    assert engine.others == 8
    assert engine.slots == pytest.approx(4 / 1.1)
    for _ in range(9):
        rig.send(prompt=16 * 4, max_tokens=16)  # 5 blocks
    assert len(rig.backend.started) == 3  # slots
    others(rig, 1, kv_used=99)
    assert len(rig.backend.started) == 9  # a quarter of 99 blocks is theirs: 60 are ours
    rig.send(prompt=16 * 16, max_tokens=16)
    assert len(rig.backend.started) == 9
    others(rig, 0, kv_used=99)
    assert len(rig.backend.started) == 10


def test_a_limit_is_of_ours_alone() -> None:
    rig = Rig(GateConfig(in_flight_seqs=3), card=tiny_card(max_num_seqs=12))
    for sequences, slots in ((8, 3.0), (9, 3.0 / 1.1)):
        others(rig, sequences, kv_used=0)
        assert rig.desk.snapshot().engines[0].slots == pytest.approx(slots)


def test_the_first_of_ours_goes_in_however_many_they_are() -> None:
    rig = Rig(card=tiny_card(max_num_seqs=4))
    others(rig, 50, kv_used=512)
    rig.send()
    rig.send()
    assert len(rig.backend.started) == 1


def others(rig: Rig, sequences: int, kv_used: int) -> None:
    """The engine tells of them."""
    record = step_record(others=sequences, kv_used=kv_used, kv_free=100, prefill_tokens=9999)
    rig.desk.engines.watchers[0].on_step(StepOutput([], [], record))
