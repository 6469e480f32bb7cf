"""Settings of the shared state: where it is kept, how long a lease lasts, what tenants may use."""

from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator


class TenantQuota(BaseModel):
    """What one tenant may use over all sidecars together; null: no such limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests_per_minute: float | None = Field(
        default=None, gt=0, le=1e8, description="Requests a minute."
    )
    tokens_per_minute: float | None = Field(
        default=None, gt=0, le=1e11, description="Tokens a minute, prompts and outputs together."
    )
    concurrency: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Requests at a time, waiting or running."
    )


FREE = TenantQuota()


class LeasesConfig(BaseModel):
    """Quotas, and the Redis over which sidecars share them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: SecretStr | None = Field(
        default=None,
        description="redis://, rediss:// or unix:// address; null: this sidecar is the only one.",
    )
    prefix: str = Field(
        default="surgetank",
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="Start of every key, in braces; the same for sidecars that share.",
    )
    sidecars: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="How many there are at least: what one that meets no Redis divides by.",
    )
    timeout: float = Field(
        default=0.02, ge=0.005, le=1, description="Seconds that Redis has to answer. Nobody waits."
    )
    term: float = Field(
        default=1.0, ge=0.1, le=10, description="Seconds that a lease lasts; renewed thrice in it."
    )
    hold: float = Field(
        default=10.0,
        ge=0,
        le=60,
        description="Seconds without Redis that a sidecar goes on with its last share.",
    )
    forget: float = Field(
        default=60.0,
        ge=1,
        le=3600,
        description="Seconds after which a silent sidecar is taken for gone.",
    )
    burst: float = Field(
        default=10.0, ge=1, le=60, description="Seconds' worth of a rate that may be used at once."
    )
    retry_floor: float = Field(
        default=0.05,
        ge=0,
        le=100,
        description="Engine-seconds a second for retries, beyond what first attempts earn.",
    )
    default: TenantQuota = Field(default=FREE, description="For tenants that are not named.")
    tenants: dict[str, TenantQuota] = Field(
        default={},
        description="By tenant, as in default, which it replaces as a whole.",
    )

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: SecretStr | None) -> SecretStr | None:
        """What a Link takes; the address may hold a password, so no message may hold it."""
        if url is None:
            return None
        parts = urlsplit(url.get_secret_value())
        try:
            whole = parts.path if parts.scheme == "unix" else parts.hostname and parts.port != 0
        except ValueError:  # a port that is no number
            whole = False
        if parts.scheme not in ("redis", "rediss", "unix") or not whole:
            raise ValueError("redis://HOST:PORT, rediss://HOST:PORT or unix://PATH")
        return url

    def quota(self, tenant: str) -> TenantQuota:
        """What that tenant may use."""
        return self.tenants.get(tenant, self.default)
