"""Reads the few series that are wanted out of another engine's metrics page."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Sample:
    """One series' value."""

    labels: Mapping[str, str]
    value: float


def read_samples(page: str, names: Iterable[str]) -> dict[str, list[Sample]]:
    """The samples of each of `names` that the page has; lines that cannot be read are skipped, for
    the page is another's."""
    wanted = {name: list[Sample]() for name in names}
    for line in page.splitlines():
        name = re.split(r"[{\s]", line, maxsplit=1)[0]
        if name not in wanted:
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        wanted[name].append(Sample(dict(_LABEL.findall(match[2] or "")), value))
    return {name: samples for name, samples in wanted.items() if samples}
