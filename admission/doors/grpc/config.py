"""The gRPC door's settings and the transport options that follow from them."""

from pydantic import BaseModel, ConfigDict, Field


class GrpcConfig(BaseModel):
    """Where the door listens, and how much one client may hold."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(8401, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    max_message_bytes: int = Field(
        8 << 20,
        ge=1024,
        le=1 << 30,
        description="Largest request message in bytes; a larger one is refused as invalid.",
    )
    max_metadata_bytes: int = Field(
        16 << 10, ge=1024, le=1 << 20, description="Largest set of request headers in bytes."
    )
    max_calls_per_connection: int = Field(
        1024,
        ge=1,
        le=1 << 20,
        description="Open calls on one connection; further ones wait unsent in the client.",
    )
    max_streams: int = Field(
        1024, ge=1, le=1 << 20, description="Open ModelStreamInfer streams, all clients together."
    )
    max_requests_per_stream: int = Field(
        128, ge=1, le=1 << 20, description="Requests in flight on one ModelStreamInfer stream."
    )
    max_unread_tokens: int = Field(
        4096,
        ge=1,
        le=1 << 20,
        description="Tokens that may wait for a slow reader of a stream before it is cut off.",
    )
    catch_up_timeout: float = Field(
        10.0,
        gt=0,
        le=600,
        description="Seconds that another engine's stream is held back for a slow reader, who is "
        "then cut off.",
    )
    default_max_tokens: int = Field(
        512, ge=1, description="Output tokens of a Generate request that names no maximum."
    )
    min_ping_interval: float = Field(
        5.0,
        ge=0.01,
        le=3600,
        description="Seconds between keepalive pings below which a silent client is sent away.",
    )
    keepalive_interval: float = Field(
        60.0, ge=1, le=7200, description="Seconds of silence after which the client is pinged."
    )
    keepalive_timeout: float = Field(
        20.0,
        ge=0.1,
        le=600,
        description="Seconds a ping may go unanswered; then the client is gone.",
    )
    handshake_timeout: float = Field(
        5.0, ge=0.1, le=600, description="Seconds a new connection may take to speak HTTP/2."
    )
    health_interval: float = Field(
        0.1, ge=0.01, le=60, description="Seconds between looks at readiness for health watchers."
    )
    load_trailers: bool = Field(
        False, description="End each inference with our load, in ORCA's endpoint-load-metrics."
    )
    channelz: bool = Field(True, description="Serve channelz: connections, sockets, call counts.")

    def channel_options(self) -> list[tuple[str, int]]:
        """grpcio's channel arguments for the server (grpc/impl/channel_arg_names.h)."""
        return [
            ("grpc.so_reuseport", 0),  # a second process on our port must fail, not share it
            # Twice the limit: what is a little too large still reaches us and gets a reason.
            ("grpc.max_receive_message_length", 2 * self.max_message_bytes),
            ("grpc.max_metadata_size", self.max_metadata_bytes),
            ("grpc.absolute_max_metadata_size", self.max_metadata_bytes),
            ("grpc.max_concurrent_streams", self.max_calls_per_connection),
            ("grpc.keepalive_permit_without_calls", 1),
            # Long prefill is silence on the wire; without this, pings in it earn a GOAWAY.
            ("grpc.http2.min_ping_interval_without_data_ms", round(1000 * self.min_ping_interval)),
            ("grpc.keepalive_time_ms", round(1000 * self.keepalive_interval)),
            ("grpc.keepalive_timeout_ms", round(1000 * self.keepalive_timeout)),
            ("grpc.server_handshake_timeout_ms", round(1000 * self.handshake_timeout)),
            ("grpc.enable_channelz", int(self.channelz)),
        ]
