"""Hurried rules are the shipped ones but for their durations; at once as fast, wholly."""

import copy
import re
from typing import Any

import pytest
import yaml
from tests.e2e.faults.faster import hurry, shorter

from surgetank.dashboards.build import files

SHIPPED: dict[str, dict[str, Any]] = {
    name: yaml.safe_load(text) for name, text in files().items() if "/rules/" in name
}


@pytest.mark.parametrize("name", SHIPPED)
def test_once_as_fast_is_the_shipped_file(name: str) -> None:
    rules = copy.deepcopy(SHIPPED[name])
    hurry(rules, 1)
    assert rules == SHIPPED[name]


@pytest.mark.parametrize("name", SHIPPED)
def test_nothing_but_durations_differs(name: str) -> None:
    rules = copy.deepcopy(SHIPPED[name])
    hurry(rules, 30)
    for group, shipped in zip(rules["groups"], SHIPPED[name]["groups"], strict=True):
        assert group["name"] == shipped["name"]
        for fast, slow in zip(group["rules"], shipped["rules"], strict=True):
            assert _without_durations(fast["expr"]) == _without_durations(slow["expr"])
            assert {**fast, "expr": "", "for": ""} == {**slow, "expr": "", "for": ""}


def test_every_range_is_shortened() -> None:
    rules = {"groups": [{"rules": [{"expr": "rate(a[2m]) + rate(b[1h] offset 5m)", "for": "15s"}]}]}
    hurry(rules, 30)
    rule = rules["groups"][0]["rules"][0]
    expr = "rate(a[4000ms]) + rate(b[120000ms] offset 10000ms)"
    assert rule == {"expr": expr, "for": "500ms"}


def test_a_duration_of_two_units_is_refused() -> None:
    with pytest.raises(ValueError, match="1h30m"):
        shorter("1h30m", 2)


def _without_durations(expr: str) -> str:
    return re.sub(r"(\[|offset )\w+", r"\1", expr)
