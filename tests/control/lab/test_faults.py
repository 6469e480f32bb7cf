"""Faults as words."""

import pytest

from surgetank.control.lab.faults import Fault, FaultError, FaultKind, parse_fault


def test_forms() -> None:
    assert parse_fault("stall@20+10") == Fault(kind=FaultKind.STALL, at=20, seconds=10)
    assert parse_fault("slow@1.5+2x3") == Fault(kind=FaultKind.SLOW, at=1.5, seconds=2, value=3)
    assert parse_fault("kv-loss@5+1x0.25").value == 0.25
    assert parse_fault("redis-loss@5+9") == Fault(kind=FaultKind.REDIS_LOSS, at=5, seconds=9)
    assert parse_fault("redis-restart@5") == Fault(kind=FaultKind.REDIS_RESTART, at=5)
    assert parse_fault("redis-restart@5+2").seconds == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stall", "not of the form"),
        ("fire@1+1", "not a valid FaultKind"),
        ("slow@1+1x0.5", "value of slow is 0.5; allowed: 1 to 1000"),
        ("kv-loss@1+1x2", "value of kv-loss is 2; allowed: 0 to 1"),
        ("stall@1+0", "greater than 0"),
    ],
)
def test_what_is_wrong_is_told(text: str, said: str) -> None:
    with pytest.raises(FaultError, match=said):
        parse_fault(text)
