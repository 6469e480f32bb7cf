"""docs/performance.md: its blocks are generated from the documents in docs/measured."""

import json
import shutil
from pathlib import Path
from typing import Any

from surgetank.control.bench.document import as_markdown

BENCHES = (
    "engine",
    "profile",
    "scheduling",
    "admission",
    "telemetry",
    "tracing",
    "proxy",
    "scenarios",
)
PAGE = Path("docs/performance.md")
MEASURED = Path("docs/measured")
IMAGES = Path("docs/images")


def render(page: str, documents: dict[str, dict[str, Any]]) -> str:
    """The page with the block of each bench replaced; ValueError when it lacks one."""
    for bench in BENCHES:
        begin, end = f"<!-- bench {bench}: generated -->", f"<!-- /bench {bench} -->"
        start, stop = page.find(begin), page.find(end)
        if start < 0 or stop < start:
            raise ValueError(f"no block between {begin} and {end}")
        found = documents.get(bench)
        body = f"Not measured yet: `surgetank bench {bench}`." if found is None else _block(found)
        page = f"{page[:start]}{begin}\n\n{body}\n\n{page[stop:]}"
    return page


def documents_of(root: Path) -> dict[str, dict[str, Any]]:
    """Those that a checkout holds, by bench."""
    paths = {bench: root / MEASURED / f"bench-{bench}.json" for bench in BENCHES}
    return {bench: json.loads(path.read_text()) for bench, path in paths.items() if path.exists()}


def publish(out: Path, root: Path) -> list[Path]:
    """Copy figures and plots from `out` and render the page; what was written. OSError, ValueError
    when `root` is no checkout."""
    written = []
    for folder, ending in ((MEASURED, "json"), (IMAGES, "png")):
        for bench in BENCHES:
            source = out / f"bench-{bench}.{ending}"
            if source.exists():
                (root / folder).mkdir(parents=True, exist_ok=True)
                written.append(Path(shutil.copyfile(source, root / folder / source.name)))
    page = root / PAGE
    page.write_text(render(page.read_text("utf-8"), documents_of(root)), "utf-8")
    return [*written, page]


def _block(found: dict[str, Any]) -> str:
    text = as_markdown(found)
    if found["bench"] in ("engine", "scheduling"):
        text += f"\n\n![{found['bench']}](images/bench-{found['bench']}.png)"
    return text
