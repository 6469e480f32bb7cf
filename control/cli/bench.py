"""`surgetank bench`: the engine against its peers, and what our own parts cost."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from surgetank.control.cli.bench_serve import serve
from surgetank.control.cli.output import json_option
from surgetank.control.cli.shared_bench import out_option, run_bench

model_option = click.option("--model", default="default", show_default=True, help="As for run.")
dtype_option = click.option(
    "--dtype",
    default="float32",
    show_default=True,
    type=click.Choice(["float32", "bfloat16"]),
    help="Of weights and KV: ours, transformers and vLLM.",
)
threads_option = click.option(
    "--threads", type=click.IntRange(1, 1024), help="Of every engine.  [default: physical cores]"
)


@click.group()
def bench() -> None:
    """Measure on this machine. Only ratios within one run mean something."""


class Numbers(click.ParamType[tuple[int, ...]]):
    """Whole numbers above 0 with commas between them."""

    name = "numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """A usage error names the value and the form."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(sorted({int(each) for each in str(value).split(",")}))
        except ValueError:
            numbers = (0,)
        if numbers[0] < 1:
            self.fail(f"{value!r}; allowed: whole numbers above 0, such as 1,8,32", param, ctx)
        return numbers


@bench.command()
@click.option("--quick", is_flag=True, help="Batches 1, 16, 32, 64, two rounds, shorter outputs.")
@click.option("--batches", type=Numbers(), help="Such as 1,8,32.  [default: 1,8,16,32,64]")
@click.option("--rounds", type=click.IntRange(1, 100), help="[default: 3]")
@click.option("--peers", help="Some of transformers,llama.cpp,vllm, or none.  [default: all]")
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME:KEY=VALUE,...",
    help="Ours once more, with other settings or (keys in capitals) another environment.",
)
@model_option
@dtype_option
@threads_option
@out_option
@json_option
def engine(
    quick: bool,
    batches: tuple[int, ...] | None,
    rounds: int | None,
    peers: str | None,
    variants: tuple[str, ...],
    model: str,
    dtype: str,
    threads: int | None,
    out: Path,
    as_json: bool,
) -> None:
    """Decode and prefill speed, ours through its process and its link, and the peers' in turn.

    Every engine is one process that is started once; each round asks all of them for the same
    batch, one after the other.
    """

    def measure(say: Callable[[str], None]) -> dict[str, Any]:
        from surgetank.control.bench.race import Wishes, race
        from surgetank.telemetry.clock import SystemClock

        wishes = Wishes(
            quick=quick,
            batches=batches,
            rounds=rounds,
            peers=None if peers is None else tuple(filter(None, peers.split(","))),
            variants=variants,
            model=model,
            dtype=dtype,
            threads=threads,
            out=out,
        )
        return race(wishes, SystemClock(), say)

    run_bench(as_json, out, measure)


@bench.command()
@click.option("--queued", type=Numbers(), help="Queue lengths.  [default: 1,100,1000,10000]")
@click.option("--decisions", default=2000, show_default=True, type=click.IntRange(10, 1_000_000))
@out_option
@json_option
def admission(queued: tuple[int, ...] | None, decisions: int, out: Path, as_json: bool) -> None:
    """CPU time of one admission decision, by queue length, tenants and classes."""

    def measure(say: Callable[[str], None]) -> dict[str, Any]:
        from surgetank.control.bench.decisions import LENGTHS, decide
        from surgetank.telemetry.clock import SystemClock

        return decide(queued or LENGTHS, decisions, SystemClock(), say)

    run_bench(as_json, out, measure)


@bench.command()
@click.option("--steps", default=40, show_default=True, type=click.IntRange(4, 1_000_000))
@model_option
@dtype_option
@threads_option
@out_option
@json_option
def telemetry(
    steps: int, model: str, dtype: str, threads: int | None, out: Path, as_json: bool
) -> None:
    """What recording a step costs at batch 32, and the gap that a large scrape tears."""

    def measure(say: Callable[[str], None]) -> dict[str, Any]:
        from surgetank.control.bench.recording import observe
        from surgetank.telemetry.clock import SystemClock

        return observe(model, dtype, threads, steps, SystemClock(), say)

    run_bench(as_json, out, measure)


@bench.command()
@click.option("--rate", default=50.0, show_default=True, type=click.FloatRange(1, 10_000))
@click.option("--rounds", default=20, show_default=True, type=click.IntRange(1, 1000))
@click.option(
    "--seconds", default=2.0, show_default=True, type=click.FloatRange(0.1, 600), help="A slice."
)
@out_option
@json_option
def tracing(rate: float, rounds: int, seconds: float, out: Path, as_json: bool) -> None:
    """What traces cost a request: without them, and with a collector that never answers."""

    def measure(say: Callable[[str], None]) -> dict[str, Any]:
        from surgetank.control.bench.tracing import trace
        from surgetank.telemetry.clock import SystemClock

        return trace(rate, rounds, seconds, SystemClock(), say)

    run_bench(as_json, out, measure)


@bench.command()
@click.option("--trace", type=click.Path(path_type=Path, dir_okay=False), help="JSONL.")
@click.option("--requests", default=100, show_default=True, type=click.IntRange(2, 100_000))
@click.option("--speed", type=click.FloatRange(min=0, min_open=True), help="Of the trace.")
@click.option("--cap", default=4, show_default=True, type=click.IntRange(1, 4096), help="Batch.")
@click.option("--seed", default=1, show_default=True, help="Of prompts, and of who is urgent.")
@model_option
@dtype_option
@threads_option
@out_option
@json_option
def scheduling(as_json: bool, out: Path, **wishes: Any) -> None:
    """Static, continuous and preempting schedules on the same slice of a recorded trace."""

    def measure(say: Callable[[str], None]) -> dict[str, Any]:
        from surgetank.control.bench.schedules import compare
        from surgetank.telemetry.clock import SystemClock

        return compare(**wishes, out=out, clock=SystemClock(), say=say)

    run_bench(as_json, out, measure)


@bench.command()
@click.option("--batch", default=32, show_default=True, type=click.IntRange(1, 4096))
@click.option("--steps", default=40, show_default=True, type=click.IntRange(4, 1000))
@model_option
@dtype_option
@threads_option
@out_option
@json_option
def profile(as_json: bool, out: Path, **wishes: Any) -> None:
    """Where a decode step's time goes: stages, operators, torch's own functions."""

    def measure(say: Callable[[str], None]) -> dict[str, Any]:
        from surgetank.control.bench.profiling import profiled
        from surgetank.telemetry.clock import SystemClock

        return profiled(**wishes, clock=SystemClock(), say=say)

    run_bench(as_json, out, measure)


@bench.command()
@click.option("--only", help="Some of a,b,d: overload, stall, priority.  [default: all]")
@click.option("--quick", is_flag=True, help="Fewer and shorter loads: under five minutes.")
@click.option("--seed", default=1, show_default=True, help="Of arrivals, sizes and clients.")
@click.option("--set", "settings", multiple=True, metavar="SECTION.KEY=VALUE", help="Any setting.")
@out_option
@json_option
def scenarios(
    only: str | None,
    quick: bool,
    seed: int,
    settings: tuple[str, ...],
    out: Path,
    as_json: bool,
) -> None:
    """The lab's experiments on the real product, with real clients, beside the lab's prediction.

    Starts a product of its own, measures its step model and capacity, plays overload (a), a stalled
    engine (b) and two classes (d) with the real `openai` and grpcio clients and their own retries,
    and then the same calls in the lab. Takes under twelve minutes.
    """
    letters = "abd" if only is None else only.replace(",", "").replace(" ", "")
    if not letters or set(letters) - set("abd"):
        raise click.BadParameter(f"{only!r}; allowed: some of a,b,d", param_hint="--only")

    def measure(say: Callable[[str], None]) -> dict[str, Any]:
        from surgetank.control.bench.scenarios.run import Wishes
        from surgetank.control.bench.scenarios.run import scenarios as run_scenarios
        from surgetank.telemetry.clock import SystemClock

        return run_scenarios(Wishes(letters, quick, seed, settings), SystemClock(), say)

    run_bench(as_json, out, measure)


@bench.command()
@click.option("--quick", is_flag=True, help="Two short rounds: under two minutes.")
@click.option("--rounds", type=click.IntRange(1, 100), help="[default: 5]")
@click.option("--peers", help="Some of nginx,envoy,smg,litellm,splice, or ''.  [default: all]")
@click.option("--no-idle", is_flag=True, help="Without the memory of 10,000 idle streams.")
@out_option
@json_option
def proxy(
    quick: bool, rounds: int | None, peers: str | None, no_idle: bool, out: Path, as_json: bool
) -> None:
    """The sidecar with its full gate beside other proxies, all before one stub of an engine.

    CPU time per request and per streamed token, what is added to the time to the first token, and
    the memory of idle streams.
    """

    def measure(say: Callable[[str], None]) -> dict[str, Any]:
        from surgetank.control.bench.proxy.race import Wishes, compete
        from surgetank.telemetry.clock import SystemClock

        names = None if peers is None else tuple(filter(None, peers.split(",")))
        return compete(Wishes(quick, rounds, names, not no_idle), SystemClock(), say)

    run_bench(as_json, out, measure)


@bench.command()
@click.option("--root", default=Path("."), type=click.Path(path_type=Path), help="The checkout.")
@out_option
def publish(root: Path, out: Path) -> None:
    """Put the figures and plots of --out into docs/ of a checkout, and its page up to date."""
    from surgetank.control.bench.page import publish as into_docs

    try:
        for path in into_docs(out, root):
            click.echo(path)
    except (OSError, ValueError) as error:
        sys.exit(f"surgetank: {error}")


bench.add_command(serve)
