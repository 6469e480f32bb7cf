"""What can be configured on the HTTP door, with its limits."""

from pydantic import BaseModel, ConfigDict, Field

KIB = 1024
MIB = 1024 * KIB


class HttpConfig(BaseModel):
    """The HTTP door's listener, and what any one client may take of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(8400, ge=0, le=65535, description="Port to listen on; 0 takes any free one.")
    max_connections: int = Field(
        2048, ge=1, le=1_000_000, description="Connections served; those beyond are turned away."
    )
    max_connections_per_peer: int | None = Field(
        None, ge=1, description="The same for one address; null leaves it to max_connections."
    )
    max_header_bytes: int = Field(
        16 * KIB, ge=1 * KIB, le=1 * MIB, description="Request line and headers together."
    )
    max_body_bytes: int = Field(
        8 * MIB, ge=1 * KIB, le=256 * MIB, description="One request's body."
    )
    max_buffered_bytes: int = Field(
        256 * MIB, ge=1 * KIB, description="Half-received bodies of all connections together."
    )
    header_timeout: float = Field(
        10.0, gt=0, le=600, description="Seconds from a request's first byte to its last header."
    )
    body_timeout: float = Field(
        30.0, gt=0, le=3600, description="Seconds from the headers to the body's last byte."
    )
    idle_timeout: float = Field(
        75.0, gt=0, le=86_400, description="Seconds that a connection may wait between requests."
    )
    linger_timeout: float = Field(
        2.0, gt=0, le=60, description="Seconds for which the rest of a refused body is read away."
    )
    write_buffer_bytes: int = Field(
        64 * KIB, ge=1 * KIB, description="Unsent bytes from which a client counts as slow."
    )
    max_write_buffer_bytes: int = Field(
        1 * MIB, ge=1 * KIB, description="Unsent bytes of a stream at which its client is cut off."
    )
    slow_reader_timeout: float = Field(
        10.0,
        gt=0,
        le=600,
        description="Seconds in which a slow client must take write_buffer_bytes, or is cut off.",
    )
    inline_body_bytes: int = Field(
        8 * KIB, ge=0, description="Longer bodies are parsed and tokenised off the event loop."
    )
    default_max_tokens: int = Field(
        512, ge=1, description="Output tokens of a chat request that names no maximum."
    )
    gateway_metrics: bool = Field(
        False, description="Show vLLM's three load metrics too, for a gateway's endpoint picker."
    )
    load_header: bool = Field(
        False, description="Tell each answer's reader our load in ORCA's endpoint-load-metrics."
    )
