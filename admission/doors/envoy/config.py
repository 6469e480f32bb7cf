"""The settings of the services that Envoy asks, and of the page that nginx asks."""

from pydantic import BaseModel, ConfigDict, Field


class EnvoyConfig(BaseModel):
    """External processing and rate limit service over gRPC, for an Envoy before `backends`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: int | None = Field(
        None, ge=0, le=65535, description="Port to listen on; 0 takes any free one; null: none."
    )
    max_message_bytes: int = Field(
        9 << 20, ge=1024, le=1 << 30, description="Largest message, which is a request's body."
    )
    load_header: bool = Field(
        False, description="Tell each answer's reader our load in ORCA's endpoint-load-metrics."
    )
    picks_endpoint: bool = Field(
        False, description="Name the engine's address in x-gateway-destination-endpoint."
    )


class AdmitConfig(BaseModel):
    """A page that says whether a request may go on, for nginx's auth_request."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: int | None = Field(
        None, ge=0, le=65535, description="Port to listen on; 0 takes any free one; null: none."
    )
    lease: float = Field(
        300.0, gt=0, le=86_400, description="Seconds after which an unreleased slot is taken back."
    )
