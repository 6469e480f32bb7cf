"""Sidecars before one engine that tells its count once a second: each leaves the others room."""

import pytest
from tests.admission.shared_engine import Shared


def test_alone_it_has_all_of_the_engine() -> None:
    assert sum(Shared(1).call(3.0, 30.0)) > 0.95


@pytest.mark.parametrize(("sidecars", "together", "blind"), [(2, 0.88, 0.8), (3, 0.78, 0.72)])
def test_at_four_times_the_load_they_serve_most_of_what_one_does(
    sidecars: int, together: float, blind: float
) -> None:
    """`blind`: where each takes the engine for its own."""
    assert sum(Shared(sidecars).call(4.0, 30.0)) > together
    assert sum(Shared(sidecars, shares=False).call(4.0, 30.0)) < blind


def test_one_that_comes_when_another_holds_everything_soon_has_its_part() -> None:
    shared = Shared(2)
    shared.call(3.0, 15.0, at=[0])
    shared.call(3.0, 10.0)
    first, second = shared.call(3.0, 10.0)
    assert second > 0.5 * first
