"""Settings of different parts that are allowed one by one and cannot work together: named at start.

What lies within the gate is admission/lint.py's.
"""

from collections.abc import Iterator

from surgetank.admission.gate import GateConfig
from surgetank.admission.policies.table import DEFAULT
from surgetank.control.config import Config
from surgetank.engine.backends.remote.config import Role

_OF_THE_LAWS = ("kappa", "retry_share")  # limits that only the policy `laws` reads


def lint(config: Config) -> list[str]:
    """Sentences, each beginning with the setting that it is about; empty when all is well."""
    return [*_backends(config), *_policies(config), *_shared_state(config), *_looks(config)]


def _backends(config: Config) -> Iterator[str]:
    if config.backends and all(each.role is Role.PREFILL for each in config.backends):
        yield (
            "backends has engines of role prefill alone: none takes requests, so that all are "
            "refused"
        )
    envoy = config.envoy
    if len(config.backends) > 1 and envoy.port is not None and not envoy.picks_endpoint:
        yield (
            "envoy.picks_endpoint is false: with several backends Envoy has to be told which of "
            "them was chosen"
        )


def _policies(config: Config) -> Iterator[str]:
    gate, names = config.gate, config.control.policies
    if gate.policy != DEFAULT:
        for name in _OF_THE_LAWS:
            if getattr(gate, name) != GateConfig.model_fields[name].default:
                yield (
                    f"gate.{name} is {getattr(gate, name):g}: it can never bind, gate.policy is "
                    f"{gate.policy}"
                )
    for name in ("brownout", "recovery"):
        if getattr(gate.laws, name) and name not in names:
            yield f"gate.laws.{name} is true: without {name} in control.policies nothing does it"
    if "static" in names and names[0] != "static":
        yield (
            "control.policies has static behind others: what is configured holds, and what they "
            "want for the same limits never does"
        )
    if not gate.enforce and gate.policy != DEFAULT:
        yield f"gate.policy is {gate.policy}: with gate.enforce false nobody is asked"


def _shared_state(config: Config) -> Iterator[str]:
    leases = config.leases
    if leases.url is None:
        return
    renewed = leases.term / 3.0
    if leases.timeout >= renewed:
        yield (
            f"leases.timeout is {leases.timeout:g} s: a lease is renewed every {renewed:.3g} s, "
            "before Redis has to have answered"
        )
    if leases.hold < leases.term:
        yield (
            f"leases.hold is {leases.hold:g} s: a share would be stale before its lease of "
            f"{leases.term:g} s is over"
        )
    if config.fleet.lease < 2.0 * config.fleet.period:
        yield (
            f"fleet.lease is {config.fleet.lease:g} s: a leader that looks every "
            f"{config.fleet.period:g} s would be replaced after one late look"
        )


def _looks(config: Config) -> Iterator[str]:
    if config.control.hung_after <= config.slo.ttft:
        yield (
            f"control.hung_after is {config.control.hung_after:g} s: an engine that keeps slo.ttft "
            f"({config.slo.ttft:g} s) would pass for hung"
        )
    if config.control.drain_timeout < config.slo.ttft:
        yield (
            f"control.drain_timeout is {config.control.drain_timeout:g} s: shorter than slo.ttft "
            f"({config.slo.ttft:g} s), no request that waits would be served"
        )
