"""What is played: calls with their times, sizes and clients, in cells of one load each. Pure."""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from surgetank.control.lab.inputs import Mix
from surgetank.telemetry.vocabulary import Priority

# Kinds of clients, by the names that control/lab/behaviour.py gives to their likes.
OPENAI, HASTY, GRPC = "openai", "immediate-3", "grpc"
LETTERS = "abd"
HIGH, LOW = Priority.DEFAULT, Priority.BATCH  # nobody may ask for more without credentials

Clients = Mapping[str, float]  # kind: weight
RETRYING: Clients = {OPENAI: 0.5, HASTY: 0.25, GRPC: 0.25}
OBEYING: Clients = {OPENAI: 0.75, GRPC: 0.25}
IGNORING: Clients = {HASTY: 1.0}

# Small requests: a CPU serves some of them per second, so that a minute holds some hundred.
MIX = Mix(
    prompt_median=48,
    prompt_sigma=0.6,
    prompt_most=192,
    output_median=24,
    output_sigma=0.5,
    max_tokens=64,
)
_MEANS = MIX.means()
LOW_MIX = MIX.model_copy(update={"priority": LOW})
# Where a few seconds are judged for themselves, a burst of large calls must not look like a fault.
EVEN = MIX.model_copy(
    update={"prompt_sigma": 0.3, "output_sigma": 0.3, "arrivals": "gamma", "cv": 0.5}
)


class Call(msgspec.Struct, frozen=True):
    """One call: when it comes, what it asks for, through which client, in which class."""

    at: float  # seconds since the cell began
    prompt: int  # tokens
    output: int
    client: str = OPENAI
    priority: int = int(HIGH)


@dataclass(frozen=True, slots=True)
class Cell:
    """One stretch of traffic. Times in seconds since its beginning."""

    scenario: str  # its letter
    name: str
    calls: tuple[Call, ...]
    warm: float  # calls before it are not judged
    end: float  # of the arrivals
    load: float  # of capacity; of the low class, where there are two
    stall: tuple[float, float] | None = None  # from, to

    @property
    def title(self) -> str:
        """For tables: the letter and the name."""
        return f"{self.scenario} {self.name}"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of each scenario is played; seconds, and loads as multiples of the capacity."""

    probe: float = 26.0
    warm: float = 3.0
    a_loads: tuple[float, ...] = (0.5, 1.0, 2.0, 5.0, 10.0)
    a_seconds: float = 26.0
    b_loads: tuple[float, ...] = (0.8, 0.9, 0.95)
    b_before: float = 12.0
    b_stall: float = 10.0
    b_after: float = 16.0
    d_loads: tuple[float, ...] = (5.0, 10.0)
    d_high: float = 0.3
    d_seconds: float = 36.0
    timeout: float = 4.0  # of an HTTP attempt, for its first token
    deadline: float = 12.0  # of a gRPC call, all its attempts


FULL = Sizes()
QUICK = Sizes(
    probe=16.0,
    warm=3.0,
    a_loads=(0.5, 1.0, 10.0),
    a_seconds=16.0,
    b_loads=(0.9,),
    b_before=10.0,
    b_after=12.0,
    d_loads=(10.0,),
    d_seconds=20.0,
)


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the engine can do: `rate` calls of MIX per second. `cost` prices a call by its prompt
    and output tokens, in average calls of MIX."""

    rate: float
    cost: Callable[[int, int], float]


def cells(letters: Sequence[str], sizes: Sizes, capacity: Capacity, seed: int) -> list[Cell]:
    """All cells of these scenarios."""
    makers = {"a": overload, "b": stall, "d": priority}
    return [cell for each in letters for cell in makers[each](sizes, capacity, seed)]


def overload(sizes: Sizes, capacity: Capacity, seed: int) -> Iterator[Cell]:
    """Goodput while more and more is offered by clients that retry."""
    for load in sizes.a_loads:
        end = sizes.a_seconds
        calls = traffic(load, capacity, end, RETRYING, f"{seed}:a:{load}")
        yield Cell("a", f"load {load:g}x", calls, sizes.warm, end, load)


def stall(sizes: Sizes, capacity: Capacity, seed: int) -> Iterator[Cell]:
    """The engine stands still for a while; clients retry, obeying hints or ignoring them."""
    begin = sizes.b_before
    until = begin + sizes.b_stall
    end = until + sizes.b_after
    for load in sizes.b_loads:
        for word, clients in (("obeyed", OBEYING), ("ignored", IGNORING)):
            calls = traffic(load, capacity, end, clients, f"{seed}:b:{load}", EVEN)
            name = f"load {load:g}, hints {word}"
            yield Cell("b", name, calls, sizes.warm, end, load, (begin, until))


def priority(sizes: Sizes, capacity: Capacity, seed: int) -> Iterator[Cell]:
    """High calls alone, then the same ones beside many times the capacity in the low class."""
    end = sizes.d_seconds
    high = traffic(sizes.d_high, capacity, end, {OPENAI: 1.0}, f"{seed}:d:high")
    yield Cell("d", "high alone", high, sizes.warm, end, 0.0)
    for load in sizes.d_loads:
        low = traffic(load, capacity, end, OBEYING, f"{seed}:d:{load}", LOW_MIX)
        both = tuple(sorted((*high, *low), key=lambda call: call.at))
        yield Cell("d", f"low {load:g}x", both, sizes.warm, end, load)


def traffic(
    load: float, capacity: Capacity, end: float, clients: Clients, seed: str, mix: Mix = MIX
) -> tuple[Call, ...]:
    """Arrivals in [0, end) that cost `load` times what the engine can do in that time: of so few
    calls the costs differ much from draw to draw, so they are drawn until they suffice and their
    times are stretched to fit. Equal seeds give equal calls but for their clients."""
    rng = random.Random(seed)
    left = load * capacity.rate * end
    drawn = []
    for at in mix.times(1.0, 0.0, math.inf, rng):
        if left <= 0:
            break
        sizes = mix.sizes(rng)
        left -= capacity.cost(*sizes)
        drawn.append((at, *sizes))
    stretch = end / at if drawn else 1.0
    kinds = random.Random(f"{seed}:clients").choices(
        list(clients), list(clients.values()), k=len(drawn)
    )
    return tuple(
        Call(at * stretch, prompt, output, kind, int(mix.priority))
        for (at, prompt, output), kind in zip(drawn, kinds)
    )


def mean_sizes() -> tuple[float, float]:
    """Prompt and output tokens of MIX, on average."""
    return _MEANS


def endless(count: int, seed: str) -> tuple[Call, ...]:
    """Calls without times, for callers that never pause."""
    rng = random.Random(seed)
    return tuple(Call(0.0, *MIX.sizes(rng)) for _ in range(count))


def seconds_of(planned: Sequence[Cell], drain: float) -> float:
    """How long they will take, with `drain` seconds after each."""
    return sum(cell.end + drain for cell in planned)
