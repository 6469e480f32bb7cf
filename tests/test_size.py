"""No file grows past what a reader holds in mind, and each says its job in its first line."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ["telemetry", "engine", "admission", "control", "dashboards", "tests"]
FILES = [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "_pb2" not in path.name
]
MAX_LINES = 400


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_file_is_short_and_says_its_job(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_LINES
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring, f"{path}: no docstring in its first line"
    assert text.startswith('"""'), f"{path}: the docstring is not the first line"
