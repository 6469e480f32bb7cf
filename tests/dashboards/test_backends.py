"""Other engines' metrics become one vocabulary, whichever generation of names they use."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families
from tests.dashboards.promtool import check_rules, firing

from surgetank.control.cli import main
from surgetank.dashboards.backends import missing
from surgetank.telemetry.aliases import ALIASES, ENGINES

DATA = Path(__file__).parent / "data"
# The signals that a version does not have under any name.
PAGES: dict[str, set[str]] = {
    "vllm_0_6": {"prefix_hit_tokens_total", "prefix_query_tokens_total", "queue_wait_seconds"},
    "vllm_0_10": set(),
    "vllm_0_19": set(),
    "sglang_0_4": {"preemptions_total", "prefix_hit_tokens_total", "queue_wait_seconds"},
    "sglang_0_5": set(),
}
# What the rules make of each page.
EXPECTED: dict[str, dict[str, float]] = {
    "vllm_0_6": {
        "running_requests": 7,
        "waiting_requests": 3,
        "kv_used_ratio": 0.4,
        "preemptions_total": 2,
        "time_to_first_token_seconds_count": 100,
        "inter_token_latency_seconds_count": 4900,
    },
    "vllm_0_10": {
        "running_requests": 9,
        "kv_used_ratio": 0.55,
        "prefix_hit_tokens_total": 750,
        "prefix_query_tokens_total": 1000,
        "inter_token_latency_seconds_count": 8800,
    },
    "vllm_0_19": {
        "running_requests": 9,
        "waiting_requests": 1,
        "kv_used_ratio": 0.55,
        "prefix_hit_tokens_total": 750,
        "inter_token_latency_seconds_count": 8800,
        "queue_wait_seconds_count": 120,
        "request_duration_seconds_count": 120,
    },
    "sglang_0_4": {
        "running_requests": 162,
        "waiting_requests": 2826,
        "kv_used_ratio": 0.28,
        "prompt_tokens_total": 8000,
        "inter_token_latency_seconds_count": 7400,
    },
    "sglang_0_5": {
        "running_requests": 12,
        "waiting_requests": 2,
        "kv_used_ratio": 0.37,
        "preemptions_total": 5,
        "prompt_tokens_total": 4500,
        "generation_tokens_total": 3500,
        "prefix_hit_tokens_total": 1200,
        "queue_wait_seconds_count": 95,
    },
}


def page(name: str) -> str:
    return (DATA / f"{name}.txt").read_text("utf-8")


def scraped(text: str, instance: str, underscores: bool = False) -> list[dict[str, str]]:
    """The page as Prometheus stores it, standing still for five minutes."""
    series = []
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = sample.labels | {"instance": instance, "job": "surgetank-backend"}
            said = ",".join(f'{label}="{value}"' for label, value in labels.items())
            name = sample.name.replace(":", "_") if underscores else sample.name
            series.append({"series": f"{name}{{{said}}}", "values": f"{sample.value}x20"})
    return series


def value(signal: str, backend: str, expected: dict[str, float]) -> dict[str, Any]:
    """What a neutral series is, by instance."""
    return {
        "eval_time": "5m",
        "expr": f'sum by (instance) (surgetank_engine_{signal}{{backend="{backend}"}})',
        "exp_samples": [
            {"labels": f'{{instance="{instance}"}}', "value": number}
            for instance, number in expected.items()
        ],
    }


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("underscores", [False, True], ids=["colon", "underscore"])
def test_rules_read_every_generation(
    name: str, underscores: bool, rules: Path, tmp_path: Path
) -> None:
    backend = name.partition("_")[0]
    expected = [value(key, backend, {"gpu-1": said}) for key, said in EXPECTED[name].items()]
    check_rules(tmp_path, rules, scraped(page(name), "gpu-1", underscores), expected)


def test_two_half_full_pools_are_half_full(rules: Path, tmp_path: Path) -> None:
    series = scraped(page("vllm_0_6"), "gpu-1") + scraped(page("vllm_0_19"), "gpu-2")
    mean = {
        "eval_time": "5m",
        "expr": "round(avg(surgetank_engine_kv_used_ratio), 0.001)",
        "exp_samples": [{"labels": "{}", "value": 0.475}],
    }
    each = value("kv_used_ratio", "vllm", {"gpu-1": 0.4, "gpu-2": 0.55})
    check_rules(tmp_path, rules, series, [mean, each])


def test_engines_of_one_server_add_up_but_their_pools_do_not(rules: Path, tmp_path: Path) -> None:
    first = page("vllm_0_19")
    series = scraped(first, "gpu-1") + scraped(first.replace('engine="0"', 'engine="1"'), "gpu-1")
    running = value("running_requests", "vllm", {"gpu-1": 18})
    check_rules(tmp_path, rules, series, [running, value("kv_used_ratio", "vllm", {"gpu-1": 0.55})])


def test_a_total_is_not_added_to_its_own_parts(rules: Path, tmp_path: Path) -> None:
    """SGLang with priorities tells how many run in all, and again how many of each priority."""
    total = page("sglang_0_5").replace("{", '{priority="",')
    parts = page("sglang_0_5").replace("{", '{priority="1",')
    series = scraped(total, "gpu-1") + scraped(parts, "gpu-1")
    expected = [
        value(signal, "sglang", {"gpu-1": number})
        for signal, number in {"running_requests": 12, "waiting_requests": 2}.items()
    ]
    check_rules(tmp_path, rules, series, expected)


def test_the_model_keeps_its_name(rules: Path, tmp_path: Path) -> None:
    labels = '{backend="vllm", instance="gpu-1", model="Qwen/Qwen3-8B"}'
    expected = {
        "eval_time": "5m",
        "expr": "surgetank_engine_running_requests",
        "exp_samples": [
            {"labels": f"surgetank_engine_running_requests{labels}", "value": 9},
        ],
    }
    check_rules(tmp_path, rules, scraped(page("vllm_0_19"), "gpu-1"), [expected])


@pytest.mark.parametrize("name", PAGES)
def test_what_is_missing_is_told(name: str) -> None:
    gaps = missing(name.partition("_")[0], page(name))
    assert {gap.signal for gap in gaps} == PAGES[name]


def test_a_renamed_metric_is_named() -> None:
    renamed = page("vllm_0_19").replace("vllm:kv_cache_usage_perc", "vllm:kv_cache_fill")
    (gap,) = missing("vllm", renamed)
    assert str(gap).startswith("kv_used_ratio: none of vllm:kv_cache_usage_perc,")


def test_a_renamed_metric_raises_an_alert(rules: Path, tmp_path: Path) -> None:
    answers = {
        "series": 'up{job="surgetank-backend",instance="gpu-1"}',
        "values": "1x20",
    }
    sidecar = {"series": 'up{job="surgetank",instance="r1"}', "values": "1x20"}
    renamed = page("vllm_0_19").replace("vllm:kv_cache_usage_perc", "vllm:kv_cache_fill")
    both = [answers, sidecar]
    check_rules(
        tmp_path, rules, [*both, *scraped(renamed, "gpu-1")], [firing(6, ["MetricsAbsent"])]
    )
    good = page("vllm_0_19")
    check_rules(tmp_path, rules, [*both, *scraped(good, "gpu-1")], [firing(6, ())])


def test_every_signal_has_a_name_in_every_engine() -> None:
    for alias in ALIASES:
        for engine in ENGINES:
            assert alias.candidates(engine), f"{engine}: {alias.name}"


def test_the_command_tells_what_is_missing() -> None:
    said = CliRunner().invoke(main, ["dashboards", "backend", "vllm", str(DATA / "vllm_0_6.txt")])
    assert said.exit_code == 0
    assert said.output.splitlines()[0].startswith("prefix_hit_tokens_total: none of ")
    page_path = str(DATA / "vllm_0_19.txt")
    said = CliRunner().invoke(main, ["dashboards", "backend", "vllm", page_path])
    assert said.output == "every signal is there under a name known of vllm\n"
