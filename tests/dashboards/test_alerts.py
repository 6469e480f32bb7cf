"""Alerts are complete, can be reached, told apart, and routed; their rules pass promtool's lint."""

import re
from collections import Counter
from pathlib import Path

import pytest
from tests.dashboards.promtool import run

from surgetank.dashboards.alerts import routes
from surgetank.dashboards.alerts.table import ALERTS, GROUPS
from surgetank.dashboards.objectives import BUDGET_DAYS, BURNS, OBJECTIVES
from surgetank.dashboards.objectives import TPOT_SECONDS as TPOT
from surgetank.dashboards.objectives import TTFT_SECONDS as TTFT
from surgetank.dashboards.rules import Alert
from surgetank.telemetry.slo import SloTargets

NAMES = {alert.name for alert in ALERTS}


def seconds(window: str) -> int:
    return int(window[:-1]) * {"m": 60, "h": 3600, "d": 86_400}[window[-1]]


def test_a_burn_rate_can_be_reached() -> None:
    """A threshold of 1 or more asks for more bad requests than there are requests."""
    for burn in BURNS:
        for slo, objective in OBJECTIVES.items():
            assert 0 < burn.threshold(objective) < 1, f"{slo}: {burn}"


def test_burn_windows_spend_a_sensible_share_of_the_budget() -> None:
    spent = [burn.factor * seconds(burn.long) / (BUDGET_DAYS * 86_400) for burn in BURNS]
    assert spent == pytest.approx([0.02, 0.05, 0.1, 0.1])
    assert all(seconds(burn.long) == 12 * seconds(burn.short) for burn in BURNS)


def test_targets_are_the_products_defaults() -> None:
    assert SloTargets() == SloTargets(ttft=TTFT, tpot=TPOT)


def test_alerts_of_one_name_are_told_apart() -> None:
    marks = Counter((alert.name, *sorted(alert.labels.items())) for alert in ALERTS)
    assert max(marks.values()) == 1


def test_names_are_words_and_groups_are_unique() -> None:
    assert all(re.fullmatch(r"([A-Z][a-z]+)+", name) for name in NAMES)
    assert len({group.name for group in GROUPS}) == len(GROUPS)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_alert_speaks_to_people(name: str) -> None:
    for alert in (alert for alert in ALERTS if alert.name == name):
        assert alert.summary.endswith(".")
        assert len(alert.summary) <= 120
        assert alert.description.endswith(".")
        assert alert.as_dict()["annotations"]["runbook"] == f"dashboards/runbooks/{name}.md"
        assert _templated(alert) <= _labels(alert), "a label that the expression does not keep"


def _templated(alert: Alert) -> set[str]:
    return set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.description))


def _labels(alert: Alert) -> set[str]:
    """Labels that the expression's result can have: those it keeps, and those of `up`."""
    kept = {label for by in re.findall(r"by \(([^)]*)\)", alert.expr) for label in by.split(", ")}
    kept |= {"instance"} if "instance" in alert.expr else set()
    kept |= {"instance", "priority"} if "instance_priority:" in alert.expr else set()
    return kept | ({"instance", "job"} if alert.expr.startswith(("up{", "(up{")) else set())


def test_inhibition_names_alerts_that_exist() -> None:
    named = set(routes.CONSEQUENCES) | {
        name for consequences in routes.CONSEQUENCES.values() for name in consequences
    }
    assert named <= NAMES
    for cause, consequences in routes.CONSEQUENCES.items():
        assert cause not in consequences
        for consequence in consequences:
            assert cause not in routes.CONSEQUENCES.get(consequence, ()), "each silences the other"


def test_a_cause_silences_only_where_both_know_the_instance() -> None:
    for cause, consequences in routes.CONSEQUENCES.items():
        for alert in ALERTS:
            if alert.name in (cause, *consequences):
                assert "instance" in _labels(alert), alert.name


def test_rules_pass_promtools_lint(rules: Path) -> None:
    files = sorted(rules.glob("*.yml"))
    assert [path.name for path in files] == ["alerts.yml", "backends.yml", "recordings.yml"]
    run("promtool", "check", "rules", "--lint=all", "--lint-fatal", *files)


def test_prometheus_takes_its_configuration(monitoring: Path) -> None:
    run("promtool", "check", "config", monitoring / "prometheus" / "prometheus.yml")


def test_alertmanager_takes_its_configuration(monitoring: Path) -> None:
    run("amtool", "check-config", monitoring / "alertmanager" / "alertmanager.yml")


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ("alertname=EngineStalled severity=critical instance=a", "page"),
        ("alertname=ShedHigh severity=warning instance=a", "ticket"),
        ("alertname=Watchdog severity=none", "watchdog"),
    ],
)
def test_alerts_reach_their_receiver(labels: str, receiver: str, monitoring: Path) -> None:
    configuration = f"--config.file={monitoring / 'alertmanager' / 'alertmanager.yml'}"
    said = run("amtool", "config", "routes", "test", configuration, *labels.split())
    assert said.strip() == receiver
