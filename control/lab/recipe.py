"""From words on a command line to a scenario and its calls."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from surgetank.admission.gate import GateConfig
from surgetank.admission.leases.config import LeasesConfig, TenantQuota
from surgetank.control.lab.behaviour import BEHAVIOURS, Behaviour
from surgetank.control.lab.faults import OF_REDIS, Fault, parse_fault
from surgetank.control.lab.inputs import Item, Mix, merged, read_trace, synthetic
from surgetank.control.lab.steptime import EngineSpec, StepModel
from surgetank.control.lab.world import Scenario
from surgetank.telemetry.slo import SloTargets
from surgetank.telemetry.vocabulary import Priority

ModelT = TypeVar("ModelT", bound=BaseModel)


class RecipeError(ValueError):
    """Words that make no scenario; str() names the setting, its value and what is allowed."""


@dataclass(frozen=True, slots=True)
class Words:
    """What was asked for, as it was written. `settings` are of the form key=value."""

    policy: str = "ours"
    trace: Path | None = None
    speed: float = 1.0
    load: float | None = None  # of the engine's capacity
    rate: float | None = None  # calls per second
    duration: float = 60.0
    streams: Sequence[str] = ()  # tenant=x,priority=batch,share=2,prompt_median=900
    engine: Sequence[str] = ()
    gate: Sequence[str] = ()
    slo: Sequence[str] = ()
    quotas: Sequence[str] = ()  # tenant=x,tokens_per_minute=6000; no tenant: all others
    leases: Sequence[str] = ()
    clients: Sequence[str] = ()  # NAME or NAME:WEIGHT, NAME,retries=2,timeout=2:WEIGHT
    faults: Sequence[str] = ()
    sidecars: int = 1
    engines: str = "shared"
    behind: int = 1
    seed: int = 0


def scenario_of(words: Words) -> Scenario:
    """Everything but the calls. Raises RecipeError."""
    model_keys = set(StepModel.model_fields)
    model = [text for text in words.engine if text.partition("=")[0] in model_keys]
    sizes = [text for text in words.engine if text.partition("=")[0] not in model_keys]
    step_model = _read(StepModel, model, "engine")
    clients = [_client(text) for text in words.clients] or [(BEHAVIOURS["no-retry"], 1.0)]
    faults = [parse_fault(text) for text in words.faults]
    try:
        return Scenario(
            policy=words.policy,
            engine=_read(EngineSpec, sizes, "engine").model_copy(update={"model": step_model}),
            gate=_read(GateConfig, words.gate, "gate"),
            slo=_read(SloTargets, words.slo, "slo"),
            clients=tuple(clients),
            faults=tuple(faults),
            sidecars=words.sidecars,
            leases=_leases(words, faults),
            engines="own" if words.engines == "own" else "shared",
            behind=words.behind,
            seed=words.seed,
        )
    except ValidationError as error:
        raise RecipeError(_sentence(error, "scenario")) from error


def items_of(words: Words, scenario: Scenario) -> list[Item]:
    """The calls: a trace, or streams of synthetic ones. Raises RecipeError, InputError."""
    rng = random.Random(f"{words.seed}:input")
    streams = [_stream(text) for text in words.streams or ["share=1"]]
    if words.trace is not None:
        most = streams[0][0].max_tokens
        return read_trace(words.trace, speed=words.speed, max_tokens=most, rng=rng)
    if not 0 < words.duration <= 86_400:
        raise RecipeError(f"duration is {words.duration:g}; allowed: above 0, to 86400 seconds")
    whole = sum(weight for _, weight in streams)
    rate = words.rate or _rate(words, scenario, streams)
    parts = [
        synthetic(mix, rate * weight / whole, 0.0, words.duration, random.Random(rng.random()))
        for mix, weight in streams
    ]
    return merged(*parts)


def _rate(words: Words, scenario: Scenario, streams: list[tuple[Mix, float]]) -> float:
    """Calls per second that make the load asked for, of all engines together."""
    whole = sum(weight for _, weight in streams)
    means = [(mix.means(), weight / whole) for mix, weight in streams]
    prompt = sum(mean[0] * weight for mean, weight in means)
    output = sum(mean[1] * weight for mean, weight in means)
    engines = scenario.groups * scenario.behind
    capacity = scenario.engine.capacity(prompt, output, scenario.slo.tpot) * engines
    return capacity * (1.0 if words.load is None else words.load)


def _stream(text: str) -> tuple[Mix, float]:
    """A mix and its weight."""
    pairs = _pairs(text.split(","), "stream")
    try:
        weight = float(pairs.pop("share", "1"))
        if "priority" in pairs:
            pairs["priority"] = str(int(Priority[pairs["priority"].upper()]))
    except (KeyError, ValueError) as error:
        classes = ", ".join(each.label for each in Priority)
        raise RecipeError(f"stream {text!r}: {error}; priorities: {classes}") from error
    if weight <= 0:
        raise RecipeError(f"stream {text!r}: share is {weight:g}; allowed: above 0")
    return _validated(Mix, pairs, "stream"), weight


def _leases(words: Words, faults: Sequence[Fault]) -> LeasesConfig | None:
    """What the sidecars share, when a quota, a setting or a fault says that they do."""
    if not (words.quotas or words.leases or any(fault.kind in OF_REDIS for fault in faults)):
        return None
    pairs = {"sidecars": str(words.sidecars)} | _pairs(words.leases, "leases")
    if "url" in pairs:
        raise RecipeError("leases url: the lab has a Redis of its own; leave it out")
    changes: dict[str, Any] = {"tenants": {}}
    for text in words.quotas:
        limits = _pairs(text.split(","), "quota")
        tenant = limits.pop("tenant", None)
        quota = _validated(TenantQuota, limits, "quota")
        if tenant is None:
            changes["default"] = quota
        else:
            changes["tenants"][tenant] = quota
    return _validated(LeasesConfig, pairs, "leases").model_copy(update=changes)


def _client(text: str) -> tuple[Behaviour, float]:
    """A kind, perhaps with changes, and its weight."""
    kind, _, weight = text.partition(":")
    name, *changes = kind.split(",")
    if name not in BEHAVIOURS:
        raise RecipeError(f"no client {name!r}; there are: {', '.join(BEHAVIOURS)}")
    known = BEHAVIOURS[name]
    if changes:
        changed = _validated(Behaviour, {"name": kind, **_pairs(changes, "client")}, "client")
        known = known.model_copy(update=changed.model_dump(exclude_unset=True))
    try:
        return known, float(weight or 1)
    except ValueError as error:
        raise RecipeError(f"client {text!r}: {weight!r} is no weight") from error


def _read(model: type[ModelT], settings: Iterable[str], section: str) -> ModelT:
    return _validated(model, _pairs(settings, section), section)


def _pairs(settings: Iterable[str], section: str) -> dict[str, str]:
    pairs = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals:
            raise RecipeError(f"{section} {text!r} is not of the form key=value")
        pairs[key.strip()] = value.strip()
    return pairs


def _validated(model: type[ModelT], pairs: dict[str, str], section: str) -> ModelT:
    """`a.b=1` is the setting b of the part a."""
    tree: dict[str, Any] = {}
    for key, value in pairs.items():
        *parts, name = key.split(".")
        at = tree
        for part in parts:
            at = at.setdefault(part, {})
        at[name] = value
    try:
        return model.model_validate_strings(tree)
    except ValidationError as error:
        raise RecipeError(_sentence(error, section)) from error


def _sentence(error: ValidationError, section: str) -> str:
    fault = error.errors()[0]
    key = ".".join(str(part) for part in fault["loc"])
    return f"{section} {key} is {fault['input']!r}: {fault['msg']}"
