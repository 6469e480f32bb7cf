"""The whole configuration: each part's own settings, side by side. Importable without torch."""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from surgetank.admission.doors.envoy.config import AdmitConfig, EnvoyConfig
from surgetank.admission.doors.grpc.config import GrpcConfig
from surgetank.admission.doors.http.config import HttpConfig
from surgetank.admission.gate import GateConfig
from surgetank.admission.leases.config import LeasesConfig
from surgetank.admission.policies.canary import CanaryConfig
from surgetank.admission.routing.config import RoutingConfig
from surgetank.admission.tenants import TenantsConfig
from surgetank.control.fleet.config import FleetConfig
from surgetank.control.policies.plugins import control_policies
from surgetank.control.policies.table import POLICIES
from surgetank.engine.backends.remote.config import BackendConfig
from surgetank.engine.backends.remote.found import EMBEDDED
from surgetank.engine.config import EngineConfig
from surgetank.telemetry.slo import SloTargets
from surgetank.telemetry.tracing_config import TracingConfig


class AdminConfig(BaseModel):
    """Where the admin API listens, and who may use it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address to listen on. Set a token before this is more than loopback.",
    )
    port: int = Field(
        default=8402, ge=0, le=65535, description="Port to listen on; 0 takes any free one."
    )
    token: SecretStr = Field(
        default=SecretStr(""),
        description="Bearer token that every call must carry; empty: none is asked for.",
    )


class ControlConfig(BaseModel):
    """The control loop, the journal, and how the service ends."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    period: float = Field(
        default=0.25, ge=0.01, le=10, description="Seconds between two passes of the control loop."
    )
    drain_timeout: float = Field(
        default=30.0,
        ge=0,
        le=3600,
        description="Seconds that requests in flight have to complete when the service stops.",
    )
    hung_after: float = Field(
        default=60.0,
        ge=1,
        le=3600,
        description="Seconds without a step, with work in the engine, before /health/live fails.",
    )
    policies: tuple[str, ...] = Field(
        default=tuple(POLICIES),
        min_length=1,
        description="Control policies that set limits, in order: a later one's value holds.",
    )
    canary: CanaryConfig = Field(default_factory=CanaryConfig)
    journal: str = Field(
        default="~/.local/state/surgetank/journal.jsonl",
        description="File of every change (JSON lines, append-only); empty: in memory only.",
    )

    @field_validator("policies")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        control_policies(names)
        return names

    def journal_path(self) -> Path | None:
        """The journal's file with ~ resolved; None without one."""
        return Path(self.journal).expanduser() if self.journal else None


class LogConfig(BaseModel):
    """What is logged, on standard error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least severe level that is written."
    )
    format: Literal["auto", "json", "text"] = Field(
        default="auto", description="auto: text on a terminal, else JSON."
    )

    def as_json(self) -> bool | None:
        """For logs.configure(): None leaves the choice to where the logs go."""
        return None if self.format == "auto" else self.format == "json"


class Config(BaseModel):
    """Everything that can be configured, by section."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: EngineConfig = Field(default_factory=EngineConfig)
    backends: tuple[BackendConfig, ...] = Field(
        default=(),
        max_length=24,
        description="Engines of other makers to protect; none: the embedded one.",
    )
    routing: RoutingConfig = Field(default_factory=RoutingConfig)
    gate: GateConfig = Field(default_factory=GateConfig)
    tenants: TenantsConfig = Field(default_factory=TenantsConfig)
    leases: LeasesConfig = Field(default_factory=LeasesConfig)
    fleet: FleetConfig = Field(default_factory=FleetConfig)
    slo: SloTargets = Field(default_factory=SloTargets)
    http: HttpConfig = Field(default_factory=HttpConfig)
    grpc: GrpcConfig = Field(default_factory=GrpcConfig)
    envoy: EnvoyConfig = Field(default_factory=EnvoyConfig)
    admit: AdmitConfig = Field(default_factory=AdmitConfig)
    admin: AdminConfig = Field(default_factory=AdminConfig)
    control: ControlConfig = Field(default_factory=ControlConfig)
    log: LogConfig = Field(default_factory=LogConfig)
    tracing: TracingConfig = Field(default_factory=TracingConfig)

    @field_validator("backends")
    @classmethod
    def _told_apart(cls, backends: tuple[BackendConfig, ...]) -> tuple[BackendConfig, ...]:
        names = [backend.name for backend in backends]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{', '.join(twice)}: each engine has a name of its own")
        if EMBEDDED in names:
            raise ValueError(f"{EMBEDDED} is the name of our own engine; allowed: any other")
        if len({backend.speaks_grpc for backend in backends}) > 1:
            raise ValueError("some are http and some grpc; allowed: all of one kind")
        if any(backend.speaks_grpc and backend.pass_priority for backend in backends):
            raise ValueError("pass_priority is true; allowed before engines by http alone")
        return backends

    @model_validator(mode="after")
    def _proxies_need_an_engine_of_their_own(self) -> Self:
        for name, port in (("envoy", self.envoy.port), ("admit", self.admit.port)):
            if port is not None and (not self.backends or self.backends[0].speaks_grpc):
                raise ValueError(
                    f"{name}.port is {port}, but the embedded engine and those by grpc are reached "
                    "through this process alone; allowed: null, or an engine in backends by http"
                )
        return self
