"""What clients will ask for: recorded traces of two forms, and traffic made from a few numbers."""

import csv
import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from surgetank.telemetry.vocabulary import Priority


class Item(NamedTuple):
    """One call: when it comes, what it asks for, and how long its answer really is."""

    at: float  # seconds since the run began
    prompt: int  # tokens
    output: int
    max_tokens: int  # that it asks for
    tenant: str = ""
    priority: Priority = Priority.DEFAULT
    client: str = ""  # the kind of client that it comes from; "": drawn by weight


class InputError(Exception):
    """A trace that cannot be read; str() names file, line and what was expected."""


class Mix(BaseModel):
    """Synthetic calls: lognormal prompts and outputs, and a kind of arrivals."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt_median: float = Field(default=400, ge=1, description="Tokens.")
    prompt_sigma: float = Field(default=0.9, ge=0, le=3, description="Of the logarithm.")
    prompt_most: int = Field(default=8192, ge=1, description="Longer prompts are cut to it.")
    output_median: float = Field(default=60, ge=1, description="Tokens.")
    output_sigma: float = Field(default=0.8, ge=0, le=3, description="Of the logarithm.")
    max_tokens: int = Field(default=512, ge=1, description="Asked for; longer answers are cut.")
    arrivals: Literal["poisson", "gamma", "bursty"] = Field(
        default="poisson", description="gamma: intervals of variation `cv`; bursty: on and off."
    )
    cv: float = Field(default=3.0, gt=0, le=20, description="Of the intervals, for gamma.")
    burst: float = Field(default=4.0, ge=1, le=100, description="Rate of a burst, times the mean.")
    period: float = Field(default=10.0, gt=0, description="Seconds from burst to burst.")
    tenant: str = Field(default="", description="Who calls.")
    priority: Priority = Field(default=Priority.DEFAULT, description="Its class.")

    def scaled(self, prompts: float, outputs: float) -> "Mix":
        """The same with longer prompts and outputs."""
        return self.model_copy(
            update={
                "prompt_median": self.prompt_median * prompts,
                "prompt_most": int(self.prompt_most * prompts),
                "output_median": self.output_median * outputs,
                "max_tokens": int(self.max_tokens * outputs),
            }
        )

    def sizes(self, rng: random.Random) -> tuple[int, int]:
        """One call's prompt and output tokens."""
        prompt = rng.lognormvariate(math.log(self.prompt_median), self.prompt_sigma)
        output = rng.lognormvariate(math.log(self.output_median), self.output_sigma)
        return (
            min(max(1, round(prompt)), self.prompt_most),
            min(max(1, round(output)), self.max_tokens),
        )

    def means(self, samples: int = 20_000) -> tuple[float, float]:
        """Mean prompt and output tokens after cutting, by a fixed sample."""
        rng = random.Random(0)
        drawn = [self.sizes(rng) for _ in range(samples)]
        return sum(p for p, _ in drawn) / samples, sum(o for _, o in drawn) / samples

    def times(self, rate: float, begin: float, end: float, rng: random.Random) -> Iterator[float]:
        """Arrivals in [begin, end), `rate` per second on average."""
        interval = self._interval(rate, rng)
        at = begin + interval()
        while at < end:
            yield self._in_burst(at, begin) if self.arrivals == "bursty" else at
            at += interval()

    def _interval(self, rate: float, rng: random.Random) -> Callable[[], float]:
        if self.arrivals != "gamma":
            return lambda: rng.expovariate(rate)
        shape = 1 / self.cv**2
        return lambda: rng.gammavariate(shape, 1 / (rate * shape))

    def _in_burst(self, at: float, begin: float) -> float:
        """Squeeze each period's arrivals into its first 1/burst."""
        period, into = divmod(at - begin, self.period)
        return begin + period * self.period + into / self.burst


def synthetic(mix: Mix, rate: float, begin: float, end: float, rng: random.Random) -> list[Item]:
    """Calls of one mix in [begin, end)."""
    items = []
    for at in mix.times(rate, begin, end, rng):
        prompt, output = mix.sizes(rng)
        items.append(Item(at, prompt, output, mix.max_tokens, mix.tenant, mix.priority))
    return items


def merged(*parts: Iterable[Item]) -> list[Item]:
    """Several streams as one, in order of time."""
    return sorted((item for part in parts for item in part), key=lambda item: item.at)


def read_trace(path: Path, *, speed: float, max_tokens: int, rng: random.Random) -> list[Item]:
    """A trace, `speed` times as fast: JSON lines {t, in, out}, or CSV with TIMESTAMP,
    ContextTokens, GeneratedTokens. Calls ask for max_tokens, or for their output if that is more.

    `prefix_blocks` and `n` are passed over: the simulated engine counts blocks instead of naming
    them, which is what makes a step O(1), so it can share none between prompts or choices.
    Equal times are a recorder's rounding: such calls are spread until the next time that differs.
    Raises InputError.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from error
    rows = _csv_rows(path, text) if path.suffix.lower() == ".csv" else _json_rows(path, text)
    found = sorted(rows, key=lambda row: row[0])
    if not found:
        raise InputError(f"{path} holds no request")
    spread = _spread([row[0] for row in found], rng)
    begin = found[0][0]
    return sorted(
        (
            Item((at - begin) / speed, row[1], row[2], max(max_tokens, row[2]), row[3], row[4])
            for at, row in zip(spread, found, strict=True)
        ),
        key=lambda item: item.at,
    )


_Row = tuple[float, int, int, str, Priority]


def _json_rows(path: Path, text: str) -> Iterator[_Row]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row: dict[str, Any] = json.loads(line)
            tenant = str(row.get("tenant", ""))
            priority = Priority[str(row.get("priority", "default")).upper()]
            sizes = _checked(float(row["t"]), int(row["in"]), int(row["out"]))
            yield (*sizes, tenant, priority)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            expected = 'expected {"t": seconds, "in": tokens, "out": tokens}'
            raise InputError(f"{path}, line {number}: {expected} ({error})") from error


def _csv_rows(path: Path, text: str) -> Iterator[_Row]:
    for number, row in enumerate(csv.DictReader(text.splitlines()), 2):
        try:
            at = _azure_time(row["TIMESTAMP"])
            sizes = int(row["ContextTokens"]), int(row["GeneratedTokens"])
            yield (*_checked(at, *sizes), "", Priority.DEFAULT)
        except (ValueError, KeyError, TypeError) as error:
            expected = "expected TIMESTAMP,ContextTokens,GeneratedTokens"
            raise InputError(f"{path}, line {number}: {expected} ({error})") from error


def _azure_time(text: str) -> float:
    """Seconds from `2023-11-16 18:17:03.9799600`: seven digits are one more than datetime reads."""
    whole, _, fraction = text.partition(".")
    seconds = (datetime.fromisoformat(whole) - datetime(1970, 1, 1)).total_seconds()
    return seconds + float(f"0.{fraction or 0}")


def _checked(at: float, prompt: int, output: int) -> tuple[float, int, int]:
    if not math.isfinite(at) or prompt < 0 or output < 0:
        raise ValueError(f"t is {at}, in is {prompt}, out is {output}; allowed: >= 0")
    return at, max(1, prompt), max(1, output)


def _spread(times: Sequence[float], rng: random.Random) -> list[float]:
    """Calls of equal time, uniformly until the next time (the last ones: the usual gap)."""
    distinct = sorted(set(times))
    gaps = [after - before for before, after in pairwise(distinct)]
    usual = sorted(gaps)[len(gaps) // 2] if gaps else 1.0
    width = dict(zip(distinct, [*gaps, usual]))
    count: dict[float, int] = {}
    for at in times:
        count[at] = count.get(at, 0) + 1
    return [at + rng.uniform(0.0, width[at]) if count[at] > 1 else at for at in times]
