"""The container file: pinned, complete, unprivileged, and with settings and ports that exist."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from tests.deploy.product import (
    DEFAULTS,
    DEPLOY,
    ROOT,
    VERSION,
    check,
    pinned,
    program,
    python,
    settings,
    understood,
)

TEXT = re.sub(r"\\\n\s*", " ", (DEPLOY / "Containerfile").read_text("utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def stages() -> dict[str, str]:
    """The text of each stage by its name."""
    parts = re.split(r"^FROM (\S+) AS (\S+)$", TEXT, flags=re.MULTILINE)
    return dict(zip(parts[2::3], parts[3::3]))


def variables(stage: str) -> dict[str, str]:
    """What ENV sets in a stage."""
    lines = re.findall(r"^ENV (.*)$", stages()[stage], re.MULTILINE)
    return dict(re.findall(r"([A-Z_]+)=(\S+)", " ".join(lines)))


def requirements(*extras: str, folder: Path = ROOT) -> list[str]:
    command = [python(), str(DEPLOY / "requirements.py"), *extras]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_the_base_is_pinned_and_no_stage_takes_another() -> None:
    base = re.search(r"^ARG PYTHON_IMAGE=(\S+)$", TEXT, re.MULTILINE)
    assert base is not None
    pinned(base[1])
    bases = re.findall(r"^FROM (\S+)", TEXT, re.MULTILINE)
    assert set(bases) == {"${PYTHON_IMAGE}", "sidecar-packages", "base"}


@pytest.mark.parametrize("stage", ["base", "engine"])
def test_its_settings_exist(stage: str) -> None:
    config = settings(variables(stage))
    assert config != DEFAULTS


def test_doors_listen_outside_and_the_admin_api_does_not() -> None:
    config = settings(variables("base"))
    assert (config.http.host, config.grpc.host, config.admin.host) == (
        "0.0.0.0",
        "0.0.0.0",
        "127.0.0.1",
    )


def test_ports_and_health_are_those_of_the_product() -> None:
    ports = {
        int(port) for line in re.findall(r"^EXPOSE (.*)$", TEXT, re.M) for port in line.split()
    }
    engine, door = DEFAULTS.engine.metrics_port, DEFAULTS.http.port
    assert ports == {door, DEFAULTS.grpc.port, engine}
    assert f"http://127.0.0.1:{door}/health/live" in TEXT


def test_everything_that_is_written_lies_in_two_folders() -> None:
    config = settings(variables("base"))
    made = re.search(r"install -d .* (/\S+) (/\S+)$", TEXT, re.MULTILINE)
    assert made is not None
    assert {str(config.control.journal_path().parent), str(config.engine.socket.parent)} == {  # type: ignore[union-attr]
        made[1],
        made[2],
    }


def test_it_runs_as_nobody_in_particular_and_takes_sigterm_itself() -> None:
    assert re.search(r"^USER 10001:10001$", stages()["base"], re.MULTILINE)
    assert "USER" not in stages()["engine"] + stages()["sidecar"]
    entry = json.loads(re.findall(r"^ENTRYPOINT (.*)$", TEXT, re.MULTILINE)[0])
    for command in re.findall(r"^CMD (.*)$", TEXT, re.MULTILINE):
        understood([*entry, *json.loads(command)])


def test_the_sidecar_holds_no_torch_and_the_engine_what_it_needs() -> None:
    assert requirements() == PROJECT["dependencies"]
    small = requirements("dashboards")
    assert not [line for line in small if line.startswith(("torch", "numpy", "gguf"))]
    whole = requirements("engine", "gpu")
    assert set(PROJECT["optional-dependencies"]["engine"]) <= set(whole)
    assert "requirements.py engine gpu" in stages()["engine-packages"]
    assert "COPY --from=sidecar-packages" in stages()["sidecar"]


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    kept = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    copied = {
        name
        for line in re.findall(r"^COPY (?!--)(.*) \S+$", TEXT, re.MULTILINE)
        for name in line.split()
    }
    assert copied == kept
    assert all((ROOT / name).exists() for name in copied)
    links = {link.name for link in (ROOT / "src/surgetank").iterdir() if link.is_symlink()}
    assert links <= copied


def test_named_versions_are_this_one() -> None:
    assert set(re.findall(r"surgetank(?:-engine)?:(\S+)", TEXT)) == {VERSION}


def test_hadolint_has_nothing_to_say() -> None:
    check(program("hadolint"), str(DEPLOY / "Containerfile"))
