"""What a benchmark leaves behind: one JSON document of tables and figures; its words and files."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

from surgetank.telemetry.clock import Clock


class Table(TypedDict):
    """A table as people read it; the document holds the bare figures too."""

    title: str
    columns: list[str]
    rows: list[list[str]]


class BenchError(Exception):
    """A benchmark that cannot run; says what is missing and how to get it, in a sentence."""


def document(
    bench: str,
    clock: Clock,
    settings: Mapping[str, Any],
    figures: Mapping[str, Any],
    tables: Sequence[Table],
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Figures with where, when and how they were measured. `bench` is the command's name."""
    return {
        "bench": bench,
        "date": datetime.fromtimestamp(clock.wall(), UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} CPU cores ({platform.machine()})",
        "settings": dict(settings),
        **figures,
        "tables": list(tables),
        "notes": list(notes),
    }


def write(found: Mapping[str, Any], out: Path) -> Path:
    """Keep a document in a folder; OSError when that cannot be."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"bench-{found['bench']}.json"
    path.write_text(json.dumps(found, indent=2) + "\n")
    return path


def as_markdown(found: Mapping[str, Any]) -> str:
    """The document's tables and notes for a page."""
    parts = []
    for each in found["tables"]:
        lines = [each["columns"], ["---"] * len(each["columns"]), *each["rows"]]
        parts.append(f"{each['title']}\n")
        parts += [f"| {' | '.join(cells)} |" for cells in lines]
        parts.append("")
    parts += [f"- {note}" for note in found["notes"]]
    words = ", ".join(f"{key} {_plain(value)}" for key, value in found["settings"].items())
    parts += ["", f"Measured on {found['date']} on {found['machine']}: {words}."]
    return "\n".join(parts)


def _plain(value: Any) -> str:
    return "/".join(map(str, value)) if isinstance(value, list) else str(value)
