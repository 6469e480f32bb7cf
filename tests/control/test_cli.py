"""The command line over a running admin API: tables, JSON, exit codes."""

import json
import socket

import pytest
from click.testing import CliRunner
from tests.control.asking import Ask, as_json
from tests.control.service import PlayedService

from surgetank import __version__
from surgetank.control.cli import main


def test_status_for_people_and_for_scripts(service: PlayedService, ask: Ask) -> None:
    service.rig.send()
    table = ask("status")
    assert table.exit_code == 0
    lines = [line.split() for line in table.stdout.splitlines()]
    assert ["state", "ready"] in lines
    assert ["in", "flight", "1", "(0", "queued)"] in lines
    assert as_json(ask("status", "--json"))["requests"]["received"] == 1


def test_an_override_is_set_shown_and_ended(service: PlayedService, ask: Ask) -> None:
    change = ("limits", "set", "queue_requests", "50", "--why", "burst", "--who", "ada")
    said = ask(*change, "--ttl", "10m", "--dry-run")
    assert said.stdout == "would change queue_requests: 256 -> 50 for 10 min\n"
    assert ask(*change, "--ttl", "90").stdout == "queue_requests: 256 -> 50 for 90 s\n"
    shown = ask("limits", "show").stdout
    assert "ada: burst (90 s left, then 256)" in shown
    assert next(line.split() for line in shown.splitlines() if "queue_wait" in line)[-2:] == [
        "seconds",
        "-",
    ]
    limits = as_json(ask("limits", "show", "--json"))["limits"]
    assert limits[0]["override"]["who"] == "ada"
    assert "override queue_requests" in ask("status").stdout
    done = ask("limits", "clear", "queue_requests", "--why", "over", "--who", "bob")
    assert done.stdout == "queue_requests: 50 -> 256\n"
    entries = as_json(ask("journal", "--json"))["entries"]
    assert [(entry["who"], entry["why"]) for entry in entries] == [
        ("ada", "burst"),
        ("bob", "over"),
    ]
    assert "50 -> 256" in ask("journal").stdout


def test_a_dry_run_shows_and_changes_nothing(service: PlayedService, ask: Ask) -> None:
    said = ask("drain", "--why", "deploy", "--dry-run").stdout
    assert said == "would change draining: no -> yes\n"
    ask("limits", "set", "max_n", "2", "--why", "x", "--ttl", "1m")
    said = ask("limits", "clear", "max_n", "--why", "x", "--dry-run").stdout
    assert said == "would change max_n: 2 -> 16\n"
    assert ask("undrain", "--why", "x", "--dry-run").stdout.startswith("would change draining")
    assert service.turns == []
    assert [entry.what for entry in service.journal.recent()] == ["max_n"]


def test_drain_and_undrain(service: PlayedService, ask: Ask) -> None:
    assert ask("drain", "--why", "deploy").stdout == "draining: no -> yes\n"
    assert as_json(ask("undrain", "--why", "done", "--json"))["after"] is False
    assert service.turns == [True, False]


def test_who_is_the_login_name_unless_said(service: PlayedService, ask: Ask) -> None:
    import getpass

    ask("drain", "--why", "deploy")
    assert service.journal.recent()[0].who == getpass.getuser()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("limits", "set", "nothing", "1", "--ttl", "1m", "--why", "x"), "no limit 'nothing'"),
        (("limits", "set", "max_n", "0", "--ttl", "1m", "--why", "x"), "allowed: 1 to 128"),
        (("limits", "set", "max_n", "2", "--why", "x"), "Missing option '--ttl'"),
        (("limits", "set", "max_n", "2", "--ttl", "1m"), "Missing option '--why'"),
        (("limits", "set", "max_n", "2", "--ttl", "soon", "--why", "x"), "allowed: 90, 90s, 10m"),
        (("limits", "set", "max_n", "2", "--ttl", "0", "--why", "x"), "allowed: 90, 90s, 10m"),
        (("limits", "set", "max_n", "nan", "--ttl", "1m", "--why", "x"), "value: "),
        (("drain",), "Missing option '--why'"),
        (("nonsense",), "No such command"),
    ],
)
def test_wrong_usage_ends_with_2(ask: Ask, arguments: tuple[str, ...], says: str) -> None:
    result = ask(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stdout == ""


def test_an_error_is_json_on_stdout_when_json_was_asked_for(ask: Ask) -> None:
    result = ask("limits", "set", "max_n", "0", "--ttl", "1m", "--why", "x", "--json")
    assert result.exit_code == 2
    error = json.loads(result.stdout)["error"]
    assert error["code"] == "invalid"
    assert error["message"].startswith("max_n: 0 choices")
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("limits", "set", "max_n", "2", "--json", "--why", "x"), "Missing option '--ttl'."),
        (("limits", "set", "max_n", "some", "--ttl", "1m", "--why", "x", "--json"), "50%, max"),
        (("status", "--bogus", "--json"), "No such option '--bogus'."),
        (("nonsense", "--json"), "No such command 'nonsense'."),
        (("--json", "status"), "No such option '--json'."),
        (("limits", "--json", "show"), "No such option '--json'."),
    ],
)
def test_wrong_usage_is_json_when_json_was_asked_for(arguments: tuple[str, ...], says: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    error = json.loads(result.stdout)["error"]
    assert error["code"] == "usage"
    assert says in error["message"]
    assert result.stderr == ""


def test_no_service_ends_with_3() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    result = CliRunner().invoke(main, ["status", "--url", f"http://127.0.0.1:{port}"])
    assert result.exit_code == 3
    assert f"no admin API at http://127.0.0.1:{port}" in result.stderr
    answer = CliRunner().invoke(main, ["status", "--json", "--url", f"http://127.0.0.1:{port}"])
    assert answer.exit_code == 3
    assert json.loads(answer.stdout)["error"]["code"] == "unreachable"


def test_an_address_that_is_none_ends_with_3() -> None:
    assert CliRunner().invoke(main, ["status", "--url", "not-an-address"]).exit_code == 3


def test_version() -> None:
    assert CliRunner().invoke(main, ["version"]).stdout.startswith(f"surgetank {__version__} ")
    assert as_json(CliRunner().invoke(main, ["version", "--json"]))["version"] == __version__


def test_help_documents_the_exit_codes() -> None:
    text = CliRunner().invoke(main, ["--help"]).stdout
    assert "0 done, 1 failed, 2 wrong usage or configuration, 3 service unreachable" in text
