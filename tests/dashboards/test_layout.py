"""Lines of panels are filled to their end, whatever is in them."""

import pytest

from surgetank.dashboards.layout import COLUMNS, Place, places


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([(12, 8), (12, 8)], [Place(0, 3, 12, 8), Place(12, 3, 12, 8)]),
        ([(12, 8)], [Place(0, 3, 24, 8)]),
        ([(8, 4), (8, 8)], [Place(0, 3, 12, 8), Place(12, 3, 12, 8)]),
        ([(8, 4), (8, 4), (12, 8)], [Place(0, 3, 12, 4), Place(12, 3, 12, 4), Place(0, 7, 24, 8)]),
        ([(4, 4), (10, 4)], [Place(0, 3, 6, 4), Place(6, 3, 18, 4)]),
    ],
)
def test_places(sizes: list[tuple[int, int]], expected: list[Place]) -> None:
    assert places(sizes, 3) == expected


def test_no_line_has_a_hole() -> None:
    placed = places([(width, 8) for width in range(1, COLUMNS + 1)], 0)
    lines: dict[int, int] = {}
    for place in placed:
        lines[place.y] = lines.get(place.y, 0) + place.w
    assert set(lines.values()) == {COLUMNS}
