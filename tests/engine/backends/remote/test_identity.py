"""A process that was started anew between two looks shows it; several behind one address do not."""

import pytest

from surgetank.engine.backends.remote.found import Look, Signals
from surgetank.engine.backends.remote.identity import TOO_SOON, Identity


def produced(tokens: float | None) -> Look:
    return Look(Signals(output_tokens=tokens))


def began(at: float | None) -> Look:
    return Look(Signals(), began=at)


def shown(*looks: Look) -> list[str]:
    identity = Identity()
    return [identity.changed(look) for look in looks]


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (produced(9.0), produced(2.0), "its output_tokens fell"),
        (produced(9.0), produced(9.0), ""),
        (produced(9.0), produced(12.0), ""),
        (
            Look(Signals(prompt_tokens=5.0)),
            Look(Signals(prompt_tokens=0.0)),
            "its prompt_tokens fell",
        ),
        (Look(Signals(), uptime=60.0), Look(Signals(), uptime=1.0), "its uptime fell"),
        (began(1000.0), began(1060.0), "its process began at another time"),
        (began(1000.0), began(1000.0), ""),
        (Look(Signals(running=4.0)), Look(Signals(running=0.0)), ""),  # that may fall
    ],
)
def test_what_only_a_restart_changes_shows_it(before: Look, after: Look, why: str) -> None:
    assert shown(before, after) == ["", why]


def test_a_look_that_told_nothing_is_passed_over() -> None:
    assert shown(produced(9.0), produced(None), produced(8.0))[2] == "its output_tokens fell"
    assert shown(began(1.0), began(None), began(1.0), began(None), began(2.0))[2:] == [
        *("", ""),
        "its process began at another time",
    ]


def test_several_processes_behind_one_address_are_no_restarts() -> None:
    """One of two answers in turn: after the first change it is clear."""
    told = shown(*[began(1.0), began(2.0)] * 20)
    assert [bool(why) for why in told] == [False, True, *[False] * 38]


def test_a_restart_now_and_then_is_one() -> None:
    looks = [began(float(number // TOO_SOON)) for number in range(4 * TOO_SOON)]
    assert sum(map(bool, shown(*looks))) == 3
