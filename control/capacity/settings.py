"""What a plan is asked for: the device, the engine's settings, and the load, in allowed ranges."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from surgetank.control.capacity.units import CapacityError
from surgetank.control.reference import allowed

_PIB = 2**50


class PlanSettings(BaseModel):
    """The question; sizes in bytes, per device."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpu_memory: int | None = Field(None, gt=0, le=_PIB, description="memory of one device")
    kv_memory: int | None = Field(
        None, gt=0, le=_PIB, description="KV pool of one device; unset: what the rest leaves"
    )
    tp: int = Field(1, ge=1, le=1024, description="tensor-parallel degree: devices per replica")
    dtype: str = Field("auto", description="weights; auto: the checkpoint's own")
    kv_dtype: str = Field("auto", description="keys and values; auto: the model's 16 or 32 bits")
    context: int | None = Field(
        None, ge=1, le=10**8, description="tokens of a request, in and out; unset: 4096 or the most"
    )
    concurrency: int = Field(1, ge=1, le=10**6, description="requests held at once")
    utilization: float = Field(0.9, gt=0, le=1, description="share of memory the engine may take")
    block_size: int = Field(16, ge=1, le=4096, description="tokens of a KV block")
    batch_tokens: int = Field(2048, ge=1, le=10**7, description="tokens of one step")
    max_seqs: int = Field(256, ge=1, le=10**6, description="sequences of one step")
    overhead: int | None = Field(
        None, ge=0, le=_PIB, description="memory outside the engine's allocator; unset: estimated"
    )
    rps: float | None = Field(None, gt=0, le=10**9, description="first attempts per second")
    retries: tuple[int, ...] = Field((), description="retries of each layer, outermost first")
    retry_budget: float | None = Field(
        None, ge=0, le=10, description="retries allowed per first attempt"
    )


def read_settings(values: dict[str, Any]) -> PlanSettings:
    """Settings from named values; CapacityError names the first that is not allowed, and why."""
    try:
        settings = PlanSettings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        raise CapacityError(
            f"{key} is {first['input']!r}; allowed: {allowed(PlanSettings.model_fields[key])}"
        ) from error
    if any(not 0 <= count <= 100 for count in settings.retries):
        raise CapacityError(f"retries is {list(settings.retries)}; allowed: each 0 to 100")
    if settings.rps is None and (settings.retries or settings.retry_budget is not None):
        raise CapacityError("retries and retry_budget need rps, the first attempts per second")
    return settings
