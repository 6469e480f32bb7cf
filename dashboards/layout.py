"""Where a row's panels stand: lines of 24 columns, each filled to its end and of one height."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

COLUMNS = 24


@dataclass(frozen=True, slots=True)
class Place:
    """In Grafana's cells."""

    x: int
    y: int
    w: int
    h: int


def places(sizes: Sequence[tuple[int, int]], y: int) -> list[Place]:
    """Of panels with (width, height), in order, from the line `y` on: what would leave a hole at
    its line's end is widened, what is lower than its neighbours is heightened."""
    placed: list[Place] = []
    for line in _lines(sizes):
        height = max(h for _, h in line)
        widths = _widened([w for w, _ in line])
        for index, width in enumerate(widths):
            placed.append(Place(sum(widths[:index]), y, width, height))
        y += height
    return placed


def _lines(sizes: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    line: list[tuple[int, int]] = []
    for size in sizes:
        if line and sum(w for w, _ in line) + size[0] > COLUMNS:
            yield line
            line = []
        line.append(size)
    if line:
        yield line


def _widened(widths: list[int]) -> list[int]:
    """In proportion; the last takes what rounding leaves."""
    total = sum(widths)
    wide = [width * COLUMNS // total for width in widths]
    return [*wide[:-1], COLUMNS - sum(wide[:-1])]
