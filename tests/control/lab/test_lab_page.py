"""docs/lab.md says what was measured, and tells a bar that is met from one that is not."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from surgetank.control.cli import main
from surgetank.control.lab.headline.page import markdown
from surgetank.control.lab.headline.table import EXPERIMENTS

ROOT = Path(__file__).parents[3]
FIGURES = ROOT / "docs/measured/lab-headline.json"


def test_the_page_is_current() -> None:
    again = "surgetank docs lab --out docs/lab.md"
    page = markdown(json.loads(FIGURES.read_text("utf-8")))
    assert page == (ROOT / "docs/lab.md").read_text("utf-8"), f"run: {again}"


def test_the_figures_are_of_every_experiment_and_at_least_ten_seeds() -> None:
    document = json.loads(FIGURES.read_text("utf-8"))
    assert [each["name"] for each in document["experiments"]] == [
        each.name for each in EXPERIMENTS.values()
    ]
    for told, experiment in zip(document["experiments"], EXPERIMENTS.values(), strict=True):
        assert set(told["bar"]) == {bar.key for bar in experiment.bars}
    assert len(set(document["seeds"])) >= 10


def test_a_bar_is_met_or_not() -> None:
    page = markdown(
        {
            "experiments": [
                {
                    "name": "e",
                    "measured": {"high": 0.96, "low": 3.0, "gone": None},
                    "bar": {"high": ">= 0.95", "low": "<= 2", "gone": "<= 1"},
                    "holds": False,
                }
            ],
            "seeds": [4, 5],
        }
    )
    assert "| e | 0.96 | high >= 0.95 | yes |" in page
    assert "|  | 3 | low <= 2 | **no** |" in page
    assert "|  | - | gone <= 1 | **no** |" in page
    assert "Seeds 4, 5;" in page


def test_figures_that_are_none_are_said_to_be(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"storm": 1}')
    done = CliRunner().invoke(main, ["docs", "lab", "--figures", str(other)])
    assert done.exit_code != 0
    assert "experiments" in done.stderr


@pytest.mark.parametrize("word", ["prefix_blocks", "n"])
def test_help_says_what_of_a_trace_is_passed_over(word: str) -> None:
    done = CliRunner().invoke(main, ["lab", "run", "--help"])
    assert f"`{word}`" in done.output
