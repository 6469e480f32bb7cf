"""The `surgetank` command: its table of contents. Each command imports what it needs when run."""

import click

from surgetank.control.cli.about import docs, version
from surgetank.control.cli.capacity import capacity
from surgetank.control.cli.client_config import client_config
from surgetank.control.cli.dashboards import dashboards
from surgetank.control.cli.demo import demo
from surgetank.control.cli.lab import lab
from surgetank.control.cli.limits import limits
from surgetank.control.cli.operate import drain, journal, status, undrain
from surgetank.control.cli.run import engine, run, sidecar

EPILOG = """\b
Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 service unreachable.
With --json, stdout carries JSON and nothing else; an error is {"error": {"code", "message"}}.

\b
The admin API is looked for at --url, else $SURGETANK_URL, else http://127.0.0.1:8402;
its token, where one is set, is read from $SURGETANK_ADMIN__TOKEN."""


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Overload control and observability in front of an LLM inference engine."""


for command in (
    run,
    engine,
    sidecar,
    status,
    limits,
    drain,
    undrain,
    journal,
    capacity,
    client_config,
    dashboards,
    demo,
    lab,
    version,
    docs,
):
    main.add_command(command)
