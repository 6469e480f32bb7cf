"""Settings of different parts that cannot work together are named; the defaults can."""

import pytest
from pydantic import SecretStr

from surgetank.admission.doors.envoy.config import EnvoyConfig
from surgetank.admission.gate import GateConfig
from surgetank.admission.leases.config import LeasesConfig
from surgetank.control.config import Config, ControlConfig
from surgetank.control.fleet.config import FleetConfig
from surgetank.control.lint import lint
from surgetank.control.presets import PRESETS
from surgetank.control.sources import load
from surgetank.engine.backends.remote.config import BackendConfig, Role
from surgetank.telemetry.slo import SloTargets

REDIS = SecretStr("redis://10.0.0.1")
TWO = (BackendConfig(url="http://a"), BackendConfig(url="http://b", role=Role.PREFILL))


def test_the_defaults_are_sound() -> None:
    assert lint(Config()) == []
    assert lint(Config(leases=LeasesConfig(url=REDIS))) == []
    picks = EnvoyConfig(port=8405, picks_endpoint=True)
    assert lint(Config(backends=TWO, envoy=picks)) == []


@pytest.mark.parametrize("name", [*PRESETS])
def test_the_presets_are_sound(name: str) -> None:
    assert lint(load(Config, preset=PRESETS[name].given(name), file=None, env={}, flags=[])) == []


@pytest.mark.parametrize(
    ("config", "finding"),
    [
        (
            Config(gate=GateConfig(policy="envoy", kappa=0.4)),
            "gate.kappa is 0.4: it can never bind",
        ),
        (Config(gate=GateConfig(policy="envoy", enforce=False)), "gate.policy is envoy: with gate"),
        (
            Config(control=ControlConfig(policies=("static", "recovery"))),
            "gate.laws.brownout is true: without brownout in control.policies",
        ),
        (
            Config(control=ControlConfig(policies=("brownout", "recovery", "static"))),
            "control.policies has static behind others",
        ),
        (
            Config(leases=LeasesConfig(url=REDIS, timeout=0.5)),
            "leases.timeout is 0.5 s: a lease is renewed every 0.333 s",
        ),
        (
            Config(leases=LeasesConfig(url=REDIS, hold=0.5)),
            "leases.hold is 0.5 s: a share would be stale before its lease of 1 s",
        ),
        (
            Config(leases=LeasesConfig(url=REDIS), fleet=FleetConfig(period=2.0)),
            "fleet.lease is 3 s: a leader that looks every 2 s",
        ),
        (Config(control=ControlConfig(hung_after=1.0)), "control.hung_after is 1 s"),
        (
            Config(backends=(BackendConfig(url="http://a", role=Role.PREFILL),)),
            "backends has engines of role prefill alone",
        ),
        (
            Config(backends=TWO, envoy=EnvoyConfig(port=8405)),
            "envoy.picks_endpoint is false: with several backends",
        ),
        (
            Config(control=ControlConfig(drain_timeout=1.0), slo=SloTargets(ttft=2.0)),
            "control.drain_timeout is 1 s: shorter than slo.ttft",
        ),
    ],
)
def test_what_contradicts_is_named(config: Config, finding: str) -> None:
    (sentence,) = lint(config)
    assert finding in sentence
