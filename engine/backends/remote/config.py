"""Settings of an engine behind an HTTP address."""

from pydantic import BaseModel, ConfigDict, Field, SecretStr


class BackendConfig(BaseModel):
    """The engine to protect, when it is not the embedded one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str | None = Field(
        default=None,
        pattern=r"^https?://[^/\s?#]+(/[^\s?#]*)?$",
        description="Its address, such as http://127.0.0.1:8000; null: the embedded engine.",
    )
    api_key: SecretStr = Field(
        default=SecretStr(""),
        description="Bearer token for it; empty: the client's own authorization goes through.",
    )
    max_num_seqs: int | None = Field(
        default=None,
        ge=1,
        le=65_536,
        description="Requests that it runs at once; null: what it says, else a guess by its kind.",
    )
    pass_priority: bool = Field(
        default=False,
        description="Tell it each request's class, in the body's field priority: 0 (critical) to 3 "
        "(sheddable). Only for vLLM with --scheduling-policy priority, which refuses them without, "
        "and SGLang with --enable-priority-scheduling --schedule-low-priority-values-first.",
    )
    context_length: int | None = Field(
        default=None,
        ge=1,
        le=100_000_000,
        description="Tokens of prompt and output together; null: what it says, else no check.",
    )
