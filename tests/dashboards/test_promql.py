"""What the PromQL writer writes, and what it refuses to write."""

from pathlib import Path

import pytest
import yaml
from tests.dashboards.promtool import run

from surgetank.dashboards.promql import PromqlError, Scope, no, nonzero, ratio

now = Scope("5m")
here = Scope("$__rate_interval", (("instance", "$instance"), ("model", "$model")))


def test_rate_sums_over_what_is_not_kept() -> None:
    assert now.rate("requests_total", "outcome", lane="retry") == (
        'sum by (outcome) (rate(surgetank_requests_total{lane="retry"}[5m]))'
    )


def test_variables_apply_where_the_metric_has_their_label() -> None:
    assert here.select("requests_total") == (
        'surgetank_requests_total{instance=~"$instance",model=~"$model"}'
    )
    assert here.select("queue_requests") == 'surgetank_queue_requests{instance=~"$instance"}'


def test_several_values_and_excluded_ones() -> None:
    assert now.select("retry_arrivals_total", attempt=("1", "2")) == (
        'surgetank_retry_arrivals_total{attempt=~"1|2"}'
    )
    assert now.select("limit_changes_total", cause=no("operator")) == (
        'surgetank_limit_changes_total{cause!="operator"}'
    )


def test_quantile_is_absent_without_observations() -> None:
    expr = now.quantile(0.99, "compute_step_seconds", "instance", window="1h")
    assert expr == (
        "(histogram_quantile(0.99, sum by (instance, le) "
        "(rate(surgetank_compute_step_seconds_bucket[1h])))"
        " and (sum by (instance) (rate(surgetank_compute_step_seconds_count[1h])) > 0))"
    )


def test_ratio_has_a_whole() -> None:
    assert ratio("a", "b") == "(a) / ((b) > 0)"


def test_nothing_above_zero_is_one_series_named_none(tmp_path: Path) -> None:
    some = [
        {"series": 'a{reason="x"}', "values": "0 3 3"},
        {"series": 'a{reason="y"}', "values": "0 0 2"},
    ]
    expected = [("0m", [("none", 0)]), ("1m", [("x", 3)]), ("2m", [("x", 3), ("y", 2)])]
    checks = [
        {
            "expr": nonzero("sum by (reason) (a)", "reason"),
            "eval_time": at,
            "exp_samples": [
                {"labels": f'{{reason="{name}"}}', "value": value} for name, value in samples
            ],
        }
        for at, samples in expected
    ]
    case = tmp_path / "case.yml"
    case.write_text(
        yaml.safe_dump(
            {"tests": [{"interval": "1m", "input_series": some, "promql_expr_test": checks}]}
        )
    )
    run("promtool", "test", "rules", case)


def test_what_does_not_exist_is_refused() -> None:
    with pytest.raises(PromqlError, match="no_such_total"):
        now.rate("no_such_total")
    with pytest.raises(PromqlError, match="gauge, not a counter"):
        now.rate("queue_requests")
    with pytest.raises(PromqlError, match="counter, not a gauge"):
        now.gauge("sum", "requests_total")
    with pytest.raises(PromqlError, match="no label tenant"):
        now.rate("requests_total", "tenant")
    with pytest.raises(PromqlError, match="no label tenant"):
        now.rate("requests_total", tenant="a")
    with pytest.raises(PromqlError, match="lane is never fast"):
        now.rate("requests_total", lane="fast")
