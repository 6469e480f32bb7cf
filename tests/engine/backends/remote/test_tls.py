"""Engines behind TLS, by HTTP and by gRPC: whose certificate is taken, and whose is not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from pydantic import ValidationError
from tests.engine.backends.remote.certificate import NAME, Certificate, make, missing
from tests.engine.backends.remote.played_server import WAIT
from tests.engine.backends.remote.rig import Answer, PlayedProbe, Seen

from surgetank.engine.backends.remote.api import Forward
from surgetank.engine.backends.remote.backend import RemoteBackend
from surgetank.engine.backends.remote.config import BackendConfig
from surgetank.engine.backends.remote.discovery import Discovery
from surgetank.engine.backends.remote.found import NotFound
from surgetank.engine.backends.remote.grpc_engine import GrpcEngine
from surgetank.engine.protocols import vllm_engine_pb2 as pb
from surgetank.telemetry.clock import ManualClock

needs_openssl = pytest.mark.skipif(bool(missing()), reason=missing())
MODELS = b'{"data": [{"id": "m"}]}'
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(MODELS), MODELS)
ASK = Forward("/v1/completions", (), b"{}", 1)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make(tmp_path_factory.mktemp("tls"))


@asynccontextmanager
async def http_engine(certificate: Certificate) -> AsyncIterator[int]:
    """It says the same to everything; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):  # its client hangs up
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(ANSWER)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=certificate.server)
    async with server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def grpc_engine(certificate: Certificate) -> AsyncIterator[int]:
    """It is well; its port."""

    async def healthy(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield pb.HealthCheckResponse(healthy=True).SerializeToString()

    server = grpc.aio.server()
    name = pb.DESCRIPTOR.services_by_name["VllmEngine"].full_name
    methods = {"HealthCheck": grpc.unary_stream_rpc_method_handler(healthy)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, methods),))
    pair = certificate.key.read_bytes(), certificate.certificate.read_bytes()
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


def known(certificate: Certificate, url: str, **changes: Any) -> BackendConfig:
    """An engine of that name whose certificate is believed."""
    settings = {"ca_file": certificate.certificate, "server_name": NAME}
    return BackendConfig.model_validate({"url": url, **settings, **changes})


WRONG = [{"ca_file": None}, {"server_name": None}, {"server_name": "other.test"}]


@asynccontextmanager
async def backend(config: BackendConfig, probe: Discovery | PlayedProbe) -> AsyncIterator[Answer]:
    """An engine as the probe finds it, and what it answers to ASK."""
    backend, seen, answer = RemoteBackend(config, ManualClock(), probe), Seen(), Answer()
    backend.watch(seen)
    backend.start()
    await seen.until(1)
    backend.forward(1, ASK, answer)
    yield answer
    await backend.aclose()


@needs_openssl
async def test_over_https_it_is_found_and_asked(certificate: Certificate) -> None:
    async with http_engine(certificate) as port:
        config = known(certificate, f"https://127.0.0.1:{port}")
        async with backend(config, Discovery(config, ManualClock())) as answer:
            await answer.until(lambda answer: answer.usage)
    assert answer.data == MODELS


@needs_openssl
@pytest.mark.parametrize("wrong", WRONG)
async def test_over_https_another_certificate_is_not_taken(
    certificate: Certificate, wrong: dict[str, Any]
) -> None:
    async with http_engine(certificate) as port:
        config = known(certificate, f"https://127.0.0.1:{port}", **wrong)
        probe = Discovery(config, ManualClock())
        with pytest.raises(NotFound, match="certificate verify failed"):
            await probe.find()
        await probe.aclose()
        async with backend(config, PlayedProbe()) as answer:
            await answer.until(lambda answer: answer.lost)
    assert answer.lost == "the engine cannot be reached: no connection"


@needs_openssl
async def test_over_grpcs_it_is_asked(certificate: Certificate) -> None:
    async with grpc_engine(certificate) as port:
        engine = GrpcEngine(known(certificate, f"grpcs://127.0.0.1:{port}"), ManualClock())
        told = [message async for message in engine.describe("HealthCheck", b"", WAIT)]
        await engine.aclose()
    assert [pb.HealthCheckResponse.FromString(message).healthy for message in told] == [True]


@needs_openssl
@pytest.mark.parametrize("wrong", WRONG)
async def test_over_grpcs_another_certificate_is_not_taken(
    certificate: Certificate, wrong: dict[str, Any]
) -> None:
    async with grpc_engine(certificate) as port:
        config = known(certificate, f"grpcs://127.0.0.1:{port}", **wrong)
        engine = GrpcEngine(config, ManualClock())
        with pytest.raises(NotFound, match=r"HealthCheck: failed to connect to all addresses"):
            await engine.find()
        await engine.aclose()


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://a", "a:80"),
        ("https://a", "a:443"),
        ("grpc://a", "a:50051"),
        ("grpcs://a", "a:443"),
        ("grpcs://[::1]:7", "[::1]:7"),
    ],
)
def test_each_scheme_has_its_port(url: str, place: str) -> None:
    config = BackendConfig(url=url)
    assert config.name == place
    assert config.speaks_grpc == url.startswith("grpc")
    assert (config.tls is not None) == url.startswith(("https", "grpcs"))


@pytest.mark.parametrize("url", ["http://a", "grpc://a"])
def test_without_tls_no_certificate_is_looked_for(url: str) -> None:
    with pytest.raises(ValidationError, match=r"has no TLS; allowed: with https://, grpcs://"):
        BackendConfig(url=url, server_name=NAME)


def test_a_file_without_certificates_is_refused(tmp_path: Path) -> None:
    for path, text in ((tmp_path / "none", None), (tmp_path / "other", "no PEM")):
        if text is not None:
            path.write_text(text)
        with pytest.raises(ValidationError, match=r"ca_file\n.*no certificates can be read there"):
            BackendConfig(url="https://a", ca_file=path)
