"""`surgetank capacity`: what a model needs, what fits, and what retries make of the load."""

import sys
from typing import Any

import click

from surgetank.control.cli.output import (
    FAILED,
    UNREACHABLE,
    USAGE,
    emit_json,
    fail,
    json_option,
)

_TIMEOUT = 5.0


class OneSentence(click.Command):
    """A command whose usage errors are one sentence, like all its others."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        asked_json = "--json" in args  # before parsing consumes it
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            fail(asked_json, USAGE, "usage", error.format_message())


@click.command(cls=OneSentence)
@click.argument("model")
@click.option("--gpu-memory", metavar="SIZE", help="Memory of one GPU: 24GiB, 80GB.")
@click.option("--gpu", metavar="NAME", help="A GPU of the table instead: H100-80GB.")
@click.option("--kv-memory", metavar="SIZE", help="KV pool of one GPU, when it is known.")
@click.option("--tp", "--gpus", type=int, default=1, show_default=True, help="Tensor parallel.")
@click.option("--dtype", default="auto", show_default=True, help="bfloat16, float32, fp8, int4 ...")
@click.option("--kv-dtype", default="auto", show_default=True, help="bfloat16, float32, fp8 ...")
@click.option("--context", type=int, help="Tokens of a request.  [default: 4096 or the most]")
@click.option("--concurrency", type=int, default=1, show_default=True, help="Requests at once.")
@click.option("--utilization", type=float, default=0.9, show_default=True, help="Engine's share.")
@click.option("--block-size", type=int, help="Tokens of a KV block.  [default: 16, or --check's]")
@click.option("--batch-tokens", type=int, default=2048, show_default=True, help="Tokens a step.")
@click.option("--max-seqs", type=int, default=256, show_default=True, help="Sequences a step.")
@click.option("--overhead", metavar="SIZE", help="Memory outside the engine's allocator.")
@click.option("--rps", type=float, help="First attempts per second.")
@click.option("--retries", type=int, multiple=True, help="Retries of one layer; repeatable.")
@click.option("--retry-budget", type=float, help="Retries allowed per first attempt: 0.1.")
@click.option("--check", metavar="URL", help="Compare with a running engine's /metrics.")
@click.option("--tolerance", type=float, default=5.0, show_default=True, help="--check's, percent.")
@json_option
def capacity(as_json: bool, check: str | None, tolerance: float, **asked: Any) -> None:
    """What MODEL needs, what fits, and the formula of each number.

    MODEL is a config.json, a model's folder, a GGUF file, or a name such as Llama-3.1-8B.
    """
    from surgetank.control.capacity.units import CapacityError

    try:
        good = _run(asked, check, tolerance, as_json)
    except CapacityError as error:
        fail(as_json, USAGE, "invalid", str(error))
    if not good:
        sys.exit(FAILED)


def _run(asked: dict[str, Any], check: str | None, tolerance: float, as_json: bool) -> bool:
    """Make, check and print the plan; False when the check is beyond its tolerance."""
    from dataclasses import replace

    from surgetank.control.capacity.check import compare, read_metrics
    from surgetank.control.capacity.explain import explain
    from surgetank.control.capacity.plan import make_plan
    from surgetank.control.capacity.report import as_json as report_json
    from surgetank.control.capacity.report import as_text
    from surgetank.control.capacity.settings import read_settings
    from surgetank.control.capacity.sources import find_model
    from surgetank.control.capacity.units import CapacityError

    if not 0 <= tolerance <= 100:
        raise CapacityError(f"tolerance is {tolerance}; allowed: number, 0 to 100")
    values = _values(asked)
    settings = read_settings(values)
    architecture = find_model(asked["model"])
    reported = read_metrics(_fetch(check, as_json)) if check else None
    if reported is not None:
        if asked["block_size"] not in (None, reported.block_size):
            raise CapacityError(
                f"block_size is {asked['block_size']}; the engine's is {reported.block_size}"
            )
        settings = read_settings({**values, "block_size": reported.block_size})
    plan = make_plan(architecture, settings)
    report, good = explain(plan), True
    if reported is not None:
        section, good = compare(plan, reported, tolerance)
        report = replace(report, sections=(*report.sections, section))
    if as_json:
        emit_json(report_json(report))
    else:
        click.echo(as_text(report))
    return good


def _values(asked: dict[str, Any]) -> dict[str, Any]:
    """The options as settings: sizes read, names looked up, what was not said left out."""
    from surgetank.control.capacity.gpus import gpu_memory
    from surgetank.control.capacity.units import CapacityError, parse_size

    values = {key: value for key, value in asked.items() if value is not None}
    del values["model"]
    if asked["gpu"] is not None and asked["gpu_memory"] is not None:
        raise CapacityError("gpu and gpu_memory are both given; allowed: only one")
    for key in ("gpu_memory", "kv_memory", "overhead"):
        if key in values:
            values[key] = parse_size(values[key], key)
    if "gpu" in values:
        values["gpu_memory"] = gpu_memory(values.pop("gpu"))
    return values


def _fetch(url: str, as_json: bool) -> str:
    """The metrics page at a URL, "/metrics" added to a bare address."""
    import httpx

    from surgetank.control.capacity.units import CapacityError

    full = url if "://" in url else f"http://{url}"
    try:
        target = httpx.URL(full)
        if target.path in ("", "/"):
            target = target.copy_with(path="/metrics")
        answer = httpx.get(target, timeout=_TIMEOUT, headers={"accept": "text/plain"})
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise CapacityError(f"check is {url!r}; allowed: the address of a metrics page") from error
    except httpx.HTTPError as error:
        fail(as_json, UNREACHABLE, "unreachable", f"{full} does not answer ({error})")
    if answer.status_code != 200:
        fail(as_json, UNREACHABLE, "unreachable", f"{full} answers {answer.status_code}")
    return answer.text
