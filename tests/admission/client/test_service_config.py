"""The printed service config makes a plain grpcio client retry, and says what it will not take."""

import json

import grpc
import pytest
from click.testing import CliRunner
from tests.admission.client.doubles import REFUSED, Answer, Service, served

from surgetank.admission.client.service_config import SERVICE, service_config
from surgetank.admission.doors.grpc.service import NAME
from surgetank.control.cli import main


def test_it_names_the_service_that_we_serve() -> None:
    assert SERVICE == NAME


def test_grpcio_retries_by_the_printed_config() -> None:
    printed = CliRunner().invoke(main, ["client-config", "grpc", "--json"])
    options = [("grpc.service_config", printed.stdout)]
    service = Service([Answer(code=REFUSED, pushback="50"), Answer([b"ok"])])
    with served(service) as address, grpc.insecure_channel(address, options) as channel:
        assert channel.unary_unary(f"/{SERVICE}/Unary", None, None)(b"", timeout=20) == b"ok"
    assert len(service.attempts) == 2


def test_the_command_prints_json_and_says_how_to_use_it() -> None:
    result = CliRunner().invoke(main, ["client-config", "grpc", "--attempts", "5"])
    config = json.loads(result.stdout)
    assert config == service_config(attempts=5)
    assert config["methodConfig"][0]["retryPolicy"]["maxAttempts"] == 5
    assert config["retryThrottling"] == {"maxTokens": 10, "tokenRatio": 0.1}
    assert "grpc.service_config" in result.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--attempts", "6"], "2<=x<=5"),
        (["--initial-backoff", "0.01"], "initial_backoff is 0.01; allowed: 0.05 to 60"),
    ],
)
def test_what_grpc_would_cut_or_hang_on_is_refused(args: list[str], said: str) -> None:
    result = CliRunner().invoke(main, ["client-config", "grpc", *args])
    assert result.exit_code == 2
    assert said in result.stderr
