"""The `surgetank` command: its table of contents. Each command imports what it needs when run."""

import click

from surgetank.control.cli.about import docs, version
from surgetank.control.cli.admission import admission
from surgetank.control.cli.backends import backends
from surgetank.control.cli.bench import bench
from surgetank.control.cli.capacity import capacity
from surgetank.control.cli.client_config import client_config
from surgetank.control.cli.dashboards import dashboards
from surgetank.control.cli.demo import demo
from surgetank.control.cli.diagnose import diagnose
from surgetank.control.cli.explain import explain
from surgetank.control.cli.fleet import fleet
from surgetank.control.cli.lab import lab
from surgetank.control.cli.limits import limits
from surgetank.control.cli.memory import memory
from surgetank.control.cli.operate import drain, journal, status, undrain
from surgetank.control.cli.output import Commands
from surgetank.control.cli.policy import policy
from surgetank.control.cli.queue import queue
from surgetank.control.cli.retries import retries, retry_lane
from surgetank.control.cli.run import engine, run, sidecar
from surgetank.control.cli.runbook import runbook
from surgetank.control.cli.shed import shed
from surgetank.control.cli.slo import slo
from surgetank.control.cli.steps import kv, stacks, steps
from surgetank.control.cli.top import top

EPILOG = """\b
Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 service unreachable.
With --json, stdout carries JSON and nothing else; an error is {"error": {"code", "message"}}.

\b
The admin API is looked for at --url, else $SURGETANK_URL, else http://127.0.0.1:8402;
its token, where one is set, is read from $SURGETANK_ADMIN__TOKEN."""


@click.group(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Overload control and observability in front of an LLM inference engine."""


for command in (
    run,
    engine,
    sidecar,
    status,
    top,
    diagnose,
    explain,
    queue,
    memory,
    retries,
    backends,
    fleet,
    admission,
    slo,
    limits,
    shed,
    retry_lane,
    policy,
    drain,
    undrain,
    journal,
    runbook,
    steps,
    kv,
    stacks,
    capacity,
    client_config,
    dashboards,
    demo,
    lab,
    bench,
    version,
    docs,
):
    main.add_command(command)
