"""The systemd unit: its commands and settings exist, its times fit, and systemd accepts it."""

import re
import shlex
from pathlib import Path

import pytest
from tests.deploy.product import DEFAULTS, DEPLOY, LAST_BYTES, check, program, settings, understood

from surgetank.control.cli.output import USAGE
from surgetank.control.supervisor import Plan

FOLDER = DEPLOY / "systemd"
UNIT = (FOLDER / "surgetank.service").read_text("utf-8")
SPECIFIERS = {"%S": "/var/lib", "%t": "/run", "%d": "/run/credentials/surgetank.service"}


def values(text: str, key: str) -> list[str]:
    """What a unit sets `key` to, specifiers resolved."""
    found = re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)
    return [re.sub("%[Std]", lambda match: SPECIFIERS[match[0]], value) for value in found]


def only(key: str) -> str:
    (value,) = values(UNIT, key)
    return value


def environment(text: str) -> dict[str, str]:
    pairs = (value.partition("=") for value in values(text, "Environment"))
    return {name: value for name, _, value in pairs}


def test_its_command_and_settings_exist() -> None:
    program_path, *arguments = shlex.split(only("ExecStart"))
    assert program_path == "/opt/surgetank/bin/surgetank"
    understood(["surgetank", *arguments])
    config = settings(environment(UNIT), FOLDER / "surgetank.toml")
    assert config.backends[0].url == "http://127.0.0.1:8000"
    assert str(config.control.journal_path()) == f"/var/lib/{only('StateDirectory')}/journal.jsonl"
    assert str(config.engine.socket.parent) == f"/run/{only('RuntimeDirectory')}"


def test_the_variables_of_the_example_exist() -> None:
    lines = re.findall(r"^#(\w+)=(.*)$", (FOLDER / "surgetank.env.example").read_text(), re.M)
    assert len(lines) == 3
    settings(dict(lines), FOLDER / "surgetank.toml")


def test_the_drop_in_for_keys_points_where_the_credential_is() -> None:
    drop_in = (FOLDER / "keys.conf").read_text("utf-8")
    (credential,) = values(drop_in, "LoadCredential")
    keys_file = settings(environment(drop_in)).tenants.keys_file
    assert keys_file is not None
    assert keys_file.name == credential.partition(":")[0]


def test_it_waits_for_the_drain_and_kills_nobody_before() -> None:
    plan = Plan(engine=None, sidecar=[])
    for config in (DEFAULTS, settings({}, FOLDER / "surgetank.toml")):
        needed = config.control.drain_timeout + LAST_BYTES + plan.engine_stop_within
        assert float(only("TimeoutStopSec")) > needed
    assert only("KillSignal") == "SIGTERM"
    assert only("KillMode") == "mixed"  # else the engine would hear it together with the sidecar


def test_it_comes_back_unless_the_configuration_is_wrong() -> None:
    assert only("Restart") == "always"
    assert only("RestartPreventExitStatus") == str(USAGE)


def test_it_speaks_of_itself_and_is_watched_with_patience() -> None:
    assert only("Type") == "notify"
    assert only("NotifyAccess") == "main"
    looks = 3 * 2.0 + Plan(engine=None, sidecar=[]).poll  # three probes of two seconds at most
    assert float(only("WatchdogSec")) > 5 * looks


@pytest.fixture
def runnable(tmp_path: Path) -> Path:
    """The unit with a program that is there."""
    unit = tmp_path / "surgetank.service"
    unit.write_text(UNIT.replace("/opt/surgetank/bin/surgetank", "/bin/true"))
    for drop_in in ("keys.conf", "gpu.conf"):
        folder = tmp_path / "surgetank.service.d"
        folder.mkdir(exist_ok=True)
        (folder / drop_in).write_text((FOLDER / drop_in).read_text())
    return unit


def test_systemd_accepts_it_with_its_drop_ins(runnable: Path) -> None:
    assert check(program("systemd-analyze"), "verify", str(runnable)) == ""


def test_its_exposure_is_low() -> None:
    unit = str(FOLDER / "surgetank.service")
    said = check(program("systemd-analyze"), "security", "--offline=true", unit)
    exposure = re.search(r"Overall exposure level for surgetank.service: ([\d.]+)", said)
    assert exposure is not None
    assert float(exposure[1]) < 2.0
