"""The targets against which each request is judged good or bad."""

from pydantic import BaseModel, ConfigDict, Field


class SloTargets(BaseModel):
    """What a client may expect of an admitted request."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ttft: float = Field(
        default=1.0, gt=0, le=600, description="Target for the time to first token, seconds."
    )
    tpot: float = Field(
        default=0.1, gt=0, le=60, description="Target for the time per output token, seconds."
    )

    def named(self, slo: str) -> float:
        """The target that a metric's `slo` names: `ttft` or `tpot`."""
        return {"ttft": self.ttft, "tpot": self.tpot}[slo]
