"""docs/policies.md is what the code says."""

from pathlib import Path

from surgetank.admission.policies.table import PLUGINS
from surgetank.control.policies.page import markdown
from surgetank.control.policies.table import POLICIES

PAGE = Path(__file__).parents[3] / "docs" / "policies.md"


def test_the_page_is_current() -> None:
    again = "surgetank docs policies --out docs/policies.md"
    assert PAGE.read_text("utf-8") == markdown(), f"run: {again}"


def test_every_policy_says_what_it_does() -> None:
    page = markdown()
    for name, made in (PLUGINS | POLICIES).items():
        assert made.help
        assert f"| `{name}` | " in page
