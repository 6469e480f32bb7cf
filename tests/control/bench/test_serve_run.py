"""`surgetank bench serve` as a user runs it, against a played server."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.control.bench.played_openai import BUSY, PlayedOpenAI

from surgetank.control.cli import main


def ran(played: PlayedOpenAI, out: Path, *options: str) -> Result:
    command = ["bench", "serve", "--url", played.url, "--out", str(out), "--input", SPEC]
    return CliRunner().invoke(main, [*command, "--client", "httpx", *options])


SPEC = "prompt=25,output=4"


def told(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def runs(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "bench-serve.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "options", [("--concurrency", "2"), ("--rate", "500"), ("--chat", "--concurrency", "3")]
)
def test_a_run_is_measured_shown_drawn_and_kept(tmp_path: Path, options: Sequence[str]) -> None:
    with PlayedOpenAI() as played:
        result = ran(played, tmp_path, "--requests", "12", "--json", *options)
    assert result.exit_code == 0, result.output
    document = told(result)
    assert (document["completed"], document["failed"]) == (12, 0)
    assert (document["total_input_tokens"], document["total_output_tokens"]) == (300, 48)
    assert document["prompt_tokens_error"] == 0.0  # two tokens a word and five, learned by probes
    assert document["attempts_per_request"] == 1.0
    assert document["p99_ttft_ms"] > 0
    assert (tmp_path / "bench-serve.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "bench-serve.json").read_text()) == document
    [line] = runs(tmp_path)
    assert line["figures"]["completed"] == 12
    assert line["settings"]["model"] == "played"
    assert "unused" not in json.dumps(line)


def test_a_run_of_which_nothing_succeeded_has_failed(tmp_path: Path) -> None:
    with PlayedOpenAI() as played:
        played.refusals = [BUSY] * 100
        clients = ("--client", "httpx,no-retry")
        result = ran(played, tmp_path, "--requests", "4", "--concurrency", "1", *clients)
    assert result.exit_code == 1
    assert "Failed requests" in result.stdout


def test_the_table_is_the_fields(tmp_path: Path) -> None:
    with PlayedOpenAI() as played:
        played.refusals = [BUSY]
        clients = ("--client", "httpx,no-retry", "--seed", "1")
        result = ran(played, tmp_path, "--requests", "8", "--concurrency", "1", *clients)
    assert result.exit_code == 0, result.output
    for words in ("Successful requests", "Output token throughput (tok/s)", "TPOT", "ITL", "P99"):
        assert words in result.stdout
    assert "Refused: predicted_wait" in result.stdout
    assert "By client" in result.stdout


def test_a_server_of_few_words_is_measured_too(tmp_path: Path) -> None:
    with PlayedOpenAI(counts=False, takes=()) as played:
        result = ran(played, tmp_path, "--requests", "3", "--concurrency", "1", "--json")
    document = told(result)
    assert document["total_output_tokens"] == 12  # its pieces
    assert document["prompt_tokens_error"] is None
    assert "takes no ignore_eos" in document["notes"][0]
    assert "guessed" in document["notes"][1]
    assert "tokens are the pieces" in document["notes"][2]
    assert "min_tokens" not in played.streams[0]


def test_min_tokens_go_to_servers_that_take_them(tmp_path: Path) -> None:
    with PlayedOpenAI(takes=("ignore_eos", "min_tokens")) as played:
        ran(played, tmp_path, "--requests", "1", "--concurrency", "1")
    assert played.streams[0]["min_tokens"] == 4


def test_runs_are_compared_with_the_last_equal_one(tmp_path: Path) -> None:
    settings = ("--requests", "4", "--concurrency", "1", "--compare")
    with PlayedOpenAI() as played:
        first = ran(played, tmp_path, *settings)
        assert first.exit_code == 0
        assert "Nothing to compare with" in first.stdout
        [line] = runs(tmp_path)
        _rewrite(tmp_path, line, request_throughput=1e9)
        worse = ran(played, tmp_path, *settings)
        assert worse.exit_code == 1
        assert "Worse by more than 10%: request_throughput." in worse.stdout
        assert "Beside the last run of equal settings (version 0.1.0" in worse.stdout
        floor = {"request_goodput": 0.0, "request_throughput": 0.0, "output_throughput": 0.0}
        _rewrite(tmp_path, line, **floor, p99_ttft_ms=1e9)
        assert ran(played, tmp_path, *settings).exit_code == 0
        other = ran(played, tmp_path, *settings, "--requests", "5")
        assert "Nothing to compare with" in other.stdout


def _rewrite(out: Path, line: dict[str, Any], **figures: float) -> None:
    calm = {"request_goodput": 0.0, "output_throughput": 0.0, "p99_ttft_ms": 1e9}
    changed = line | {"figures": line["figures"] | calm | figures}
    (out / "bench-serve.jsonl").write_text(json.dumps(changed) + "\n")


def test_an_interrupted_run_shows_what_it_has(tmp_path: Path) -> None:
    def stop(number: int) -> None:
        if number == 5:
            os.kill(os.getpid(), signal.SIGINT)

    with PlayedOpenAI() as played:
        played.on_stream = stop
        result = ran(played, tmp_path, "--concurrency", "1", "--duration", "60s", "--json")
    assert result.exit_code == 130
    document = told(result)
    assert document["interrupted"] is True
    assert 4 <= document["completed"] < 500
    assert runs(tmp_path)[0]["interrupted"] is True


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--client", "nobody"), "allowed: KIND or KIND=WEIGHT"),
        (("--client", "grpc"), "give --grpc HOST:PORT"),
        (("--client", "grpc", "--grpc", "x:1", "--chat"), "knows no chat"),
        (("--slo", "ttft=-1"), "seconds above 0"),
        (("--rate", "1", "--concurrency", "1"), "not both"),
        (("--input", "nowhere.csv"), "no such file"),
    ],
)
def test_what_cannot_be_is_one_sentence(tmp_path: Path, options: Sequence[str], words: str) -> None:
    with PlayedOpenAI() as played:
        result = ran(played, tmp_path, *options)
    assert result.exit_code == 2
    assert words in result.stderr
    assert played.streams == []


def test_a_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with PlayedOpenAI() as played:
        pass
    result = ran(played, tmp_path, "--requests", "1")
    assert result.exit_code == 1
    assert f"{played.url}/v1 does not answer" in result.stderr


def test_it_needs_neither_an_engine_nor_extras() -> None:
    code = (
        "import sys, surgetank.control.bench.serve.run, surgetank.control.cli.bench_serve\n"
        "sys.exit(' '.join({'torch', 'numpy', 'openai', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.stderr == b"\n"
