"""Load tools against the running product: ours, and aiperf and k6 by the scripts in examples/."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.e2e.running import PATIENCE, Running

from surgetank.control.cli import main

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def tool(name: str) -> str:
    """Where it is; the test is skipped where it is not."""
    own = ROOT / ".venv-load" / "bin" / name
    found = str(own) if own.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: make load-tools")
    return found


def ran(*command: str | Path, **environment: str) -> str:
    """What it said; fails when it fails."""
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, timeout=2 * PATIENCE
    )
    said = (done.stdout + done.stderr).decode(errors="replace")
    assert done.returncode == 0, said
    return said


def test_our_own_measures_both_doors(service: Running, tmp_path: Path) -> None:
    command = ["bench", "serve", "--url", service.http, "--grpc", service.listeners["grpc"]]
    command += ["--input", "prompt=40,output=5", "--requests", "8", "--concurrency", "2"]
    command += ["--client", "openai,grpc-stream", "--out", str(tmp_path), "--json"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["completed"], found["failed"]) == (8, 0)
    assert found["total_output_tokens"] == 40
    assert found["prompt_tokens_error"] < 0.15
    assert set(found["clients"]) == {"openai", "grpc-stream"}
    assert 0 < found["median_ttft_ms"] < found["median_e2el_ms"]


@pytest.mark.parametrize(("script", "variable", "door"), [("http", "URL", "http"), ("grpc",) * 3])
def test_k6(service: Running, tmp_path: Path, script: str, variable: str, door: str) -> None:
    settings = {variable.upper(): service.listeners[door], "RATE": "2", "DURATION": "2s"}
    settings["TOKENS"] = "4"
    pairs = [part for key, value in settings.items() for part in ("-e", f"{key}={value}")]
    summary = tmp_path / "summary.json"
    export = f"--summary-export={summary}"
    quiet = ("--quiet", "--no-usage-report")
    ran(tool("k6"), "run", *quiet, export, *pairs, EXAMPLES / "k6" / f"{script}.js")
    metrics: dict[str, Any] = json.loads(summary.read_text())["metrics"]
    assert metrics["served"]["passes"] >= 3
    assert metrics["served"]["fails"] == 0
    assert metrics["checks"]["fails"] == 0


def test_aiperf(service: Running, tmp_path: Path) -> None:
    aiperf, folder, out = tool("aiperf"), tmp_path / "tokenizer", tmp_path / "out"
    ran(sys.executable, EXAMPLES / "aiperf" / "tokenizer_folder.py", folder)
    few = {"CONCURRENCY": "2", "REQUESTS": "4", "INPUT": "40", "OUTPUT": "4"}
    script = EXAMPLES / "aiperf" / "profile.sh"
    ran("sh", script, folder, AIPERF=aiperf, URL=service.http, OUT=str(out), **few)
    found = json.loads((out / "profile_export_aiperf.json").read_text())
    assert found["request_count"]["avg"] == 4
    assert found["output_sequence_length"]["avg"] == 4
    assert found["time_to_first_token"]["avg"] > 0
