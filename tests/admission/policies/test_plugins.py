"""Policies of other distributions: found by their entry points, and named when they are broken."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.admission.rig import Rig, refused

from surgetank.admission.gate import GateConfig
from surgetank.admission.policies.plugins import PolicyError, admission_plugin, foreign
from surgetank.control.policies.plugins import Kind, control_policies, offers
from surgetank.control.policies.table import POLICIES

SOURCE = """
from surgetank.admission.outcome import Refusal
from surgetank.admission.policies.policy import Admission, Plugin
from surgetank.control.policies.policy import stateless
from surgetank.admission.limits import Limit
from surgetank.telemetry.vocabulary import Outcome, Reason

class Short:
    def __init__(self, site):
        self.queue = site.queue
    def decide(self, ticket, card, now, stalled_for):
        if ticket.prompt_tokens > 10:
            return Refusal(Outcome.OVERLOAD, Reason.QUEUE_TOKENS, "only short ones at night")
        return Admission()
    def ended(self, ticket, now):
        pass

short = Plugin(Short, "short prompts only")
night = stateless(lambda config, snapshot: {Limit.KAPPA: 0.3}, "less at night")
neither = 3
"""
POINTS = """[surgetank.policies]
short = night_shift:short
night = night_shift:night
neither = night_shift:neither
absent = night_shift:absent
nowhere = no_such_package:policy
laws = night_shift:short
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution `night-shift` 1.2 on the import path."""
    (tmp_path / "night_shift.py").write_text(SOURCE)
    info = tmp_path / "night_shift-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: night-shift\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("night_shift", None)


@pytest.mark.usefixtures("installed")
def test_one_of_another_distribution_decides() -> None:
    rig = Rig(GateConfig(policy="short"))
    assert rig.send(prompt=10).refusal is None
    assert refused(rig.send(prompt=11)).message == "only short ones at night"
    assert foreign()["short"].source == "night-shift 1.2"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "absent",
            r"policy 'absent' of night-shift 1.2 \(night_shift:absent\) fails to load: Attr",
        ),
        ("nowhere", "fails to load: ModuleNotFoundError: No module named 'no_such_package'"),
        ("neither", "policy 'neither' of night-shift 1.2 is no admission policy"),
        ("night", "policy 'night' of night-shift 1.2 is no admission policy"),
        ("day", "no policy 'day'; there are: laws, .*, night"),
    ],
)
def test_what_cannot_be_used_is_named(name: str, said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        admission_plugin(name)


@pytest.mark.usefixtures("installed")
def test_the_table_shows_both_kinds_and_what_is_wrong() -> None:
    table = offers()
    assert (table["short"].kind, table["short"].help) == (Kind.ADMISSION, "short prompts only")
    assert (table["night"].kind, table["night"].source) == (Kind.CONTROL, "night-shift 1.2")
    assert table["neither"].problem == (
        "policy 'neither' of night-shift 1.2 is of type int; allowed: Plugin, Policy"
    )
    assert table["laws"].source.startswith("surgetank ")
    assert "the name is taken" in str(table["laws (night-shift 1.2)"].problem)


@pytest.mark.usefixtures("installed")
def test_control_policies_by_name_and_in_order() -> None:
    assert [*control_policies(("recovery", "static"))] == ["recovery", "static"]
    assert control_policies(("static", "night"))["night"].help == "less at night"
    for name, said in (
        ("laws", "policy 'laws' of surgetank .* is no control policy"),
        (
            "dawn",
            "no policy 'dawn'; there are: static, waste, concurrency, brownout, recovery, night",
        ),
        ("nowhere", "No module named"),
    ):
        with pytest.raises(PolicyError, match=said):
            control_policies(("static", name))
    assert [*POLICIES] == ["static", "waste", "concurrency", "brownout", "recovery"]
