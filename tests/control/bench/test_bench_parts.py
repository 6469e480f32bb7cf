"""Tally, variants, child processes, the trace's slice, the page: the benchmarks' parts."""

import json
import random
import sys
from dataclasses import replace
from pathlib import Path

import click
import pytest
import torch
from click.testing import CliRunner
from tests.fakes import step_record

from surgetank.control.bench import page
from surgetank.control.bench.document import BenchError, as_markdown, document
from surgetank.control.bench.export import hf_config
from surgetank.control.bench.rival import Piped
from surgetank.control.bench.schedules import TRACE, Served, calls_of, quantile, summary
from surgetank.control.bench.startlist import Variant
from surgetank.control.bench.workload import Tally, prompts
from surgetank.control.cli import main
from surgetank.engine.api import StepOutput, Tokens
from surgetank.engine.model.config import ModelConfig, plain_inv_freq
from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.vocabulary import FinishReason, Priority

ROOT = Path(__file__).parents[3]


def output(*tokens: Tokens) -> StepOutput:
    return StepOutput(list(tokens), [], step_record(forward=0.25))


def test_decode_counts_from_the_moment_when_all_have_begun() -> None:
    tally = Tally(2, begun=10.0)
    tally.step(output(Tokens(1, 0, [5])), 11.0)
    tally.step(output(Tokens(1, 0, [6]), Tokens(2, 0, [7])), 12.0)
    tally.step(output(Tokens(1, 0, [8], None, FinishReason.LENGTH), Tokens(2, 0, [9])), 13.0)
    assert not tally.done
    tally.step(output(Tokens(2, 0, [9], None, FinishReason.LENGTH)), 14.5)
    assert tally.done
    sample = tally.sample()
    assert (sample.prefill, sample.decode, sample.decoded) == (2.0, 2.5, 3)
    assert sample.stages["forward"] == 0.5


def test_a_refused_request_is_an_error() -> None:
    tally = Tally(1, begun=0.0)
    refused = Tokens(1, 0, [], None, FinishReason.REFUSED, "too long")
    with pytest.raises(BenchError, match="too long"):
        tally.step(output(refused), 1.0)


def test_prompts_share_no_beginning() -> None:
    made = prompts(50, 8, random.Random(1), 49_152)
    assert len({tuple(prompt[:2]) for prompt in made}) == 50
    assert prompts(1, 3, random.Random(1), 5)[0] == [4, 4, 4]


def test_a_variant_is_environment_and_settings() -> None:
    variant = Variant.parse("one:threads=1,MALLOC_TRIM_THRESHOLD_=5")
    assert variant.env == {"MALLOC_TRIM_THRESHOLD_": "5"}
    assert variant.settings == {"threads": "1"}
    with pytest.raises(BenchError, match="'one'; allowed: NAME:KEY=VALUE"):
        Variant.parse("one")


def test_peers_get_the_model_in_their_words() -> None:
    config = ModelConfig(
        architecture="llama",
        vocab_size=100,
        hidden_size=32,
        intermediate_size=64,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        context_length=128,
        norm_eps=1e-5,
        rope_inv_freq=plain_inv_freq(100_000.0, 8),
        tied_embeddings=True,
    )
    told = hf_config(config, torch.bfloat16)
    assert told["rope_theta"] == 100_000.0
    assert (told["num_key_value_heads"], told["torch_dtype"]) == (2, "bfloat16")
    scaled = replace(config, rope_inv_freq=tuple(f / 2 for f in config.rope_inv_freq))
    with pytest.raises(BenchError, match="without rotary scaling"):
        hf_config(scaled, torch.bfloat16)


def test_a_child_answers_and_its_end_is_told(tmp_path: Path) -> None:
    code = (
        "from lines import serve\n"
        "def generate(prompts, output):\n"
        "    if output == 1: raise SystemExit('out of luck')\n"
        "    print('noise on stdout')\n"
        "    return [(1.0, 0, 0), (1.5, 1, 1), (2.0, 3, 2), (4.0, 5, 2), (5.0, 7, 2)]\n"
        "serve(lambda: ('test 1', generate))\n"
    )
    env = {"PYTHONPATH": str(ROOT / "control/bench/peers")}
    child = Piped("child", [sys.executable, "-c", code], env, tmp_path)
    try:
        assert child.version == "test 1"
        sample = child.ask([[1, 2], [3, 4]], 3)
        assert (sample.prefill, sample.decode, sample.decoded) == (1.0, 3.0, 4)
        with pytest.raises(BenchError, match="child ended with code 1: out of luck"):
            child.ask([[1]], 1)
    finally:
        child.close()


def test_the_slice_is_scaled_and_its_draw_repeats() -> None:
    calls, scale = calls_of(TRACE, 60, 49_152, seed=3)
    lengths = [len(call.request.prompt) for call in calls]
    assert max(lengths) == 512
    assert lengths[0] == round(2964 * scale)
    assert calls[0].request.sampling.max_tokens == 11
    urgent = [call.request.priority is Priority.CRITICAL for call in calls]
    assert urgent == [call.urgent for call in calls_of(TRACE, 60, 49_152, seed=3)[0]]
    assert 5 <= sum(urgent) <= 25


def test_a_summary_is_mean_and_nearest_rank() -> None:
    served = [Served(0.0, 1.0, 2.0, 10, False), Served(1.0, 4.0, 5.0, 30, True)]
    row = summary("static", served)
    assert row["tokens_per_second"] == 8.0
    assert (row["latency_mean"], row["latency_p99"], row["ttft_mean"]) == (3.0, 4.0, 2.0)
    assert row["urgent_latency_mean"] == 4.0
    assert quantile([float(n) for n in range(1, 101)], 0.99) == 99.0


def test_the_performance_page_is_the_measured_one() -> None:
    text = (ROOT / page.PAGE).read_text("utf-8")
    assert page.render(text, page.documents_of(ROOT)) == text


def test_publish_copies_and_renders(tmp_path: Path) -> None:
    found = document("engine", ManualClock(), {"threads": 2}, {}, [], ["vllm is not installed"])
    out, root = tmp_path / "out", tmp_path / "root"
    (root / "docs").mkdir(parents=True)
    out.mkdir()
    (out / "bench-engine.json").write_text(json.dumps(found))
    (out / "bench-engine.png").write_bytes(b"png")
    (root / page.PAGE).write_text((ROOT / page.PAGE).read_text("utf-8"))
    written = page.publish(out, root)
    assert (root / "docs/images/bench-engine.png") in written
    text = (root / page.PAGE).read_text("utf-8")
    assert as_markdown(found) in text
    assert "- vllm is not installed" in text
    assert page.render(text, page.documents_of(root)) == text
    with pytest.raises(ValueError, match="no block between"):
        page.render("# empty", {})


def test_the_page_names_commands_that_exist() -> None:
    bench = main.get_command(click.Context(main), "bench")
    assert isinstance(bench, click.Group)
    assert set(page.BENCHES) <= set(bench.commands)
    refused = CliRunner().invoke(main, ["bench", "engine", "--batches", "1,x"])
    assert refused.exit_code == 2
    assert "'1,x'; allowed: whole numbers above 0" in refused.output
