"""What the files of deploy/ must agree with: settings, commands, ports; and programs that check."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from surgetank.control.cli import main
from surgetank.control.config import Config
from surgetank.control.sources import load

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
VERSION = str(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"])
DEFAULTS = Config()
# After the drain: clients read the last bytes, cut-off ones are told, traces are sent.
LAST_BYTES = 10.0


def documents(path: Path) -> list[Any]:
    """Every document of a YAML file."""
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def settings(env: Mapping[str, str], file: Path | None = None) -> Config:
    """The configuration that a process with these variables and this file has; names and values
    that are not allowed raise ConfigError."""
    return load(Config, file=file, env=env)


def understood(command: Sequence[str]) -> None:
    """Fails unless the command line parses this way: its command, every option, every argument."""
    name, *rest = command
    assert name == "surgetank"
    context: click.Context = click.Context(main)
    current: click.Command = main
    while isinstance(current, click.Group):
        found = current.get_command(context, rest[0])
        assert found is not None, f"no command {rest[0]}"
        current, rest = found, rest[1:]
    current.make_context(str(current.name), list(rest), parent=context)


def surgetank_lines(text: str) -> list[list[str]]:
    """Each call of ours in a shell's text, up to where the next command begins."""
    calls = re.findall(r"\bsurgetank [a-z][^;&|\n]*", text)
    return [shlex.split(call, comments=True) for call in calls]


def pinned(image: str) -> None:
    """Fails unless the image has a tag that names a version."""
    _, colon, tag = image.rpartition(":")
    assert colon, f"{image}: no tag"
    assert re.search(r"\d+\.\d+", tag), f"{image}: {tag} names no version"
    assert "latest" not in tag


def program(name: str, *, only_own: bool = False) -> str:
    """Where a checker is, or a skip with a sentence. `only_own`: the checkers' own, no other."""
    own = ROOT / ".venv-checkers" / "bin" / name
    if own.exists():
        return str(own)
    found = None if only_own else shutil.which(name)
    if found is None:
        pytest.skip(
            f"{'.venv-checkers' if only_own else name} is not there; run: make checkers, and "
            "for systemd-analyze and promtool: apt-get install systemd prometheus"
        )
    return found


def check(*command: str) -> str:
    """Run a checker; its complaint fails the test."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def python() -> str:
    """The interpreter that has the product."""
    return sys.executable
