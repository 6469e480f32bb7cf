"""The ledger tells what the engine may not have heard of yet: that is no drift."""

from dataclasses import replace

import pytest
from tests.admission.virtual_engine import Service
from tests.fakes import step_record

from surgetank.admission.permit import Ledger


def test_changes_are_unheard_until_the_second_report() -> None:
    ledger = Ledger()
    permit = ledger.take(3, 1)
    ledger.take(1, 1)
    assert ledger.unheard == (4, 0)
    ledger.reported()
    assert ledger.unheard == (4, 0)
    permit.success()
    assert ledger.unheard == (4, 3)
    ledger.reported()
    assert ledger.unheard == (0, 3)
    ledger.reported()
    assert ledger.unheard == (0, 0)


@pytest.mark.parametrize(
    ("ours", "unheard", "drift"),
    [
        (5, (0, 0), 0),
        (15, (10, 0), 0),  # ten are on their way
        (15, (4, 0), 6),  # six are lost
        (2, (0, 3), 0),  # three were taken back, which it has not heard
        (2, (7, 0), -3),  # three are somebody else's
        (5, (4, 4), 0),
    ],
)
def test_drift_is_what_messages_on_their_way_do_not_explain(
    ours: int, unheard: tuple[int, int], drift: int
) -> None:
    desk = replace(
        Service().desk.snapshot(),
        last_step=step_record(running=(0, 4, 0, 0), waiting=(0, 1, 0, 0)),
        dispatched_seqs=ours,
        unheard=unheard,
    )
    assert desk.ledger_drift == drift
