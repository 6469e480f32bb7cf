"""Every board, drawn with Grafana's components from what Prometheus answered: nothing is empty."""

from pathlib import Path

import pytest
from tests.control.console.browser import find_browser, running
from tests.e2e.boards.asked import board_results, every_query
from tests.e2e.boards.conftest import OF_REMOTE, PICTURES, Watched
from tests.e2e.boards.drawing import built, draw

from surgetank.dashboards.boards.table import BOARDS

PROGRAM = find_browser()
pytestmark = [
    *(pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(3600)),
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium here (apt-get install chromium)"),
    pytest.mark.skipif(not built(), reason="Grafana's components are not here (make boards-png)"),
]
MAY_BE_EMPTY = {asked.panel.title for asked in every_query() if asked.cannot_be_here}
IN_README = ("overview", "overload")  # the first screen of them
POINTS = 240  # of each line


async def test_boards_are_drawn_and_nothing_is_empty(watched: Watched, tmp_path: Path) -> None:
    folder = Path(PICTURES) if PICTURES else tmp_path
    step = max(1, round((watched.end - watched.start) / POINTS))
    assert PROGRAM is not None
    async with running(PROGRAM, tmp_path / "profile") as browser:
        for board in BOARDS:
            found = board_results(watched.prometheus, board.uid, watched.start, watched.end, step)
            name = board.uid.removeprefix("surgetank-")
            png = folder / f"board-{name}.png"
            drawn = await draw(browser, found, png, tmp_path, top=name in IN_README)
            assert not drawn.problems, board.uid
            assert drawn.empty <= (MAY_BE_EMPTY | (OF_REMOTE if PICTURES else set())), board.uid
