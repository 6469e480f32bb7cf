"""The limit of open files."""

import resource

import pytest

from surgetank.control.openfiles import raise_limit


@pytest.mark.parametrize(("soft", "hard", "after"), [(256, 4096, 4096), (1024, -1, 1 << 20)])
def test_the_soft_limit_is_raised_to_the_hard_one(
    soft: int, hard: int, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: set_to.append(limits))
    assert raise_limit() == after
    assert set_to == [(hard, hard)]


def test_nothing_is_changed_where_nothing_can_be_gained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (512, 512))
    monkeypatch.delattr(resource, "setrlimit")
    assert raise_limit() == 512
