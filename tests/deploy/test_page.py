"""docs/deploy.md: its commands, files, ports and figures are true."""

import re

from tests.deploy.product import (
    DEFAULTS,
    DEPLOY,
    LAST_BYTES,
    ROOT,
    VERSION,
    surgetank_lines,
    understood,
)

from surgetank.control.supervisor import Plan

PAGE = (ROOT / "docs/deploy.md").read_text("utf-8")


def test_its_commands_exist() -> None:
    quoted = re.findall(r"`([^`]+)`|^ {4}(\S.*)$", PAGE, re.MULTILINE)
    commands = [line for pair in quoted for text in pair for line in surgetank_lines(text)]
    assert ["surgetank", "status"] in commands
    assert ["surgetank", "dashboards", "build"] in commands
    for command in commands:
        if command not in (["surgetank", "drain"], ["surgetank", "run"]):  # named, not called
            understood(command)


def test_its_files_exist() -> None:
    files = set(re.findall(r"\bdeploy/[\w./]+", PAGE))
    assert len(files) >= 8
    for file in files:
        assert (ROOT / file.rstrip(".")).exists(), file
    for name in re.findall(r"`([\w.]+\.(?:conf|example|yaml))`", PAGE):
        assert list(DEPLOY.rglob(name)), name


def test_its_ports_and_versions_are_those_of_the_product() -> None:
    ports = [int(port) for port in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)]
    admin, engine = DEFAULTS.admin.port, DEFAULTS.engine.metrics_port
    assert ports == [DEFAULTS.http.port, DEFAULTS.grpc.port, admin, engine]
    assert set(re.findall(r"surgetank(?:-engine)?:(\d\S+)", PAGE)) == {VERSION}


def test_what_a_longer_drain_needs_is_what_the_supervisor_takes() -> None:
    (more,) = re.findall(r"`TimeoutStopSec`, which is (\d+) s more", PAGE)
    assert float(more) == LAST_BYTES + Plan(engine=None, sidecar=[]).engine_stop_within
