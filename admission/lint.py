"""Settings that are allowed one by one and cannot work together: named when they are loaded."""

from collections.abc import Iterator

from surgetank.admission.gate import GateConfig
from surgetank.admission.hints import MAX_HINT
from surgetank.admission.limits import SPECS, Limit
from surgetank.engine.api import ModelCard
from surgetank.telemetry.slo import SloTargets
from surgetank.telemetry.vocabulary import Priority


def lint(config: GateConfig, targets: SloTargets) -> list[str]:
    """Sentences, each beginning with the setting that it is about; empty when all is well."""
    return list(_thresholds(config)) + list(_waits(config, targets))


def lint_engine(config: GateConfig, card: ModelCard) -> list[str]:
    """The same for settings against the engine that is there: limits that can never bind."""
    return [
        f"gate.{name} is {value:g}: it can never bind, the engine has {most}"
        for name, value, most in (
            (Limit.IN_FLIGHT_SEQS, config.in_flight_seqs, card.max_num_seqs),
            (Limit.MAX_OUTPUT_TOKENS, config.max_output_tokens, card.context_length),
            (Limit.MAX_N, config.max_n, card.max_num_seqs),
        )
        if value > most and value != SPECS[name].default
    ] + [
        f"gate.queue_tokens is {config.queue_tokens}: prompts between that and the context of "
        f"{card.context_length} tokens are always refused"
        for _ in range(config.queue_tokens < card.context_length)
    ]


def _thresholds(config: GateConfig) -> Iterator[str]:
    if config.kv_reserve_low > config.kv_reserve:
        yield (
            f"gate.kv_reserve_low is {config.kv_reserve_low:g}: it can never bind above "
            f"gate.kv_reserve ({config.kv_reserve:g})"
        )
    if config.laws.dynamic and config.kappa > 1.0:
        yield (
            f"gate.kappa is {config.kappa:g}: above 1 requests are admitted that will miss their "
            "target for the first token"
        )
    if config.laws.least_batch > config.in_flight_seqs:
        yield (
            f"gate.laws.least_batch is {config.laws.least_batch}: more than gate.in_flight_seqs "
            f"({config.in_flight_seqs}) allows"
        )


def _waits(config: GateConfig, targets: SloTargets) -> Iterator[str]:
    if not config.laws.dynamic:
        return
    for priority in Priority:
        key = f"gate.laws.patience_{priority.label}"
        target = targets.ttft * config.laws.patience(priority)
        longest = config.kappa * target
        if longest >= MAX_HINT:
            yield (
                f"{key} allows a wait of {longest:g} s: no refused request of that class can be "
                f"told to retry, hints end at {MAX_HINT:g} s"
            )
        if longest > config.queue_wait:
            yield (
                f"{key} allows a wait of {longest:g} s: gate.queue_wait ends it after "
                f"{config.queue_wait:g} s, as expired"
            )
    patience = [config.laws.patience(priority) for priority in Priority]
    if patience != sorted(patience):
        yield (
            "gate.laws.patience_critical to patience_sheddable do not ascend: a higher class "
            "would be refused before a lower one"
        )
