"""What the README claims: its figures are the measured ones, its commands and files exist."""

import json
import re
from pathlib import Path

import click
from click.testing import CliRunner

from surgetank.control.cli import main
from surgetank.control.demo.table import as_comparison, as_markdown

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def test_the_storm_table_is_the_measured_one() -> None:
    document = json.loads((ROOT / "docs/measured/storm.json").read_text("utf-8"))
    assert as_markdown(document) in README


def test_the_table_of_other_makers_engines_is_the_measured_one() -> None:
    files = sorted((ROOT / "docs/measured").glob("storm-*.json"))
    assert len(files) == 2
    assert as_comparison([json.loads(each.read_text("utf-8")) for each in files]) in README


def test_linked_files_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    for link in links:
        assert (ROOT / link).exists(), link


def test_named_commands_and_make_targets_exist() -> None:
    commands = set(re.findall(r"^ {4}surgetank (\w[\w-]*)", README, re.MULTILINE))
    assert {"status", "limits", "drain", "capacity", "run"} <= commands
    known = main.list_commands(click.Context(main))
    assert commands <= set(known)
    for command in commands:
        assert CliRunner().invoke(main, [command, "--help"]).exit_code == 0
    targets = set(re.findall(r"^ {4}make (\w+)", README, re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
