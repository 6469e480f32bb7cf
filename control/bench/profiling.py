"""`surgetank bench profile`: where a decode step's time goes, from stages down to torch's ops."""

import random
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

from surgetank.control.bench.document import Table, document
from surgetank.control.bench.inside_engine import built_engine, config_of, decode_steps
from surgetank.control.bench.workload import prompts
from surgetank.engine.build import Built
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.steprecord import OPERATORS, StepRecord

PROMPT = 128
TOP = 14  # functions that are shown
FEW = 8  # steps under torch's profiler, which slows them


def profiled(
    *,
    batch: int,
    steps: int,
    model: str,
    dtype: str,
    threads: int | None,
    clock: Clock,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Plain steps, steps with timed operators, steps under torch's profiler."""
    built = built_engine(
        config_of(model, dtype, batch, PROMPT, operator_sampling=1), threads, clock
    )
    rng = random.Random(1)

    def asked() -> list[list[int]]:
        return prompts(batch, PROMPT, rng, built.card.vocab_size)

    say(f"{steps} plain steps")
    plain = _records(built, asked(), steps)
    say(f"{steps} steps with their operators timed")
    timed = _operators(built, asked(), steps)
    say(f"{FEW} steps under torch's profiler")
    functions = _functions(built, asked())
    stages = {
        name: statistics.median(getattr(each, name) for each in plain)
        for name in ("schedule", "forward", "sample")
    }
    step = statistics.median(each.schedule + each.forward + each.sample for each in plain)
    figures = {
        "step_seconds": round(step, 6),
        "stages": {name: round(value, 6) for name, value in stages.items()},
        "operators": timed,
        "functions": functions,
    }
    settings = {
        "dtype": dtype,
        "threads": torch.get_num_threads(),
        "batch": batch,
        "context": PROMPT + steps // 2,
    }
    return document("profile", clock, settings, figures, _tables(figures, batch))


def _records(built: Built, asked: list[list[int]], steps: int) -> list[StepRecord]:
    outputs = decode_steps(built, asked, steps)
    return [each.record for each in outputs if each.record is not None]


def _operators(built: Built, asked: list[list[int]], steps: int) -> dict[str, float]:
    """Median seconds of each operator; they sum to forward and sampling."""
    outputs = decode_steps(built, asked, steps, before=built.meter.begin)
    records = [built.meter.end(each.record) for each in outputs if each.record is not None]
    built.meter.end(records[-1])  # the batch's last step began a sample too
    return {
        str(operator): round(statistics.median(each.operators[place] for each in records), 6)
        for place, operator in enumerate(OPERATORS)
    }


def _functions(built: Built, asked: list[list[int]]) -> list[dict[str, Any]]:
    """torch's functions by their own CPU time, milliseconds and calls a step."""
    steps = decode_steps(built, asked, FEW + 1)
    next(steps)  # the prompts are read before the profiler looks
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(FEW):
            next(steps)
    for _ in steps:
        pass
    events = sorted(profile.key_averages(), key=lambda each: -each.self_cpu_time_total)
    whole = sum(each.self_cpu_time_total for each in events)
    return [
        {
            "function": each.key,
            "milliseconds": round(each.self_cpu_time_total / FEW / 1000, 3),
            "calls": round(each.count / FEW),
            "share": round(each.self_cpu_time_total / whole, 4),
        }
        for each in events[:TOP]
    ]


def _tables(figures: dict[str, Any], batch: int) -> list[Table]:
    step = figures["step_seconds"]

    def rows(parts: dict[str, float]) -> list[list[str]]:
        return [
            [name, f"{value * 1e3:.2f}", f"{value / step:.1%}"] for name, value in parts.items()
        ]

    whole = sum(figures["operators"].values())
    operators = [
        [name, f"{value * 1e3:.2f}", f"{value / whole:.1%}"]
        for name, value in sorted(figures["operators"].items(), key=lambda item: -item[1])
        if value
    ]
    functions: Sequence[dict[str, Any]] = figures["functions"]
    columns = ["milliseconds", "share"]
    return [
        Table(
            title=f"Stages of a step of {step * 1e3:.1f} ms at batch {batch}",
            columns=["stage", *columns],
            rows=rows(figures["stages"]),
        ),
        Table(title="Operators", columns=["operator", *columns], rows=operators),
        Table(
            title="torch's functions, their own time under its profiler",
            columns=["function", "calls a step", *columns],
            rows=[
                [
                    each["function"],
                    str(each["calls"]),
                    f"{each['milliseconds']:.2f}",
                    f"{each['share']:.1%}",
                ]
                for each in functions
            ],
        ),
    ]
