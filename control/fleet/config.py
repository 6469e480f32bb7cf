"""Settings of a sidecar in its fleet: how often it looks, how long a leader leads unheard."""

from pydantic import BaseModel, ConfigDict, Field


class FleetConfig(BaseModel):
    """What sidecars with one Redis agree on. Where that Redis is stands in leases."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    period: float = Field(default=0.5, ge=0.05, le=10, description="Seconds between two looks.")
    lease: float = Field(
        default=3.0, ge=0.1, le=60, description="Seconds after which a silent leader is replaced."
    )
