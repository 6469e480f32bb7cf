"""The figures of a run, by the names that `vllm bench serve` gives to its own. Pure.

TTFT  time to first token          from the moment the call was meant to leave
TPOT  time per output token        (last token - first token) / (output tokens - 1), a call
ITL   inter-token latency          from one piece of a stream to the next
E2EL  end-to-end latency           until the answer's end
goodput                            calls within every target given, per second
"""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from surgetank.control.bench.load.attempts import Attempt
from surgetank.control.bench.load.numbers import mean, quantile
from surgetank.control.bench.serve.player import Played
from surgetank.control.bench.serve.rows import Row
from surgetank.control.bench.serve.wishes import Slo

LATENCIES = ("ttft", "tpot", "itl", "e2el", "served_ttft")
STATISTICS = ("mean", "median", "std", "p90", "p99")
_EARLY = 0.99  # of an advised wait: coming back after it is obeying


def figures_of(played: Played, slo: Slo) -> dict[str, Any]:
    """Seconds and rates; latencies in milliseconds. None where there is nothing to say."""
    rows = played.rows
    done = [row for row in rows if row.ok]
    good = [row for row in done if is_good(row, slo)]
    seconds = max(played.ended - played.begun, 1e-9)
    prompts, outputs = sum(row.prompt for row in done), sum(row.output for row in done)
    found: dict[str, Any] = {
        "duration": seconds,
        "completed": len(done),
        "failed": len(rows) - len(done),
        "cut": played.cut,
        "total_input_tokens": prompts,
        "total_output_tokens": outputs,
        "request_throughput": len(done) / seconds,
        "request_goodput": len(good) / seconds,
        "good_share": len(good) / len(rows) if rows else math.nan,
        "output_throughput": outputs / seconds,
        "total_token_throughput": (prompts + outputs) / seconds,
        "max_concurrent_requests": most_at_once(rows),
    }
    for name, values in _latencies(done).items():
        found |= _statistics(name, values)
    found |= _attempts(rows)
    found |= {
        "prompt_tokens_error": _prompt_error(done),
        "counted_by_server": any(row.answer.output_tokens is not None for row in done),
        "output_tokens_error": mean([abs(r.output - r.call.output) / r.call.output for r in done]),
        "late_p99_ms": 1e3 * played.strain.late_p99,
        "lag_p99_ms": 1e3 * played.strain.lag_p99,
        "generator_cpu": played.strain.cpu,
    }
    return {key: _known(value) for key, value in found.items()}


def is_good(row: Row, slo: Slo) -> bool:
    """Within every target that is given. An answer that comes as a whole has those of its first
    token and of the others together."""
    if not row.ok:
        return False
    if row.answer.whole:
        later = (slo.tpot or math.inf) * max(0, row.output - 1)
        within = row.e2el <= (slo.ttft or math.inf) + later
    else:
        within = _below(row.ttft, slo.ttft) and _below(row.tpot, slo.tpot)
    return within and _below(row.e2el, slo.e2el)


def most_at_once(rows: Sequence[Row]) -> int:
    """Calls under way together, at most."""
    events = sorted([(row.left, 1) for row in rows] + [(row.ended, -1) for row in rows])
    most = now = 0
    for _, change in events:
        now += change
        most = max(most, now)
    return most


def errors_of(rows: Sequence[Row]) -> dict[str, int]:
    """What callers got in the end, of those that failed."""
    return dict(Counter(row.answer.error for row in rows if not row.ok).most_common())


def by_client(rows: Sequence[Row], slo: Slo) -> dict[str, dict[str, Any]]:
    """What each kind of client got."""
    found = {}
    for kind in sorted({row.call.client for row in rows}):
        own = [row for row in rows if row.call.client == kind]
        done = [row for row in own if row.ok]
        told = [len(row.answer.attempts) for row in own if row.answer.attempts]
        values = {
            "calls": len(own),
            "completed": len(done),
            "good_share": mean([is_good(row, slo) for row in own]),
            "attempts_per_request": mean(told),
            "median_ttft_ms": 1e3 * quantile([row.ttft for row in done], 0.5),
            "median_e2el_ms": 1e3 * quantile([row.e2el for row in done], 0.5),
        }
        found[kind] = {key: _known(value) for key, value in values.items()}
    return found


def _latencies(done: Sequence[Row]) -> dict[str, list[float]]:
    gaps = [
        later - earlier
        for row in done
        if not row.answer.whole
        for earlier, later in pairwise(row.answer.times)
    ]
    return {
        "ttft": [row.ttft for row in done if row.ttft is not None],
        "tpot": [row.tpot for row in done if row.tpot is not None],
        "itl": gaps,
        "e2el": [row.e2el for row in done],
        "served_ttft": [row.served_ttft for row in done if row.served_ttft is not None],
    }


def _statistics(name: str, values: Sequence[float]) -> dict[str, float]:
    spread = statistics.pstdev(values) if values else math.nan
    numbers = (
        mean(values),
        quantile(values, 0.5),
        spread,
        quantile(values, 0.9),
        quantile(values, 0.99),
    )
    return {f"{word}_{name}_ms": 1e3 * each for word, each in zip(STATISTICS, numbers)}


def _attempts(rows: Sequence[Row]) -> dict[str, Any]:
    """Requests that a call took, why they were refused, and which advice was followed."""
    told = [row.answer.attempts for row in rows if row.answer.attempts]
    refused: Counter[str] = Counter(a.reason for each in told for a in each if a.reason)
    refused.update(row.answer.refusal for row in rows if row.answer.refusal)
    again = [
        (earlier, later)
        for each in told
        for earlier, later in pairwise(each)
        if earlier.hint.wait is not None
    ]
    return {
        "attempts_per_request": mean([len(each) for each in told]),
        "refusals": dict(refused.most_common()),
        "advised": sum(a.hint.wait is not None for each in told for a in each),
        "advised_again": len(again),
        "advice_obeyed": sum(_obeyed(*pair) for pair in again),
        "told_never": sum(a.hint.retry is False for each in told for a in each),
        "never_obeyed": sum(each[-1].hint.retry is False for each in told),
    }


def _obeyed(earlier: Attempt, later: Attempt) -> bool:
    return later.at - earlier.told >= _EARLY * (earlier.hint.wait or 0.0)


def _prompt_error(done: Sequence[Row]) -> float:
    """Mean of |tokens as the server counts them - as intended| / intended; nan where it counts
    none."""
    counted = [row for row in done if row.answer.prompt_tokens is not None]
    return mean([abs(row.prompt - row.call.prompt) / row.call.prompt for row in counted])


def _below(value: float | None, target: float | None) -> bool:
    return value is None or target is None or value <= target


def _known(value: Any) -> Any:
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.6g}")
    return value
