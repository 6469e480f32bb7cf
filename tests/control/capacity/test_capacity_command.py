"""The command: what it prints, its exit codes, and the check against a running engine."""

import http.server
import json
import threading
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from surgetank.control.capacity.check import Reported, difference, read_metrics
from surgetank.control.capacity.units import CapacityError
from surgetank.control.cli.capacity import capacity

SURGETANK = """
surgetank_memory_kv_blocks{state="used"} 100.0
surgetank_memory_kv_blocks{state="cached"} 52.0
surgetank_memory_kv_blocks{state="free"} 1800.0
surgetank_memory_kv_block_size_tokens 16.0
"""
VLLM = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="1952",cache_dtype="auto"} 1.0\n'


def run(*arguments: str) -> Result:
    return CliRunner().invoke(capacity, arguments)


@pytest.fixture
def engine() -> Iterator[tuple[str, dict[str, str]]]:
    """A metrics page on loopback: its address, and the pages by path."""
    pages: dict[str, str] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path)
            self.send_response(404 if page is None else 200)
            self.end_headers()
            self.wfile.write((page or "").encode())

        def log_message(self, format: str, *args: object) -> None:
            """Quiet: the test's output is its own."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", pages
    server.shutdown()
    thread.join()
    server.server_close()


def test_every_line_shows_its_formula_with_the_numbers() -> None:
    result = run("Llama-3.1-8B", "--gpu-memory", "24GiB", "--concurrency", "4", "--rps", "10",
                 "--retries", "3", "--retries", "2", "--retry-budget", "0.1")  # fmt: skip
    assert result.exit_code == 0
    for formula in (
        "= 8,030,261,248 x 2 B",
        "= 8 KV heads x (128 + 128) x 2 B x 32",
        "= 256 blocks x 2,097,152 B",
        "= sampling: 256 x 128,256 x 38.4 B + 2,048 x 4,096 x 2 B",
        "= 14.96 GiB + 1.19 GiB + 0.13 GiB + 4 x 0.50 GiB",
        "= 0.9 x 24.00 GiB - 14.96 GiB - 1.19 GiB - 0.13 GiB",
        "= (3 + 1) x (2 + 1)",
        "= min(12, 1 + 0.1)",
        "= 10/s x 1.1",
    ):
        assert formula in result.stdout
    assert "fits (76.2%)" in result.stdout
    lines = [line for line in result.stdout.splitlines() if line.startswith("  ")]
    assert all(" = " in line for line in lines)


def test_json_and_nothing_else() -> None:
    result = run("Qwen3-235B-A22B", "--tp", "4", "--gpu", "H100-80GB", "--json")
    report = json.loads(result.stdout)
    assert report["verdict"] == "does not fit"
    assert report["lines"]["kv_token_bytes"]["value"] == 48_128
    assert report["lines"]["parameters"]["value"] == 235_093_634_560
    assert result.stderr == ""


def test_without_memory_it_says_what_would_hold_the_model() -> None:
    result = run("Llama-3.1-70B", "--tp", "2")
    assert result.exit_code == 0
    assert "smallest that hold it: H100-NVL, H200, B200" in result.stdout
    assert "what fits" not in result.stdout


def test_a_forward_pass_binds_when_few_sequences_sample() -> None:
    result = run("Llama-3.1-8B", "--max-seqs", "8", "--batch-tokens", "8192")
    assert "= forward: 8,192 x (2 x 4,096 + 3 x 14,336/1) x 2 B" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["Llama-3.1-8B", "--tp", "0"], "tp is 0; allowed: whole number, 1 to 1024"),
        (["Llama-3.1-8B", "--tp", "3"], "allowed: a divisor of the model's 32 heads"),
        (["Llama-3.1-8B", "--tp", "x"], "'x' is not a valid integer"),
        (["Llama-3.1-8B", "--gpu-memory", "80"], "without a unit"),
        (["Llama-3.1-8B", "--gpu-memory", "-1GB"], "more than 0"),
        (["Llama-3.1-8B", "--gpu", "H100-80GB", "--gpu-memory", "1GB"], "only one"),
        (["Llama-3.1-8B", "--utilization", "nan"], "utilization is nan"),
        (["Llama-3.1-8B", "--context", "131073"], "allowed: 1 to 131072"),
        (["Llama-3.1-8B", "--dtype", "fp9"], "did you mean fp8"),
        (["Llama-3.1-8B", "--kv-dtype", "int4"], "did you mean int8"),
        (["Llama-3.1-8B", "--retries", "3"], "need rps"),
        (["Llama-3.1-8B", "--rps", "1", "--retries", "-1"], "each 0 to 100"),
        (["Llama-3.1-8B", "--tolerance", "-1"], "tolerance is -1.0"),
        (["Llama-3.1-8B", "--nonsense"], "No such option"),
        (["nowhere/config.json"], "no such file"),
        ([], "Missing argument"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(arguments: list[str], sentence: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_an_error_in_json() -> None:
    result = run("Llama-3.1-8B", "--tp", "0", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["code"] == "invalid"


@pytest.mark.parametrize("page", [SURGETANK, VLLM], ids=["surgetank", "vllm"])
def test_a_prediction_is_checked_against_a_running_engine(
    engine: tuple[str, dict[str, str]], page: str
) -> None:
    url, pages = engine
    pages["/metrics"] = page
    good = run("Llama-3.1-8B", "--kv-memory", "3.81GiB", "--check", url, "--tolerance", "1")
    assert good.exit_code == 0
    assert "-0.10 %: within 1 %" in good.stdout
    assert "= 100 x (1,950 - 1,952) / 1,952" in good.stdout
    off = run("Llama-3.1-8B", "--kv-memory", "4.5GiB", "--check", url, "--json")
    assert off.exit_code == 1
    assert json.loads(off.stdout)["lines"]["difference_percent"]["value"] == pytest.approx(
        18.03, abs=0.01
    )


def test_a_check_that_cannot_be_made_says_why(engine: tuple[str, dict[str, str]]) -> None:
    url, pages = engine
    missing = run("Llama-3.1-8B", "--kv-memory", "1GiB", "--check", url)
    assert (missing.exit_code, "answers 404" in missing.stderr) == (3, True)
    pages["/metrics"] = "up 1\n"
    assert run("Llama-3.1-8B", "--kv-memory", "1GiB", "--check", url).exit_code == 2
    pages["/metrics"] = SURGETANK
    assert "needs gpu_memory" in run("Llama-3.1-8B", "--check", url).stderr
    sized = run("Llama-3.1-8B", "--kv-memory", "1GiB", "--check", url, "--block-size", "32")
    assert "block_size is 32; the engine's is 16" in sized.stderr
    gone = run("Llama-3.1-8B", "--kv-memory", "1GiB", "--check", "http://127.0.0.1:1")
    assert gone.exit_code == 3


def test_both_spellings_of_the_colon_are_read() -> None:
    assert read_metrics(VLLM) == Reported("vllm", 1952, 16)
    assert read_metrics(VLLM.replace(":", "_")) == Reported("vllm", 1952, 16)
    with pytest.raises(CapacityError, match="neither"):
        read_metrics(VLLM.replace("1952", "None"))
    with pytest.raises(CapacityError, match="not a metrics page"):
        read_metrics("<html>{</html>")


def test_an_engine_that_has_not_run_a_step_yet() -> None:
    with pytest.raises(CapacityError, match="send it one request first"):
        read_metrics("surgetank_memory_kv_block_size_tokens 16.0\n")


def test_a_difference_from_nothing() -> None:
    assert difference(0, 0) == 0
    assert difference(1, 0) == float("inf")
