"""Turns boards into Grafana's dashboard JSON (the classic model: every version takes it)."""

import json
import warnings
from collections.abc import Callable
from itertools import count
from typing import Any

from surgetank.dashboards.colors import colors_of
from surgetank.dashboards.layout import COLUMNS, places
from surgetank.dashboards.panels import Board, Kind, Panel, Query, here
from surgetank.telemetry.catalog import find

with warnings.catch_warnings():
    # The SDK would rather have the second model, which files cannot provision everywhere yet.
    warnings.simplefilter("ignore", DeprecationWarning)
    from grafana_foundation_sdk.builders import (
        common,
        dashboard,
        heatmap,
        prometheus,
        stat,
        table,
        timeseries,
    )
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models import common as shapes
    from grafana_foundation_sdk.models import dashboard as model
    from grafana_foundation_sdk.models import prometheus as prometheus_model

SOURCE = shapes.DataSourceRef(type_val="prometheus", uid="$datasource")
TAG = "surgetank"
GREEN, YELLOW, RED = "green", "yellow", "red"
_HEIGHT = {Kind.STAT: 4, Kind.NAME: 4}

_SMALL = {"percentunit": 0.1, "s": 0.1, "bytes": 1024, "binBps": 1024}

PanelBuilder = timeseries.Panel | stat.Panel | heatmap.Panel | table.Panel


def to_json(board: Board) -> str:
    """The board's file, the same bytes for the same board."""
    builder = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .refresh("10s")
        .time("now-30m", "now")
        .timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .readonly()
        .link(_to_other_boards())
        .annotation(_operator_changes())
    )
    for variable in _variables():
        builder.with_variable(variable)
    ids = count(1)
    y = 0
    for row in board.rows:
        title = model.GridPos(h=1, w=COLUMNS, x=0, y=y)
        builder.with_row(dashboard.Row(row.title).id(next(ids)).grid_pos(title))
        placed = places([(panel.width, _height(panel)) for panel in row.panels], y + 1)
        for panel, place in zip(row.panels, placed, strict=True):
            at = model.GridPos(h=place.h, w=place.w, x=place.x, y=place.y)
            builder.with_panel(_panel(panel).id(next(ids)).grid_pos(at))
        y = placed[-1].y + placed[-1].h
    return json.dumps(builder.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _variables() -> list[Any]:
    """Which Prometheus, which instances, which models."""
    instances = f"label_values({find('build_info').full_name}, instance)"
    models = f"label_values({here.select('requests_total', model='.*')}, model)"
    everything = model.VariableOption(text="All", value="$__all")
    source = dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
    return [
        source,
        *(
            dashboard.QueryVariable(name)
            .label(name.capitalize())
            .datasource(SOURCE)
            .query(query)
            .current(everything)
            .multi(True)
            .include_all(True)
            .all_value(".*")
            .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(model.VariableSort.ALPHABETICAL_ASC)
            for name, query in (("instance", instances), ("model", models))
        ),
    ]


def _to_other_boards() -> dashboard.DashboardLink:
    link = dashboard.DashboardLink("Surgetank").type(model.DashboardLinkType.DASHBOARDS)
    return link.tags([TAG]).as_dropdown(True).keep_time(True).include_vars(True)


def _operator_changes() -> dashboard.AnnotationQuery:
    """A mark on every graph where a person changed a limit."""
    changed = here.increase("limit_changes_total", "limit", window="$__interval", cause="operator")
    mark = dashboard.AnnotationQuery().name("Operator changes").datasource(SOURCE).enable(True)
    mark = mark.icon_color("blue").expr(f"{changed} > 0").step("15s")
    return mark.title_format("Limit changed by an operator").text_format("{{limit}}")


def _panel(panel: Panel) -> PanelBuilder:
    builder = _KINDS[panel.kind](panel)
    builder.title(panel.title).description(panel.description).datasource(SOURCE)
    builder.unit(panel.unit)
    builder.thresholds(_thresholds(panel))
    if panel.texts:
        builder.mappings([_texts(panel)])
    if panel.lowest is not None:
        builder.min(panel.lowest)
    if panel.highest is not None:
        builder.max(panel.highest)
    for name, color in _colors(panel).items():
        fixed = {"mode": model.FieldColorModeId.FIXED.value, "fixedColor": color}
        override = builder.override_by_regexp if name[0] == "/" else builder.override_by_name
        override(name, [model.DynamicConfigValue("color", fixed)])
    for number, query in enumerate(panel.queries):
        builder.with_target(_target(panel, query, chr(ord("A") + number)))
    return builder


def _height(panel: Panel) -> int:
    return panel.height or _HEIGHT.get(panel.kind, 8)


def _target(panel: Panel, query: Query, ref: str) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(ref)
    target = target.datasource(SOURCE).editor_mode(prometheus_model.QueryEditorMode.CODE)
    if panel.kind is Kind.HEATMAP:
        return target.range().format(prometheus_model.PromQueryFormat.HEATMAP)
    if panel.kind is Kind.TABLE:
        return target.instant().format(prometheus_model.PromQueryFormat.TABLE)
    return target.instant() if panel.kind is Kind.NAME or panel.newest else target.range()


def _colors(panel: Panel) -> dict[str, str]:
    """By series' name; a stat's colours are those of its thresholds."""
    if panel.kind is not Kind.SERIES:
        return {}
    return {
        name: color for query in panel.queries for name, color in colors_of(query.legend).items()
    }


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    steps = [model.Threshold(value=None, color=GREEN)]
    for value, color in ((panel.warn, YELLOW), (panel.bad, RED)):
        if value is not None:
            steps.append(model.Threshold(value=value, color=color))
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)


def _texts(panel: Panel) -> model.ValueMap:
    results = {
        f"{value:g}": model.ValueMappingResult(text=text, color=color, index=index)
        for index, (value, text, color) in enumerate(panel.texts)
    }
    return model.ValueMap(options=results)


def _series(panel: Panel) -> timeseries.Panel:
    legend = common.VizLegendOptions().show_legend(True).placement(shapes.LegendPlacement.BOTTOM)
    legend = legend.display_mode(shapes.LegendDisplayMode.LIST)
    tooltip = common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI)
    builder = timeseries.Panel().legend(legend).tooltip(tooltip.sort(shapes.SortOrder.DESCENDING))
    builder.show_points(shapes.VisibilityMode.NEVER).line_width(1)
    # Lines that lie at 0 are drawn at the bottom of a small axis, not of one that ends at 10000 %.
    builder.axis_soft_min(0)
    if panel.highest is None:
        small = _SMALL.get(panel.unit, 1)
        builder.axis_soft_max(small if panel.bad is None else panel.bad)
    if panel.stacked:
        builder.fill_opacity(60).stacking(common.StackingConfig().mode(shapes.StackingMode.NORMAL))
    if panel.warn is not None or panel.bad is not None:
        dashed = shapes.GraphThresholdsStyleMode.DASHED
        builder.thresholds_style(common.GraphThresholdsStyleConfig().mode(dashed))
    return builder


def _stat(panel: Panel) -> stat.Panel:
    named = panel.kind is Kind.NAME
    newest = common.ReduceDataOptions().calcs(["lastNotNull"])
    builder = stat.Panel().reduce_options(newest).no_value("-")
    builder.color_mode(
        shapes.BigValueColorMode.BACKGROUND if panel.texts else shapes.BigValueColorMode.VALUE
    )
    alone = named or panel.newest
    builder.graph_mode(shapes.BigValueGraphMode.NONE if alone else shapes.BigValueGraphMode.AREA)
    if named:
        builder.text_mode(shapes.BigValueTextMode.NAME)
    return builder


def _heatmap(panel: Panel) -> heatmap.Panel:
    del panel
    return heatmap.Panel()


def _table(panel: Panel) -> table.Panel:
    del panel
    return table.Panel()


_KINDS: dict[Kind, Callable[[Panel], PanelBuilder]] = {
    Kind.SERIES: _series,
    Kind.STAT: _stat,
    Kind.NAME: _stat,
    Kind.HEATMAP: _heatmap,
    Kind.TABLE: _table,
}
