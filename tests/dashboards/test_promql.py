"""What the PromQL writer writes, and what it refuses to write."""

import pytest

from surgetank.dashboards.promql import PromqlError, Scope, no, ratio

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
