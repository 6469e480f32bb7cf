"""Boards of a fleet: the variables choose among instances and models, and all together add up."""

import math
import re
from collections import Counter
from itertools import product

import pytest
from tests.e2e.boards.asked import Asked, every_query, filled
from tests.e2e.boards.conftest import OURS, TWIN, Watched
from tests.e2e.boards.pages import Twin
from tests.e2e.prometheus_server import Sample

from surgetank.dashboards.panels import Kind

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(900)]

# Units of what does not grow with the number of replicas.
OF_ONE = {"percentunit", "s"}


def by_labels(samples: list[Sample]) -> dict[frozenset[tuple[str, str]], float]:
    """An instant vector, without numbers that are none."""
    return {
        frozenset(labels.items()): number for labels, number in samples if math.isfinite(number)
    }


def answers(
    watched: Watched, asked: Asked, instance: str = ".*", model: str = ".*"
) -> dict[frozenset[tuple[str, str]], float]:
    """In the middle of the load."""
    middle = (watched.start + watched.end) / 2
    return by_labels(watched.prometheus.query(filled(asked.expr, instance, model), middle))


def named(legend: str, labels: dict[str, str]) -> str:
    """What a line is called."""
    return re.sub(r"\{\{(\w+)\}\}", lambda label: labels.get(label[1], ""), legend)


def test_two_replicas_are_the_union_or_the_sum_of_each(watched: Watched) -> None:
    """Per series: between the lower and the sum of both; what is no amount, at most the higher."""
    for asked in every_query():
        if asked.panel.kind is Kind.NAME or "ALERTS" in asked.expr:
            continue  # the verdict is a choice, alerts are of everybody
        one, other = (answers(watched, asked, name) for name in (OURS, TWIN))
        both = answers(watched, asked, f"{OURS}|{TWIN}")
        assert set(both) == set(one) | set(other), asked.where
        for labels, number in both.items():
            each = [found[labels] for found in (one, other) if labels in found]
            of_one = asked.panel.unit in OF_ONE and asked.panel.kind is not Kind.HEATMAP
            most = max(each) if of_one else max(sum(each), *each)
            room = 1e-9 + 1e-6 * abs(most)
            assert min(each) - room <= number <= most + room, asked.where


def test_counters_of_both_add_up(watched: Watched) -> None:
    """The twin has done three times the work, so both together four times."""
    (received,) = (
        each for each in every_query() if each.panel.title == "Received" and "received" in each.expr
    )
    (one,) = answers(watched, received, OURS).values()
    (both,) = answers(watched, received).values()
    assert both == pytest.approx((1 + Twin.FACTOR) * one, rel=0.25)


def test_no_two_lines_of_a_panel_have_one_name(watched: Watched) -> None:
    """Also where two replicas are shown at once."""
    for asked in every_query():
        if asked.panel.kind not in (Kind.TABLE, Kind.HEATMAP):
            names = Counter(named(asked.legend, dict(labels)) for labels in answers(watched, asked))
            assert all(count == 1 for count in names.values()), f"{asked.where}: {names}"


def test_an_instance_shows_nothing_of_another(watched: Watched) -> None:
    for asked, (shown, hidden) in product(every_query(), ((OURS, TWIN), (TWIN, OURS))):
        if "ALERTS" in asked.expr:
            continue
        for labels in answers(watched, asked, shown):
            assert ("instance", hidden) not in labels, asked.where


def test_a_model_shows_nothing_of_another(watched: Watched) -> None:
    with_model = [each for each in every_query() if 'model=~"$model"' in each.expr]
    assert with_model
    for asked in with_model:
        of_twin = answers(watched, asked, model=Twin.MODEL)
        alone = answers(watched, asked, instance=TWIN)
        assert of_twin == pytest.approx(alone), asked.where
