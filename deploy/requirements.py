"""Prints what pyproject.toml depends on, one a line: its base, and the extras that are named."""

import sys
import tomllib
from pathlib import Path


def requirements(pyproject: Path, extras: list[str]) -> list[str]:
    """Raises KeyError for an extra that is not there."""
    project = tomllib.loads(pyproject.read_text("utf-8"))["project"]
    chosen = [project["optional-dependencies"][extra] for extra in extras]
    return [line for group in (project["dependencies"], *chosen) for line in group]


if __name__ == "__main__":
    sys.stdout.write("\n".join(requirements(Path("pyproject.toml"), sys.argv[1:])) + "\n")
