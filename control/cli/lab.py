"""`surgetank lab`: runs in virtual time, comparisons, the step model's fit, the headline bars."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from surgetank.control.cli.output import FAILED, USAGE, emit_json, fail, json_option, table

if TYPE_CHECKING:
    from surgetank.control.lab.summary import Summary
    from surgetank.control.lab.world import Run

_SETTINGS = {
    "stream": "Synthetic calls: tenant=a,priority=batch,share=2; also prompt_median=900, "
    "output_median=60, arrivals=gamma ...",
    "engine": "The simulated engine: t0=.006 a=25e-6 max_num_seqs=64 kv_blocks=8192 ...",
    "gate": "The gate's configuration: queue_requests=256 ...",
    "slo": "Targets: ttft=1 tpot=0.1.",
    "quota": "A tenant's, over all sidecars: tenant=a,concurrency=8; also requests_per_minute and "
    "tokens_per_minute. Without tenant: of each that is not named.",
    "leases": "How sidecars share quotas and retry budget over a simulated Redis: term=1 hold=10 "
    "retry_floor=.05 ... They do with this, a quota, or a fault of redis.",
    "client": "Kind of client, NAME or NAME:WEIGHT: patient, no-retry, immediate-1, immediate-3, "
    "silent, obedient and backoff (our helpers, with and without the hints), openai, grpc; changed "
    "as in openai,retries=2,timeout=2,streams=false:1.  [default: no-retry]",
    "fault": "KIND@AT+SECONDS: stall@20+10, slow@20+10x3, crash@20+5, kv-loss@20+10x0.5, "
    "metric-freeze@20+10, redis-loss@20+10, redis-restart@20.",
}


@click.group()
def lab() -> None:
    """Try policies in virtual time, over a simulated engine."""


def scenario_options(function: Callable[..., None]) -> Callable[..., None]:
    """What makes a run, but for its policy."""
    options = [
        click.option(
            "--input",
            "trace",
            type=click.Path(path_type=Path),
            help="A trace instead. Its `n` and `prefix_blocks` are passed over: the simulated "
            "engine shares nothing between prompts, and gives one choice of each.",
        ),
        click.option("--speed", type=float, default=1.0, show_default=True, help="Of the trace."),
        click.option("--load", type=float, help="Share of the engine's capacity.  [default: 1]"),
        click.option("--rate", type=float, help="Calls per second instead."),
        click.option("--duration", type=float, default=60.0, show_default=True, help="Seconds."),
        *(
            click.option(f"--{name}", name, multiple=True, metavar="TEXT", help=text)
            for name, text in _SETTINGS.items()
        ),
        click.option(
            "--sidecars",
            type=click.IntRange(1, 64),
            default=1,
            show_default=True,
            help="Doors; a call takes one at random.",
        ),
        click.option(
            "--engines",
            type=click.Choice(["shared", "own"]),
            default="shared",
            show_default=True,
            help="One behind all sidecars, or one behind each.",
        ),
        click.option(
            "--behind",
            type=click.IntRange(1, 16),
            default=1,
            show_default=True,
            help="So many in the place of each; above 1 for policy ours alone.",
        ),
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True),
        click.option("--out", type=click.Path(path_type=Path), help="Folder for the reports."),
        json_option,
    ]
    for option in reversed(options):
        function = option(function)
    return function


@lab.command()
@click.option("--policy", default="ours", show_default=True, help="Who decides at the door.")
@scenario_options
def run(policy: str, out: Path | None, as_json: bool, **asked: Any) -> None:
    """One run."""
    _play([policy], out, as_json, asked, "Surgetank lab: one run")


@lab.command()
@click.option(
    "--policies",
    default="none,static-in-flight,static-queue,kv-threshold,gradient2,envoy,ours",
    show_default=True,
    help="Which, with commas between.",
)
@scenario_options
def compare(policies: str, out: Path | None, as_json: bool, **asked: Any) -> None:
    """Several policies on the same calls."""
    names = [name.strip() for name in policies.split(",")]
    _play(names, out, as_json, asked, "Surgetank lab: policies compared")


@lab.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--model", default="", help="Of a table of several: this model only.")
@click.option("--hardware", default="", help="Of a table of several: this hardware only.")
@click.option("--tensor-parallel", default="", help="Of a table of several: this degree only.")
@json_option
def fit(file: Path, model: str, hardware: str, tensor_parallel: str, as_json: bool) -> None:
    """Fit the step model to FILE: step records (JSONL), or prompt and token times (CSV)."""
    _need_numpy(as_json)
    from surgetank.control.lab.fit import Choice, FitError, fit_file

    try:
        found = fit_file(file, Choice(model, hardware, tensor_parallel))
    except FitError as error:
        fail(as_json, USAGE, "invalid", str(error))
    coefficients = found.model.model_dump()
    errors = {
        "mape": found.mape,
        "p95": found.p95,
        "prefill_mape": found.prefill_mape,
        "decode_mape": found.decode_mape,
    }
    if as_json:
        known = {key: value for key, value in errors.items() if value == value}
        emit_json({"model": coefficients, "rows": found.rows, "error": known})
        return
    table(["coefficient", "seconds"], [[k, f"{v:.4g}"] for k, v in coefficients.items()])
    rows = [[key, "-" if value != value else f"{value:.1%}"] for key, value in errors.items()]
    table([f"error ({found.rows} rows)", ""], rows)


@lab.command()
@click.option("--seeds", default="0,1,2,3,4,5,6,7,8,9", show_default=True, help="A,B,C.")
@click.option("--only", multiple=True, metavar="NAME", help="Only this experiment; repeatable.")
@click.option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes.")
@json_option
def headline(seeds: str, only: Sequence[str], jobs: int, as_json: bool) -> None:
    """The headline experiments, each with its bar beside what was measured."""
    _need_numpy(as_json)
    from surgetank.control.lab.headline.experiment import UnknownExperiment
    from surgetank.control.lab.headline.table import run_all

    try:
        numbers = [_seed(seed) for seed in seeds.split(",")]
        results = run_all(numbers, only, jobs)
    except (ValueError, UnknownExperiment) as error:
        fail(as_json, USAGE, "invalid", str(error))
    done = []
    for result in results:
        done.append(result)
        if not as_json:
            click.echo(f"{result.name}: {'holds' if result.holds else 'FAILS'}", err=True)
    if as_json:
        told = [result.as_json() for result in done]
        emit_json({"experiments": told, "seeds": numbers})
    else:
        table(["experiment", "measured", "bar", "holds"], [row for r in done for row in r.rows()])
    if not all(result.holds for result in done):
        sys.exit(FAILED)


def _seed(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"seed is {text!r}; allowed: whole numbers from 0, with commas between")
    return int(text)


def _play(
    policies: Sequence[str], out: Path | None, as_json: bool, asked: dict[str, Any], title: str
) -> None:
    _need_numpy(as_json)
    from surgetank.control.lab.faults import FaultError
    from surgetank.control.lab.inputs import InputError
    from surgetank.control.lab.recipe import RecipeError, Words, items_of, scenario_of
    from surgetank.control.lab.rivals.admitperf import RivalMissing
    from surgetank.control.lab.rivals.table import UnknownPolicy
    from surgetank.control.lab.summary import as_json as plain
    from surgetank.control.lab.summary import summarise
    from surgetank.control.lab.world import play

    plural = {"stream": "streams", "client": "clients", "fault": "faults", "quota": "quotas"}
    words = Words(**{plural.get(key, key): value for key, value in asked.items()})
    try:
        scenario = scenario_of(words)
        items = items_of(words, scenario)
        scenarios = [scenario_of(replace(words, policy=name)) for name in policies]
        runs = [play(each, items) for each in scenarios]
    except (FaultError, InputError, RecipeError, RivalMissing, UnknownPolicy) as error:
        fail(as_json, USAGE, "invalid", str(error))
    summaries = [summarise(each) for each in runs]
    if out is not None:
        _write(out, runs, summaries, title)
    if as_json:
        emit_json({"runs": [plain(each) for each in summaries]})
    else:
        _show(summaries, out)


def _write(out: Path, runs: "Sequence[Run]", summaries: "Sequence[Summary]", title: str) -> None:
    """report.json, report.png and report.html."""
    import json

    from surgetank.control.lab.chart import draw
    from surgetank.control.lab.page import page
    from surgetank.control.lab.summary import as_json as plain

    out.mkdir(parents=True, exist_ok=True)
    picture = draw(runs)
    told = json.dumps({"runs": [plain(each) for each in summaries]}, indent=1, sort_keys=True)
    (out / "report.json").write_text(told + "\n", "utf-8")
    (out / "report.png").write_bytes(picture)
    (out / "report.html").write_text(page(runs[0].scenario, summaries, picture, title), "utf-8")


def _show(summaries: "Sequence[Summary]", out: Path | None) -> None:
    from surgetank.control.lab.page import COLUMNS, cells

    table([name for _, name in COLUMNS], [cells(each) for each in summaries])
    if out is not None:
        click.echo(f"written: {out}/report.html, report.png, report.json")


def _need_numpy(as_json: bool) -> None:
    """The lab's arithmetic needs what a sidecar does without."""
    from importlib.util import find_spec

    missing = [name for name in ("numpy", "matplotlib") if find_spec(name) is None]
    if missing:
        hint = "pip install 'surgetank[demo]'"
        fail(as_json, USAGE, "missing", f"the lab needs {' and '.join(missing)}: {hint}")
