"""Engines of other makes, with both generations of their names, in a real Prometheus."""

import pytest
from tests.e2e.boards.asked import every_query, filled
from tests.e2e.boards.conftest import OTHERS, OURS, TWIN, Watched

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(900)]

# What the recorded pages say: running, waiting, share of the KV pool.
SAID = {
    "vllm-old": (7, 3, 0.4),
    "vllm-new": (9, 1, 0.55),
    "sglang-old": (162, 2826, 0.28),
    "sglang-new": (12, 2, 0.37),
}


def by_instance(watched: Watched, expr: str) -> dict[str, float]:
    """In the middle of the load, the remote ones."""
    middle = (watched.start + watched.end) / 2
    found = watched.prometheus.query(expr, middle)
    return {labels["instance"]: number for labels, number in found if labels["instance"] in OTHERS}


def test_load_and_memory_are_read_under_one_name(watched: Watched) -> None:
    names = ("running_requests", "waiting_requests", "kv_used_ratio")
    for index, name in enumerate(names):
        found = by_instance(watched, f"surgetank_engine_{name}")
        assert found == {instance: said[index] for instance, said in SAID.items()}, name


def test_gaps_between_tokens_are_read_in_both_generations(watched: Watched) -> None:
    """Once `time_per_output_token`, now `inter_token_latency`: observed at every scrape."""
    expr = "rate(surgetank_engine_inter_token_latency_seconds_count[15s])"
    assert set(by_instance(watched, f"{expr} > 0")) == set(OTHERS)


def test_every_engine_is_on_the_boards(watched: Watched) -> None:
    middle = (watched.start + watched.end) / 2
    for title in ("Running and waiting", "KV pool used, any engine"):
        for asked in every_query():
            if asked.panel.title == title:
                found = watched.prometheus.query(filled(asked.expr), middle)
                told = {labels["instance"] for labels, _ in found}
                assert told == {OURS, TWIN, *OTHERS}, asked.where
