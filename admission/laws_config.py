"""Settings of the gate's laws that do not change while it runs."""

from pydantic import BaseModel, ConfigDict, Field

from surgetank.telemetry.vocabulary import Priority


def _patience(value: float, label: str) -> float:
    field: float = Field(
        default=value,
        gt=0,
        le=1000,
        description=f"TTFT target of the class {label}, as a multiple of slo.ttft.",
    )
    return field


class LawsConfig(BaseModel):
    """How the gate predicts, promises and shares."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dynamic: bool = Field(
        default=True,
        description="false leaves only the fixed limits: no predicted waits, no late binding.",
    )
    patience_critical: float = _patience(1.0, "critical")
    patience_default: float = _patience(1.0, "default")
    patience_batch: float = _patience(10.0, "batch")
    patience_sheddable: float = _patience(10.0, "sheddable")
    least_queue: int = Field(
        default=4,
        ge=0,
        le=1024,
        description="Requests of mean cost that may wait in any case, even where their wait then "
        "misses the TTFT target: an engine of few slots and slow answers idles otherwise between "
        "bursts. A caller's own deadline holds all the same.",
    )
    retry_wait_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Of the wait that the TTFT target allows a first attempt, a retry's.",
    )
    output_quantile: float = Field(
        default=0.7, ge=0.5, le=1, description="Of past outputs, what KV memory is promised for."
    )
    floor_share: float = Field(
        default=0.05,
        ge=0,
        le=0.3,
        description="Share of the engine that each lower class is sure of while it waits.",
    )
    low_fill: float = Field(
        default=0.3,
        gt=0,
        le=100,
        description="What running sequences may add to a step, in full prompt chunks, before batch "
        "and sheddable wait while higher classes are served: more is more throughput for the low "
        "classes, and longer steps for the high ones.",
    )
    least_batch: int = Field(
        default=4,
        ge=1,
        le=4096,
        description="Sequences that the engine may have even where the TPOT target is missed.",
    )
    brownout: bool = Field(default=True, description="Whether the brown-out ladder acts.")
    recovery: bool = Field(
        default=True, description="Whether a metastable failure is ended by a ramp."
    )

    def patience(self, priority: Priority) -> float:
        """The class's multiple of the TTFT target."""
        value: float = getattr(self, f"patience_{priority.label}")
        return value
