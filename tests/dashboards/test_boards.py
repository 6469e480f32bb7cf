"""Boards are valid Grafana dashboards, in known units, and every panel explains itself."""

import json
import re
import typing
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from grafana_foundation_sdk.models import units
from tests.dashboards.promtool import run

from surgetank.dashboards.boards.table import BOARDS
from surgetank.dashboards.grafana import to_json
from surgetank.dashboards.panels import TOKENS_PER_SECOND, Board, Kind

SCHEMA = json.loads((Path(__file__).parent / "data" / "dashboard.schema.json").read_text())
# Grafana's own definition has `options?: _` here, anything: the matcher byName takes a string. The
# translation into a JSON schema made an object of it.
del SCHEMA["definitions"]["MatcherConfig"]["properties"]["options"]["type"]
UNITS = {value for hint in typing.get_type_hints(units).values() for value in typing.get_args(hint)}
PANELS = [panel for board in BOARDS for panel in board.panels]
QUERIES = [(panel.title, query.expr) for panel in PANELS for query in panel.queries]


def without_variables(expr: str) -> str:
    """The expression as Prometheus gets it from Grafana."""
    values = {"__rate_interval": "1m", "__interval": "15s", "instance": ".*", "model": ".*"}
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], expr)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_board_fits_grafanas_schema(board: Board) -> None:
    jsonschema.validate(json.loads(to_json(board)), SCHEMA)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_board_can_be_pointed_at_any_fleet(board: Board) -> None:
    built = json.loads(to_json(board))
    variables = {variable["name"]: variable for variable in built["templating"]["list"]}
    assert set(variables) == {"datasource", "instance", "model"}
    assert variables["instance"]["multi"]
    assert variables["model"]["includeAll"]
    sources = {str(panel["datasource"]["uid"]) for panel in _drawn(built)}
    assert sources == {"$datasource"}


def _drawn(built: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in built["panels"] if panel["type"] != "row"]


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_panels_neither_overlap_nor_share_an_id(board: Board) -> None:
    built = json.loads(to_json(board))
    ids = [panel["id"] for panel in built["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in built["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_lines_of_panels_are_full(board: Board) -> None:
    """Nothing hangs alone beside a hole: each line is 24 wide, of panels of one height."""
    lines: dict[int, list[dict[str, Any]]] = {}
    for panel in _drawn(json.loads(to_json(board))):
        lines.setdefault(panel["gridPos"]["y"], []).append(panel)
    for panels in lines.values():
        titles = [panel["title"] for panel in panels]
        assert sum(panel["gridPos"]["w"] for panel in panels) == 24, titles
        assert len({panel["gridPos"]["h"] for panel in panels}) == 1, titles


def test_what_has_ended_is_not_among_what_is_now() -> None:
    """A range's last value of an alert that has ended would still be shown as firing."""
    for board in BOARDS:
        for panel, drawn in zip(board.panels, _drawn(json.loads(to_json(board))), strict=True):
            assert panel.title == drawn["title"]
            assert all(target["instant"] for target in drawn["targets"]) >= panel.newest
    assert {panel.title for panel in PANELS if panel.newest} >= {"Firing alerts"}


def test_uids_and_titles_are_unique() -> None:
    assert len({board.uid for board in BOARDS}) == len(BOARDS)
    for board in BOARDS:
        titles = [panel.title for panel in board.panels]
        assert len(set(titles)) == len(titles)


def test_every_panel_explains_itself() -> None:
    for panel in PANELS:
        assert panel.unit in {*UNITS, TOKENS_PER_SECOND}, panel.title
        assert panel.means.endswith("."), panel.title
        assert panel.do.endswith("."), panel.title
        for query in panel.queries:
            assert query.legend or panel.kind is Kind.TABLE, panel.title
        if panel.warn is not None and panel.bad is not None:
            assert panel.warn < panel.bad, panel.title


def test_every_query_is_guarded() -> None:
    """A division is by what is more than 0; a quantile is of a rate, and not of nothing."""
    for title, expr in QUERIES:
        for whole in re.findall(r"\) / (?:on \(\w+\) group_left \(\) )?(.{6})", expr):
            assert whole.startswith(("((", "scalar")), title
        assert expr.count("/ ((") <= expr.count("> 0)"), title
        for inside in re.findall(r"histogram_quantile\([\d.]+, (.{60})", expr):
            assert "rate(" in inside, title
        assert ("histogram_quantile" in expr) <= (" and " in expr), title


def test_every_query_is_promql(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel{number}:query:{number}", "expr": without_variables(expr)}
        for number, (_, expr) in enumerate(QUERIES)
    ]
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    run("promtool", "check", "rules", path)
