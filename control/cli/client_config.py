"""`surgetank client-config`: what a client's own library needs to be told to retry well."""

import json

import click

from surgetank.admission.client.service_config import MAX_ATTEMPTS, SERVICE, service_config
from surgetank.control.cli.output import USAGE, fail, json_option


@click.group("client-config")
def client_config() -> None:
    """Print settings for clients of this service."""


@client_config.command()
@click.option("--service", default=SERVICE, show_default=True, help="The gRPC service's full name.")
@click.option(
    "--attempts",
    type=click.IntRange(2, MAX_ATTEMPTS),
    default=3,
    show_default=True,
    help="Attempts of a call, the first one included.",
)
@click.option(
    "--initial-backoff", type=float, default=0.2, show_default=True, help="Seconds; at least 0.05."
)
@click.option("--max-backoff", type=float, default=10.0, show_default=True, help="Seconds.")
@json_option
def grpc(
    service: str, attempts: int, initial_backoff: float, max_backoff: float, as_json: bool
) -> None:
    """A gRPC service config with retries and throttling, as JSON on stdout."""
    try:
        config = service_config(
            service=service,
            attempts=attempts,
            initial_backoff=initial_backoff,
            max_backoff=max_backoff,
        )
    except ValueError as error:
        fail(as_json, USAGE, "usage", str(error))
    click.echo(json.dumps(config, indent=2))
    if not as_json:
        how = 'pass it to grpc: options=[("grpc.service_config", text), ("grpc.enable_retries", 1)]'
        click.echo(how, err=True)
