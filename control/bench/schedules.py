"""`surgetank bench scheduling`: ways to schedule, on one slice of a trace and the real engine."""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from surgetank.control.bench import plots
from surgetank.control.bench.document import BenchError, Table, document
from surgetank.control.bench.inside_engine import loaded_model
from surgetank.control.bench.workload import prompts
from surgetank.control.lab.inputs import InputError, read_trace
from surgetank.engine.api import Commands, GenerateRequest, SamplingParams
from surgetank.engine.build import assemble
from surgetank.engine.config import EngineConfig
from surgetank.engine.loop import StepLoop
from surgetank.engine.report import Times
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.vocabulary import Priority

TRACE = Path(__file__).parent / "azure2023_code.jsonl"
LONGEST = 512  # tokens, that the slice's longest prompt is scaled to
URGENT = 0.25  # share of the requests, of a class above the others
LOAD = 0.9  # of the capacity that a burst shows, where no speed is given
PROBE = 12  # requests of that burst
WAYS = (  # name, policy, may the waiting displace the running
    ("static", "static"),
    ("continuous, every 8 steps", "interval"),
    ("continuous", "fcfs"),
    ("continuous, preemption", "priority"),
)


@dataclass(frozen=True, slots=True)
class Call:
    """One request of the slice, scaled; `at` seconds after the beginning."""

    at: float
    request: GenerateRequest

    @property
    def urgent(self) -> bool:
        return self.request.priority is Priority.CRITICAL


class Served(NamedTuple):
    """When a call came, had its first token, and was done; its output tokens."""

    at: float
    first: float
    done: float
    tokens: int
    urgent: bool


def compare(
    *,
    trace: Path | None,
    requests: int,
    speed: float | None,
    cap: int,
    seed: int,
    model: str,
    dtype: str,
    threads: int | None,
    out: Path,
    clock: Clock,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Each way on the same calls, one after the other. Raises BenchError, ModelError."""
    loaded = loaded_model(model, dtype, threads)

    def engine(policy: str) -> StepLoop:
        config = EngineConfig(policy=policy, max_num_seqs=cap, tpot_target=None)
        return assemble(config, loaded, clock).loop

    calls, scale = calls_of(trace or TRACE, requests, loaded.config.vocab_size, seed)
    span = calls[-1].at
    if speed is None:
        say(f"capacity, by a burst of {PROBE}")
        burst = [replace(call, at=0.0) for call in calls[:PROBE]]
        rate = len(burst) / max(each.done for each in play(engine("fcfs"), burst))
        speed = LOAD * rate / (len(calls) / span)
    timed = [replace(call, at=call.at / speed) for call in calls]
    rows = []
    for name, policy in WAYS:
        say(f"{name}: {len(timed)} requests over {timed[-1].at:.0f} s")
        loop = engine(policy)
        rows.append(summary(name, play(loop, timed)))
    plots.latencies(rows, out / "bench-scheduling.png")
    prompt = [len(call.request.prompt) for call in calls]
    settings = {
        "requests": len(calls),
        "batch cap": cap,
        "trace speed": round(speed, 4),
        "prompts scaled by": round(scale, 4),
        "mean prompt tokens": round(statistics.mean(prompt)),
        "mean output tokens": round(
            statistics.mean(call.request.sampling.max_tokens for call in calls)
        ),
        "urgent share": URGENT,
        "dtype": dtype,
    }
    return document("scheduling", clock, settings, {"rows": rows}, [_table(rows)])


def calls_of(trace: Path, requests: int, vocabulary: int, seed: int) -> tuple[list[Call], float]:
    """The slice's first requests with prompts scaled to LONGEST, and the factor. Outputs stay as
    they are. Who is urgent is drawn. Raises BenchError."""
    rng = random.Random(seed)
    try:
        items = read_trace(trace, speed=1.0, max_tokens=1, rng=rng)[:requests]
    except InputError as error:
        raise BenchError(str(error)) from error
    if items[-1].at <= 0:
        raise BenchError(f"{trace}: its requests all come at once; allowed: two moments or more")
    scale = min(1.0, LONGEST / max(item.prompt for item in items))
    calls = []
    for number, item in enumerate(items):
        length = max(1, round(item.prompt * scale))
        sampling = SamplingParams(max_tokens=item.output, temperature=0.0, ignore_eos=True)
        urgent = rng.random() < URGENT
        request = GenerateRequest(
            request_id=number,
            prompt=prompts(1, length, rng, vocabulary)[0],
            sampling=sampling,
            priority=Priority.CRITICAL if urgent else Priority.BATCH,
        )
        calls.append(Call(item.at, request))
    return calls, scale


def play(loop: StepLoop, calls: Sequence[Call]) -> list[Served]:
    """In real time: each call is submitted when it is due. Raises BenchError for a refused one."""
    begun = time.perf_counter()
    waiting = list(reversed(calls))
    by_id = {call.request.request_id: call for call in calls}
    first: dict[int, float] = {}
    served: list[Served] = []
    while len(served) < len(calls):
        now = time.perf_counter() - begun
        due = []
        while waiting and waiting[-1].at <= now:
            due.append(waiting.pop().request)
        if due:
            loop.take(Commands(submit=due))
        output = loop.step(Times())
        if output is None:
            time.sleep(max(0.0, waiting[-1].at - (time.perf_counter() - begun)))
            continue
        now = time.perf_counter() - begun
        for tokens in output.tokens:
            if tokens.detail:
                raise BenchError(f"the engine refused: {tokens.detail}")
            first.setdefault(tokens.request_id, now)
            if tokens.finish is not None:
                call = by_id[tokens.request_id]
                count = call.request.sampling.max_tokens
                served.append(Served(call.at, first[tokens.request_id], now, count, call.urgent))
    return served


def summary(name: str, served: Sequence[Served]) -> dict[str, Any]:
    """The row of one way."""
    latencies = sorted(each.done - each.at for each in served)
    urgent = sorted(each.done - each.at for each in served if each.urgent)
    firsts = sorted(each.first - each.at for each in served)
    took = max(each.done for each in served) - min(each.at for each in served)
    return {
        "policy": name,
        "tokens_per_second": round(sum(each.tokens for each in served) / took, 1),
        "latency_mean": round(statistics.mean(latencies), 3),
        "latency_p99": round(quantile(latencies, 0.99), 3),
        "ttft_mean": round(statistics.mean(firsts), 3),
        "ttft_p99": round(quantile(firsts, 0.99), 3),
        "urgent_latency_mean": round(statistics.mean(urgent), 3) if urgent else None,
        "urgent_latency_p99": round(quantile(urgent, 0.99), 3) if urgent else None,
    }


def quantile(values: Sequence[float], q: float) -> float:
    """Of sorted values, by the nearest rank."""
    return values[min(len(values) - 1, max(0, -(-int(q * 1000) * len(values) // 1000) - 1))]


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    keys = (
        "tokens_per_second",
        "latency_mean",
        "latency_p99",
        "ttft_mean",
        "ttft_p99",
        "urgent_latency_mean",
        "urgent_latency_p99",
    )
    columns = [
        "schedule",
        "tokens/s",
        "latency mean, s",
        "P99, s",
        "TTFT mean, s",
        "P99, s",
        "urgent mean, s",
        "urgent P99, s",
    ]
    cells = [
        [row["policy"], *("-" if row[key] is None else f"{row[key]:.3g}" for key in keys)]
        for row in rows
    ]
    return Table(title="The same requests, scheduled in four ways", columns=columns, rows=cells)
