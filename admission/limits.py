"""The gate's limits: a base value each, and an operator's override that wins until it expires."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import Field


class Limit(StrEnum):
    """The names of what the gate enforces; also metric labels and what refusals name."""

    QUEUE_REQUESTS = "queue_requests"
    QUEUE_TOKENS = "queue_tokens"
    QUEUE_WAIT = "queue_wait"
    IN_FLIGHT_SEQS = "in_flight_seqs"
    KV_RESERVE = "kv_reserve"
    MAX_N = "max_n"
    MAX_OUTPUT_TOKENS = "max_output_tokens"
    MAX_NUM_SEQS = "max_num_seqs"
    MAX_BATCH_TOKENS = "max_batch_tokens"
    PREFILL_SHARE = "prefill_share"
    KV_WATERMARK = "kv_watermark"
    TPOT_TARGET = "tpot_target"
    KAPPA = "kappa"
    KV_RESERVE_LOW = "kv_reserve_low"
    RETRY_SHARE = "retry_share"
    BROWNOUT_LEVEL = "brownout_level"
    LOW_OUTPUT_TOKENS = "low_output_tokens"
    SHEDDABLE_SHARE = "sheddable_share"
    LOWEST_CLASS = "lowest_class"
    ADMISSION_SHARE = "admission_share"


@dataclass(frozen=True, slots=True)
class LimitSpec:
    """A limit's allowed range and its meaning. `whole`: only integers make sense."""

    default: float
    minimum: float
    maximum: float
    unit: str
    help: str
    whole: bool = True


SPECS: dict[Limit, LimitSpec] = {
    Limit.QUEUE_REQUESTS: LimitSpec(
        256, 1, 1_000_000, "requests", "Requests that may wait at the gate; n choices count n."
    ),
    Limit.QUEUE_TOKENS: LimitSpec(
        131_072, 1, 1_000_000_000, "tokens", "Prompt tokens that may wait at the gate."
    ),
    Limit.QUEUE_WAIT: LimitSpec(
        30.0, 0.05, 3600.0, "seconds", "The longest that a request may wait.", whole=False
    ),
    Limit.IN_FLIGHT_SEQS: LimitSpec(
        4096, 1, 65_536, "sequences", "Sequences in the engine at once, at most what it can run."
    ),
    Limit.KV_RESERVE: LimitSpec(
        0.92, 0.05, 1.0, "share", "Share of the KV pool that may be promised.", whole=False
    ),
    Limit.MAX_N: LimitSpec(16, 1, 128, "choices", "Choices (n) that one request may ask for."),
    Limit.MAX_OUTPUT_TOKENS: LimitSpec(
        1_048_576, 1, 1_048_576, "tokens", "Output tokens that each choice may ask for."
    ),
    # The engine's own budgets: what it was started with, so no configuration of ours.
    Limit.MAX_NUM_SEQS: LimitSpec(
        65_536, 1, 65_536, "sequences", "Sequences in the engine's running batch."
    ),
    Limit.MAX_BATCH_TOKENS: LimitSpec(
        1_048_576, 1, 1_048_576, "tokens", "Tokens of one engine step, prefill and decode."
    ),
    Limit.PREFILL_SHARE: LimitSpec(
        1.0, 0.01, 1.0, "share", "Of a step's tokens, how many may read prompts.", whole=False
    ),
    Limit.KV_WATERMARK: LimitSpec(
        1.0, 0.01, 1.0, "share", "Of the KV pool, what sequences may hold.", whole=False
    ),
    Limit.TPOT_TARGET: LimitSpec(
        0.0, 0.0, 60.0, "seconds", "Step time that prompts may not exceed; 0 is any.", whole=False
    ),
    # The laws' own numbers.
    Limit.KAPPA: LimitSpec(
        0.7, 0.05, 2.0, "share", "Of the TTFT target, how much may be wait.", whole=False
    ),
    Limit.KV_RESERVE_LOW: LimitSpec(
        0.80, 0.05, 1.0, "share", "The KV pool's share for batch and sheddable.", whole=False
    ),
    Limit.RETRY_SHARE: LimitSpec(
        0.10, 0.0, 1.0, "share", "Retries per first attempts; 0 closes the lane.", whole=False
    ),
    # What the brown-out ladder and the recovery set; without them nothing is held back.
    Limit.BROWNOUT_LEVEL: LimitSpec(0, 0, 4, "rung", "The brown-out ladder's rung; 0 is none."),
    Limit.LOW_OUTPUT_TOKENS: LimitSpec(
        1_048_576, 1, 1_048_576, "tokens", "Output of batch and sheddable is cut to this."
    ),
    Limit.SHEDDABLE_SHARE: LimitSpec(
        1.0, 0.0, 1.0, "share", "Of sheddable requests, how many are looked at.", whole=False
    ),
    Limit.LOWEST_CLASS: LimitSpec(
        3, 0, 3, "class", "The lowest class that is admitted; 0 is critical only."
    ),
    Limit.ADMISSION_SHARE: LimitSpec(
        1.0, 0.05, 1.0, "share", "Of what is not critical, how much is looked at.", whole=False
    ),
}


def limit_field(limit: Limit) -> Any:
    """A pydantic field with the limit's default, range and help."""
    spec = SPECS[limit]
    return Field(
        default=int(spec.default) if spec.whole else spec.default,
        ge=spec.minimum,
        le=spec.maximum,
        description=f"{spec.help} ({spec.unit})",
    )


class LimitError(ValueError):
    """A limit that does not exist, or a value outside its range; says which and what is allowed."""


@dataclass(frozen=True, slots=True)
class Override:
    """An operator's value: who set it, why, and until when (monotonic) it wins."""

    value: float
    until: float
    who: str
    why: str


@dataclass(frozen=True, slots=True)
class LimitView:
    """One limit as it stands: what holds now, what it goes back to, and what it may be."""

    name: Limit
    current: float
    base: float
    minimum: float
    maximum: float
    unit: str
    help: str
    override: Override | None


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A limit was set: the value in force before and after, the same when something else holds it.

    `cause` is config, policy:NAME, engine, operator or expiry.
    """

    name: Limit
    before: float
    after: float
    cause: str


class Limits:
    """Holds every limit. get() is one dictionary look-up; expire() must be called when due."""

    def __init__(self, base: dict[Limit, float] | None = None) -> None:
        """The defaults, changed by `base`; raises LimitError when that is out of range."""
        self._maximum = {name: spec.maximum for name, spec in SPECS.items()}
        self._base = {name: spec.default for name, spec in SPECS.items()}
        for name, value in (base or {}).items():
            self._base[name] = self.checked(name, value)
        self._overrides: dict[Limit, Override] = {}
        self._held = self._current = dict(self._base)  # apart only inside supposing()
        self._listeners: list[Callable[[LimitChange], None]] = []
        self.next_expiry = math.inf

    def get(self, name: Limit) -> float:
        """The value that holds now."""
        return self._current[name]

    @contextmanager
    def supposing(self, values: Mapping[Limit, float]) -> Iterator[None]:
        """Inside, get() answers as if a policy had set these; overrides and the engine's maxima
        still win. Nothing may be set inside; snapshot() shows what really holds."""
        supposed = {
            name: min(value, self._maximum[name])
            for name, value in values.items()
            if name not in self._overrides
        }
        self._current = self._held | supposed
        try:
            yield
        finally:
            self._current = self._held

    def ceiling(self, name: Limit) -> float:
        """What holds once a temporary override is gone, if that is more: above it is never."""
        return max(self._current[name], min(self._base[name], self._maximum[name]))

    def without_override(self, name: Limit) -> float:
        """What would hold if an operator's value, if there is one, were taken back."""
        return min(self._base[name], self._maximum[name])

    def on_change(self, listener: Callable[[LimitChange], None]) -> None:
        """Tell `listener` whenever a limit was set, after it holds."""
        self._listeners.append(listener)

    def set_base(self, name: Limit, value: float, cause: str) -> None:
        """What configuration or a policy wants; an override still wins. Raises LimitError."""
        self._base[name] = self.checked(name, value)
        self._settle(name, cause)

    def set_maximum(self, name: Limit, maximum: float, cause: str) -> None:
        """What the engine can do at most; base and override are cut to it while it holds."""
        self._maximum[name] = min(maximum, SPECS[name].maximum)
        if self._wanted(name) != self._current[name]:
            self._settle(name, cause)

    def override(self, name: Limit, value: float, *, until: float, who: str, why: str) -> None:
        """An operator's value until the instant `until`. Raises LimitError out of range."""
        self._overrides[name] = Override(self.checked(name, value), until, who, why)
        self._rearm()
        self._settle(name, "operator")

    def clear(self, name: Limit) -> None:
        """Take an operator's override back; nothing happens when there is none."""
        if self._overrides.pop(name, None) is not None:
            self._rearm()
            self._settle(name, "operator")

    def expire(self, now: float) -> None:
        """Drop the overrides whose time is over."""
        if now < self.next_expiry:
            return
        over = [name for name, held in self._overrides.items() if held.until <= now]
        for name in over:
            del self._overrides[name]
        self._rearm()
        for name in over:
            self._settle(name, "expiry")

    def snapshot(self) -> tuple[LimitView, ...]:
        """Every limit as it stands; may be called from any thread."""
        return tuple(
            LimitView(
                name=name,
                current=self._held[name],
                base=self._base[name],
                minimum=spec.minimum,
                maximum=self._maximum[name],
                unit=spec.unit,
                help=spec.help,
                override=self._overrides.get(name),
            )
            for name, spec in SPECS.items()
        )

    def overridden(self, name: Limit) -> bool:
        """Whether an operator's value is in force."""
        return name in self._overrides

    def checked(self, name: Limit, value: float) -> float:
        """The value itself; raises LimitError when the limit cannot have it now."""
        spec, most = SPECS[name], self._maximum[name]
        if not spec.minimum <= value <= most:  # false for NaN, too
            raise LimitError(
                f"{name}: {value:.10g} {spec.unit}; allowed: {spec.minimum:.10g} to {most:.10g}"
            )
        if spec.whole and value != int(value):
            raise LimitError(f"{name}: {value:g} {spec.unit}; allowed: whole numbers")
        return value

    def possible(self, name: Limit, value: float) -> float:
        """The value, cut to the most that the limit can have; raises LimitError for the others."""
        return self.checked(name, min(value, self._maximum[name]))

    def _rearm(self) -> None:
        instants = (held.until for held in self._overrides.values())
        self.next_expiry = min(instants, default=math.inf)

    def _wanted(self, name: Limit) -> float:
        held = self._overrides.get(name)
        return min(self._base[name] if held is None else held.value, self._maximum[name])

    def _settle(self, name: Limit, cause: str) -> None:
        before, after = self._held[name], self._wanted(name)
        self._held[name] = after
        for listener in self._listeners:
            listener(LimitChange(name, before, after, cause))


def limit_named(name: str) -> Limit:
    """The limit of that name; raises LimitError naming those that exist."""
    try:
        return Limit(name)
    except ValueError:
        raise LimitError(f"no limit {name!r}; there are: {', '.join(Limit)}") from None
