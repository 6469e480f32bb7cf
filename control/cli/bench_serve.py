"""`surgetank bench serve`: load against a running server, like the field's own tools."""

import signal
import sys
from pathlib import Path
from typing import Any

import click

from surgetank.control.cli.output import FAILED, USAGE, Duration, fail, json_option
from surgetank.control.cli.shared_bench import Say, out_option, show_bench

INTERRUPTED = 128 + signal.SIGINT
_ABOVE_0 = click.FloatRange(min=0, min_open=True)


@click.command(
    epilog="""\b
Exit codes: 0 done; 1 the run failed or no call succeeded, or --compare found it worse;
2 wrong usage; 130 interrupted (what was measured until then is shown and kept)."""
)
@click.option("--url", default="http://127.0.0.1:8400", show_default=True, help="Any OpenAI URL.")
@click.option("--grpc", metavar="HOST:PORT", help="A KServe v2 door, for --client grpc.")
@click.option("--model", help="[default: the first of /v1/models]")
@click.option("--api-key", default="unused", envvar="OPENAI_API_KEY", help="$OPENAI_API_KEY too.")
@click.option("--chat", is_flag=True, help="Chat completions instead of completions.")
@click.option("--rate", type=_ABOVE_0, help="Open loop: calls per second, whatever comes back.")
@click.option("--concurrency", type=click.IntRange(1, 10_000), help="Closed loop: so many callers.")
@click.option("--requests", type=click.IntRange(1), help="[default: 100, or the whole trace]")
@click.option("--duration", type=Duration(), help="Such as 60s; with --requests, what is first.")
@click.option(
    "--input",
    default="prompt=256,output=64",
    show_default=True,
    metavar="TRACE|SPEC",
    help="A trace (JSON lines of t, in, out; or Azure's CSV), or sizes: prompt, output, "
    "prompt_sigma, output_sigma, arrivals=poisson|gamma|bursty, cv, burst, period.",
)
@click.option("--speed", default=1.0, show_default=True, type=_ABOVE_0, help="Of a trace's times.")
@click.option("--scale", default=1.0, show_default=True, type=_ABOVE_0, help="Of a trace's sizes.")
@click.option(
    "--client",
    default="openai",
    show_default=True,
    metavar="KIND[=WEIGHT],...",
    help="openai, openai-hasty, httpx (our retrying transport), grpc, grpc-stream, or no-retry, "
    "immediate-1, immediate-3, backoff, obedient, silent, patient.",
)
@click.option(
    "--slo", default="ttft=1,tpot=.1", show_default=True, help="What is good: ttft, tpot, e2el; s."
)
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path, exists=True),
    help="tokenizer.json, its folder, or a GGUF file.  [default: the server's counts are learned]",
)
@click.option("--timeout", default=60.0, show_default=True, type=_ABOVE_0, help="Seconds.")
@click.option("--seed", default=1, show_default=True, help="Of sizes, times, clients and prompts.")
@click.option(
    "--history",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Runs are added to this file.  [default: bench-serve.jsonl in --out]",
)
@click.option("--compare", is_flag=True, help="With the last run of equal settings there.")
@click.option(
    "--tolerance",
    default=0.1,
    show_default=True,
    type=click.FloatRange(0, 10),
    help="How much worse goodput, throughput or P99 TTFT may be: a share of the earlier figure.",
)
@out_option
@json_option
def serve(
    as_json: bool,
    out: Path,
    history: Path | None,
    compare: bool,
    tolerance: float,
    client: str,
    slo: str,
    **given: Any,
) -> None:
    """Load against a running server: tokens/s, TTFT, TPOT, ITL, goodput, retries.

    Open loop (--rate, or a trace at its own times) or closed loop (--concurrency), with prompts of
    the right token lengths. Works on any server that speaks OpenAI's API.
    """
    from surgetank.control.bench.document import BenchError
    from surgetank.control.bench.serve.inputs import calls_of, settled
    from surgetank.control.bench.serve.run import Keeping
    from surgetank.control.bench.serve.run import serve as run_serve
    from surgetank.control.bench.serve.wishes import Slo, Wishes, parse_clients
    from surgetank.telemetry.clock import SystemClock

    try:
        wishes = settled(Wishes(clients=parse_clients(client), slo=Slo.parse(slo), **given))
        calls = calls_of(wishes)
    except BenchError as error:
        fail(as_json, USAGE, "usage", str(error))
    keeping = Keeping(out, history or out / "bench-serve.jsonl", compare, tolerance)
    found: dict[str, Any] = {}

    def measure(say: Say) -> dict[str, Any]:
        found.update(run_serve(wishes, calls, keeping, SystemClock(), say))
        return found

    show_bench(as_json, out, measure)
    if found["interrupted"]:
        sys.exit(INTERRUPTED)
    if found["regressed"] or not found["completed"]:
        sys.exit(FAILED)
