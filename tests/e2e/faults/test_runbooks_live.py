"""Every runbook's commands do what they say on a running product; those that look show something.

Here nothing is wrong, so that all runbooks can be followed to their end; test_faults_live.py
follows them in the fault that they are for.
"""

import shlex
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from tests.e2e.faults.plant import commands
from tests.e2e.faults.small_model import write_small_model
from tests.e2e.faults.traffic import Crowd, Habits
from tests.e2e.running import Running, until

from surgetank.control.cli import main

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

# They need several engines: tests/e2e/test_several_engines.py
ELSEWHERE = {"BackendLeftOut", "BackendRestarting"}
RUNBOOKS = sorted(
    {
        each.name.removesuffix(".md")
        for each in (files("surgetank.dashboards") / "runbooks").iterdir()
    }
    - ELSEWHERE
)

STARTS = "surgetank run"  # another product, which would not end by itself
NOTHING: tuple[list[tuple[str, float]], bool] = ([], False)


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Engine and sidecar, with some traffic."""
    folder = tmp_path_factory.mktemp("followed")
    with Running(folder, f"--set=engine.model={write_small_model(folder)}") as running:
        running.wait_for("ready")
        with Crowd(running.http, 3, Habits(pause=0.2)) as guests:
            until(lambda: guests.codes[200] > 10, "the guests are served")
            yield running


@pytest.fixture
def shell(product: Running, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """Where the product's folder is the current one, and its files are built."""
    monkeypatch.chdir(product.folder)
    monkeypatch.setenv("SURGETANK_URL", product.listeners["admin"])
    runner = CliRunner()
    runner.invoke(main, ["dashboards", "build"], catch_exceptions=False)
    return runner


def run(shell: CliRunner, command: str) -> str:
    """A command as it stands in the runbook; it must succeed and say something."""
    _, *words = shlex.split(command)
    done = shell.invoke(main, words, input="", catch_exceptions=False)
    assert done.exit_code == 0, f"$ {command}\n{done.output}"
    assert done.stdout.strip(), command
    return done.stdout


def state(product: Running) -> tuple[list[tuple[str, float]], bool]:
    """What operators hold: limits that are overridden, and whether new requests are refused."""
    status: dict[str, Any] = product.status()
    held = [(each["name"], each["value"]) for each in status["limits"] if each["override"]]
    return held, status["drain"] is not None


@pytest.mark.parametrize("alert", RUNBOOKS)
def test_a_runbook_can_be_followed_and_leaves_things_as_they_were(
    alert: str, product: Running, shell: CliRunner
) -> None:
    assert state(product) == NOTHING
    for command in commands(alert, "Diagnosis"):
        run(shell, command)
    assert state(product) == NOTHING
    for command in commands(alert, "Mitigation"):
        if command.startswith(STARTS):
            continue
        held = state(product)
        run(shell, command)
        if "--dry-run" in command:
            assert state(product) == held, command
    rest = product.status()
    assert rest["state"] in ("ready", "draining")
    for limit in rest["limits"]:
        if limit["override"]:
            assert limit["override"]["why"].startswith(alert)
            assert 0 < limit["override"]["expires_in"] <= 3600.0
            run(shell, f'surgetank limits clear {limit["name"]} --why "the drill is over"')
    if rest["drain"]:
        assert 0 < rest["drain"]["expires_in"] <= 60.0
        run(shell, 'surgetank undrain --why "the drill is over"')
    assert state(product) == NOTHING


def test_a_request_is_explained(product: Running, shell: CliRunner) -> None:
    answer = httpx.post(
        f"{product.http}/v1/completions",
        json={"model": "default", "prompt": "hello", "max_tokens": 30, "ignore_eos": True},
        headers={"x-request-id": "one-of-many"},
        timeout=60.0,
    )
    assert answer.status_code == 200
    told = run(shell, "surgetank explain one-of-many")
    for what in ("door and gate", "queue", "decode", "at its arrival", "would wait", "admitted"):
        assert what in told, told
