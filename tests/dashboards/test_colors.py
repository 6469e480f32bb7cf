"""Colours are given to words that exist, and one word has one colour on every board."""

import json

from surgetank.dashboards.boards.table import BOARDS
from surgetank.dashboards.colors import COLORS, LINES, colors_of
from surgetank.dashboards.grafana import to_json
from surgetank.dashboards.recordings import VERDICTS
from surgetank.telemetry.catalog import CATALOG


def test_every_coloured_word_is_a_label_value() -> None:
    known: dict[str, set[str]] = {"verdict": {*VERDICTS, "healthy"}}
    for spec in CATALOG.values():
        for label in spec.labels:
            known.setdefault(label.name, set()).update(label.values)
    for name, colors in COLORS.items():
        assert set(colors) <= known[name], name


def test_a_legend_of_one_label_is_coloured() -> None:
    assert colors_of("{{outcome}}")["ok"] == "green"
    assert colors_of("attempt {{attempt}}")["attempt 3plus"] == "red"
    assert colors_of("p99") == {"p99": LINES["p99"]}
    assert colors_of("{{instance}}") == {}
    assert colors_of("{{outcome}} {{instance}}") == {}


def test_colours_reach_the_panels() -> None:
    overview = next(board for board in BOARDS if board.uid == "surgetank-overview")
    panels = {panel["title"]: panel for panel in json.loads(to_json(overview))["panels"]}
    overrides = panels["Outcomes"]["fieldConfig"]["overrides"]
    (ok,) = (each for each in overrides if each["matcher"] == {"id": "byName", "options": "ok"})
    color = {"mode": "fixed", "fixedColor": "green"}
    assert ok["properties"] == [{"id": "color", "value": color}]
