"""Where traces go: our own setting, else OpenTelemetry's variables, else nowhere."""

import logging

import pytest
from pydantic import SecretStr, ValidationError

from surgetank import __version__
from surgetank.telemetry.tracing_config import GRPC, HTTP, TracingConfig, target

BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"
OWN = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"


@pytest.mark.parametrize(
    ("endpoint", "env", "url"),
    [
        ("http://c:4318", {}, "http://c:4318/v1/traces"),
        ("http://c:4318/", {}, "http://c:4318/v1/traces"),
        ("https://c/otlp/v1/traces", {}, "https://c/otlp/v1/traces"),
        ("http://c:4318", {OWN: "http://other/x", BASE: "http://other"}, "http://c:4318/v1/traces"),
        ("", {BASE: "http://c:4318"}, "http://c:4318/v1/traces"),
        ("", {BASE: "http://c/base/"}, "http://c/base/v1/traces"),
        ("", {BASE: "http://c:4318", OWN: "http://d/x"}, "http://d/x"),
    ],
)
def test_the_address(endpoint: str, env: dict[str, str], url: str) -> None:
    found = target(TracingConfig(endpoint=endpoint), env)
    assert found is not None
    assert (found.url, found.protocol, found.headers) == (url, HTTP, {})


@pytest.mark.parametrize(
    ("config", "env", "url"),
    [
        (TracingConfig(protocol="grpc", endpoint="http://c:4317"), {}, "http://c:4317"),
        (TracingConfig(protocol="grpc"), {BASE: "http://c:4317/"}, "http://c:4317"),
        (TracingConfig(), {BASE: "c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "c:4317"),
        (TracingConfig(), {OWN: "c:1", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, "c:1"),
    ],
)
def test_the_address_over_grpc(config: TracingConfig, env: dict[str, str], url: str) -> None:
    found = target(config, env)
    assert found is not None
    assert (found.url, found.protocol) == (url, GRPC)


@pytest.mark.parametrize(
    "env",
    [
        {},
        {BASE: ""},
        {BASE: "http://c:4318", "OTEL_SDK_DISABLED": "true"},
        {BASE: "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
        {BASE: "c:4317"},
    ],
)
def test_nowhere(env: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert target(TracingConfig(), env) is None
    odd = any(value.endswith("4317") for value in env.values())
    assert [record.message.startswith("nothing is traced: ") for record in caplog.records] == (
        [True] if odd else []
    )


def test_headers(caplog: pytest.LogCaptureFixture) -> None:
    said = "Authorization=Bearer%20x, a=b=c,odd,=secret,d=secret%0a.,e=\u00e9,f g=secret"
    found = target(TracingConfig(endpoint="http://c", headers=SecretStr(said)), {})
    assert found is not None
    assert found.headers == {"authorization": "Bearer x", "a": "b=c"}
    assert caplog.messages == ["headers for the collector: 5 of 7 malformed or twice"]


def test_headers_of_both() -> None:
    env = {
        "OTEL_EXPORTER_OTLP_HEADERS": "a=of-all",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "a=theirs,b=theirs%21",
    }
    found = target(TracingConfig(endpoint="http://c", headers=SecretStr("a=ours")), env)
    assert found is not None
    assert found.headers == {"a": "ours", "b": "theirs!"}


@pytest.mark.parametrize(
    ("env", "service"),
    [
        ({}, "ours"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "zone=a,service.name=gate"}, "gate"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=gate", "OTEL_SERVICE_NAME": "s"}, "s"),
    ],
)
def test_names(env: dict[str, str], service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    found = target(TracingConfig(endpoint="http://c", service="ours"), env)
    assert found is not None
    said = found.resource.attributes
    assert said["service.name"] == service
    assert said["service.version"] == __version__
    assert said.get("zone") == ("a" if "zone" in str(env) else None)


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(ValidationError, match="endpoint"):
        TracingConfig(endpoint="collector:4317")
