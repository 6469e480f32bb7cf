"""The calls of a run: a recorded trace, or sizes drawn by a few numbers. Pure but for the file."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, takewhile
from pathlib import Path

import msgspec
from pydantic import ValidationError

from surgetank.control.bench.document import BenchError
from surgetank.control.bench.serve.wishes import (
    DEFAULT_CONCURRENCY,
    DEFAULT_REQUESTS,
    GRPC,
    GRPC_STREAM,
    Wishes,
)
from surgetank.control.lab.inputs import InputError, Item, Mix, read_trace

# Fixed sizes unless a spread is asked for.
_PLAIN = {
    "prompt_median": 256.0,
    "prompt_sigma": 0.0,
    "prompt_most": 1_000_000,
    "output_median": 64.0,
    "output_sigma": 0.0,
    "max_tokens": 1_000_000,
}
_SHORT = {"prompt": "prompt_median", "output": "output_median"}
_KEYS = (*_SHORT, "prompt_sigma", "output_sigma", "arrivals", "cv", "burst", "period")


class Call(msgspec.Struct, frozen=True):
    """One call. `at`: seconds since the run began; it says nothing in a closed loop."""

    at: float
    prompt: int  # tokens
    output: int
    client: str


def settled(wishes: Wishes) -> Wishes:
    """With defaults for what is needed and not given. Raises BenchError for what contradicts."""
    kinds = {kind for kind, _ in wishes.clients}
    if kinds & {GRPC, GRPC_STREAM} and wishes.grpc is None:
        raise BenchError("a gRPC client needs an address; give --grpc HOST:PORT")
    if kinds & {GRPC, GRPC_STREAM} and wishes.chat:
        raise BenchError("the KServe door knows no chat; leave --chat or the gRPC client out")
    if wishes.rate is not None and wishes.concurrency is not None:
        raise BenchError("give --rate (open loop) or --concurrency (closed loop), not both")
    trace = Path(wishes.input).is_file()
    if not trace and (wishes.speed != 1.0 or wishes.scale != 1.0):
        raise BenchError("--speed and --scale are for traces; --input is none")
    if wishes.speed != 1.0 and (wishes.rate or wishes.concurrency):
        raise BenchError("--speed is for a trace's own times; --rate and --concurrency have theirs")
    if trace:
        return wishes
    found = wishes
    if wishes.rate is None and wishes.concurrency is None:
        found = replace(found, concurrency=DEFAULT_CONCURRENCY)
    if wishes.requests is None and wishes.duration is None:
        found = replace(found, requests=DEFAULT_REQUESTS)
    return found


def calls_of(wishes: Wishes) -> Iterator[Call]:
    """In order of their times; without end where only a closed loop's duration ends them.
    Raises BenchError at once, before the first is drawn."""
    kinds, weights = zip(*wishes.clients, strict=True)
    choice = random.Random(f"{wishes.seed}:clients")
    found = _items(wishes)
    if wishes.duration is not None and wishes.concurrency is None:
        until = wishes.duration
        found = takewhile(lambda item: item.at < until, found)
    return (
        Call(item.at, item.prompt, item.output, choice.choices(kinds, weights)[0])
        for item in islice(found, wishes.requests)
    )


def _items(wishes: Wishes) -> Iterator[Item]:
    rng = random.Random(f"{wishes.seed}:input")
    path = Path(wishes.input)
    mix = Mix() if path.is_file() else mix_of(wishes.input)
    if not path.is_file():
        times = _times(mix, wishes.rate, wishes.seed)
        return (Item(at, *mix.sizes(rng), max_tokens=0) for at in times)
    try:
        trace = read_trace(path, speed=wishes.speed, max_tokens=1, rng=rng)
    except InputError as error:
        raise BenchError(str(error)) from error
    sized = [_scaled(item, wishes.scale) for item in trace]
    if wishes.rate is None:
        return iter(sized)
    return _at(sized, _times(mix, wishes.rate, wishes.seed))


def _times(mix: Mix, rate: float | None, seed: int) -> Iterator[float]:
    if rate is None:
        while True:
            yield 0.0
    yield from mix.times(rate, 0.0, math.inf, random.Random(f"{seed}:times"))


def _at(items: Sequence[Item], times: Iterator[float]) -> Iterator[Item]:
    return (item._replace(at=at) for item, at in zip(items, times))


def _scaled(item: Item, scale: float) -> Item:
    prompt, output = max(1, round(item.prompt * scale)), max(1, round(item.output * scale))
    return item._replace(prompt=prompt, output=output)


def mix_of(spec: str) -> Mix:
    """Sizes and arrivals from `prompt=256,output=64,output_sigma=.5`. Raises BenchError."""
    given: dict[str, object] = dict(_PLAIN)
    for part in filter(None, spec.split(",")):
        key, equals, value = part.strip().partition("=")
        if key not in _KEYS or not equals:
            raise BenchError(
                f"input is {spec!r}: no such file, and {part!r} is no KEY=VALUE of a synthetic "
                f"one; keys: {', '.join(_KEYS)}"
            )
        given[_SHORT.get(key, key)] = value
    try:
        return Mix.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise BenchError(f"input: {first['loc'][0]}: {first['msg']}") from error
