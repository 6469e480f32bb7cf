"""Where traces go and how many: our own settings first, then OpenTelemetry's usual variables."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from surgetank import __version__
from surgetank.telemetry import conventions as names

log = logging.getLogger(__name__)

TRACES_PATH = "/v1/traces"
HTTP, GRPC = "http/protobuf", "grpc"
_NAME = re.compile(r"[0-9a-z_.-]+", re.ASCII)  # of a header, in gRPC too


class TracingConfig(BaseModel):
    """Traces of requests, sent to an OpenTelemetry collector by OTLP."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    endpoint: str = Field(
        default="",
        pattern=r"^(https?://[^\s/]+\S*)?$",
        description="The collector, such as http://127.0.0.1:4318; /v1/traces is appended to a URL "
        "without a path, unless the protocol is grpc. Empty: as OTEL_EXPORTER_OTLP_ENDPOINT says; "
        "without it nothing is traced.",
    )
    protocol: str = Field(
        default="",
        pattern=r"^(http/protobuf|grpc)?$",
        description="How the collector is spoken to; one listens for HTTP on port 4318, for gRPC "
        "on 4317. Empty: as OTEL_EXPORTER_OTLP_PROTOCOL says; without it http/protobuf.",
    )
    headers: SecretStr = Field(
        default=SecretStr(""),
        description="Headers for the collector: name=value, with commas between them, values "
        "percent-encoded. They go before those of OTEL_EXPORTER_OTLP_HEADERS.",
    )
    sample: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Share of the ordinary traces that is kept. Refusals, errors, retries, "
        "requests past a target, and traces that the caller keeps are kept always.",
    )
    service: str = Field(
        default="surgetank",
        min_length=1,
        max_length=255,
        description="service.name of the traces, unless OTEL_SERVICE_NAME says another.",
    )
    tenants: bool = Field(default=False, description="Whether spans name the request's tenant.")
    queue: int = Field(
        default=2048,
        ge=1,
        le=1_000_000,
        description="Finished requests that may wait for the collector; more are dropped, counted.",
    )
    timeout: float = Field(
        default=5.0,
        ge=0.1,
        le=60,
        description="Seconds within which a batch must be with the collector, repeated tries and "
        "the pauses between them included.",
    )


@dataclass(frozen=True, slots=True)
class Target:
    """A collector, and what every batch for it says of this process."""

    url: str
    protocol: str
    headers: dict[str, str]
    resource: Resource


def target(config: TracingConfig, env: Mapping[str, str]) -> Target | None:
    """Where to send traces; None: nowhere. `env` is the process's: the SDK reads that by itself."""
    protocol = config.protocol or _of_traces(env, "PROTOCOL") or HTTP
    url = _url(config, env, protocol)
    if not url or env.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    if protocol not in (HTTP, GRPC):
        log.warning("nothing is traced: OTLP protocol %r; allowed: %s, %s", protocol, HTTP, GRPC)
        return None
    if protocol == HTTP and not url.startswith(("http://", "https://")):
        log.warning("nothing is traced: %r is no http(s) URL", url)
        return None
    headers = _headers(_of_traces(env, "HEADERS")) | _headers(config.headers.get_secret_value())
    return Target(url, protocol, headers, _resource(config))


def _url(config: TracingConfig, env: Mapping[str, str], protocol: str) -> str:
    """Over HTTP the variable of all signals is the base of an address, that of the traces a whole
    one; over gRPC both are a whole one."""
    path = TRACES_PATH if protocol == HTTP else ""
    if config.endpoint:
        has_path = urlsplit(config.endpoint).path.strip("/")
        return config.endpoint if has_path else config.endpoint.rstrip("/") + path
    base = env.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").rstrip("/")
    return env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or (base and base + path)


def _of_traces(env: Mapping[str, str], what: str) -> str:
    own = env.get(f"OTEL_EXPORTER_OTLP_TRACES_{what}")
    return own or env.get(f"OTEL_EXPORTER_OTLP_{what}", "")


def _headers(text: str) -> dict[str, str]:
    """`a=1,b=two%20words` as W3C Baggage writes it. What could not be sent is left out, and only
    that it was is told: OpenTelemetry's parser and both exporters would log the secret itself."""
    said = [each for each in text.split(",") if each.strip()]
    found = {}
    for name, equals, value in (each.partition("=") for each in said):
        name, value = name.strip().lower(), unquote(value).strip()
        if equals and _NAME.fullmatch(name) and value.isascii() and value.isprintable():
            found[name] = value
    if len(found) < len(said):
        lost = len(said) - len(found)
        log.warning("headers for the collector: %d of %d malformed or twice", lost, len(said))
    return found


def _resource(config: TracingConfig) -> Resource:
    """The SDK's resource, ours, and over both what OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME
    say; Resource.create alone would let ours win."""
    ours = {names.SERVICE_NAME: config.service, names.SERVICE_VERSION: __version__}
    return Resource.create(ours, names.SCHEMA_URL).merge(OTELResourceDetector().detect())
