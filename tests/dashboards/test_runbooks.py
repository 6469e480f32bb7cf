"""Each alert has its runbook, and each command that a runbook gives exists, with those options."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import click
import pytest

from surgetank.admission.limits import SPECS, Limit
from surgetank.control.cli import main
from surgetank.dashboards.alerts.table import ALERTS

FOLDER = Path(__file__).parents[2] / "dashboards" / "runbooks"
BOOKS = sorted(FOLDER.glob("*.md"))
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]


def commands(text: str) -> list[list[str]]:
    """The words of every line in a runbook's shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def test_every_alert_has_a_runbook_and_no_runbook_is_orphaned() -> None:
    assert {path.stem for path in BOOKS} == {alert.name for alert in ALERTS}


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_runbook_has_its_four_sections(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.startswith(f"# {path.stem}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    parts = re.split(r"^## .*\n", text, flags=re.MULTILINE)[1:]
    assert all(part.strip() for part in parts)
    assert commands(parts[SECTIONS.index("Diagnosis")])
    assert commands(parts[SECTIONS.index("Mitigation")])


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_commands_exist_with_their_options(path: Path) -> None:
    for words in commands(path.read_text("utf-8")):
        assert words[0] == "surgetank", " ".join(words)
        parse(main, words[1:], " ".join(words))


def parse(command: click.Command, words: list[str], whole: str) -> None:
    """Let click read the words as it would, without running the command."""
    try:
        context = command.make_context(None, list(words), resilient_parsing=False)
    except click.UsageError as error:
        pytest.fail(f"{whole}: {error.format_message()}")
    rest = [*context._protected_args, *context.args]
    if isinstance(command, click.Group) and (rest or not command.invoke_without_command):
        _, found, rest = command.resolve_command(context, rest)
        assert found is not None, whole
        parse(found, rest, whole)


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_limits_are_what_they_may_be(path: Path) -> None:
    for words in commands(path.read_text("utf-8")):
        if words[1] == "limits" and len(words) > 3 and not words[3].startswith("-"):
            spec = SPECS[Limit(words[3])]
            value = words[4] if len(words) > 4 and not words[4].startswith("-") else "max"
            if value[-1].isdigit():  # shares of what holds, and max, stay within the range
                assert spec.minimum <= float(value) <= spec.maximum, " ".join(words)


# Each service has its own; a number that narrows one would widen another.
SIZED = {
    *(Limit.QUEUE_REQUESTS, Limit.QUEUE_TOKENS, Limit.IN_FLIGHT_SEQS, Limit.MAX_NUM_SEQS),
    *(Limit.MAX_BATCH_TOKENS, Limit.KV_RESERVE, Limit.KAPPA, Limit.RETRY_SHARE),
}


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_what_differs_from_service_to_service_is_set_by_shares(path: Path) -> None:
    for words in commands(path.read_text("utf-8")):
        if words[1:3] == ["limits", "set"] and words[3] in SIZED:
            assert words[4].endswith("%") or words[4] == "max", " ".join(words)
        if words[1] == "retry-lane":
            assert words[3].endswith("%"), " ".join(words)


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_what_acts_says_why_and_ends_by_itself(path: Path) -> None:
    acting = [words for words in commands(path.read_text("utf-8")) if acts(words)]
    for words in acting:
        assert "--why" in words, " ".join(words)
        ends = words[2] == "clear" or "undrain" in words[1:3]
        assert "--ttl" in words or ends, " ".join(words)


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_what_narrows_is_tried_before_it_is_done(path: Path) -> None:
    every = commands(path.read_text("utf-8"))
    for before, words in pairwise([[], *every]):
        if acts(words) and "--ttl" in words and "--dry-run" not in words and "90s" not in words:
            assert before == [*words, "--dry-run"], " ".join(words)


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_diagnosis_only_looks(path: Path) -> None:
    diagnosis = path.read_text("utf-8").split("## Diagnosis")[1].split("## Mitigation")[0]
    assert not any(acts(words) for words in commands(diagnosis))


def acts(words: list[str]) -> bool:
    """Whether a command changes how the service works."""
    return words[1] in ("drain", "undrain", "shed", "retry-lane") or (
        words[1:3]
        in (
            *(["limits", "set"], ["limits", "pin"], ["limits", "clear"]),
            *(["backends", "drain"], ["backends", "undrain"]),
        )
    )
