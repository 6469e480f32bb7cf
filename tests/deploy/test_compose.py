"""The compose file: what it names exists, and its monitoring is that of `dashboards build`."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.deploy.product import (
    DEFAULTS,
    DEPLOY,
    LAST_BYTES,
    VERSION,
    check,
    documents,
    pinned,
    program,
    settings,
    understood,
)

from surgetank.dashboards import prometheus, provisioning
from surgetank.dashboards.build import build

FOLDER = DEPLOY / "compose"
(COMPOSE,) = documents(FOLDER / "compose.yaml")
SERVICES = COMPOSE["services"]
SURGETANK, BOARDS = SERVICES["surgetank"], SERVICES["boards"]
ENGINES = {name: each for name, each in SERVICES.items() if name.startswith("vllm-")}


def read(name: str) -> Any:
    (document,) = documents(FOLDER / name)
    return document


def test_commands_and_settings_exist() -> None:
    for service in (SURGETANK, BOARDS):
        understood(["surgetank", *service["command"]])
    config = settings(SURGETANK["environment"], FOLDER / "surgetank.toml")
    assert config.backends[0].url == "http://vllm:8000"
    assert config.leases.url is not None
    assert config.leases.url.get_secret_value().startswith("redis://redis:")


def test_images_are_pinned_and_ours_is_this_version() -> None:
    for service in SERVICES.values():
        pinned(service["image"])
    assert {SURGETANK["image"], BOARDS["image"]} == {f"surgetank:{VERSION}"}
    for service in (SURGETANK, BOARDS):
        made = service["build"]
        assert (FOLDER / made["context"] / made["dockerfile"]).exists()
        container_file = (DEPLOY / "Containerfile").read_text("utf-8")
        assert re.search(rf"^FROM \S+ AS {made['target']}$", container_file, re.MULTILINE)


def test_nothing_is_published_beyond_this_machine() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published)
    doors = [f"127.0.0.1:{port}:{port}" for port in (DEFAULTS.http.port, DEFAULTS.grpc.port)]
    assert SURGETANK["ports"] == doors


def test_either_engine_is_the_one_that_is_asked() -> None:
    assert {tuple(engine["profiles"]) for engine in ENGINES.values()} == {("cpu",), ("gpu",)}
    for engine in ENGINES.values():
        assert engine["networks"]["default"]["aliases"] == ["vllm"]
        command = engine["command"]
        assert command[command.index("--port") + 1] == "8000"


def test_the_grace_period_covers_the_drain() -> None:
    config = settings(SURGETANK["environment"], FOLDER / "surgetank.toml")
    grace = float(SURGETANK["stop_grace_period"].removesuffix("s"))
    assert grace > config.control.drain_timeout + LAST_BYTES


def test_the_root_is_read_only_but_for_what_is_written() -> None:
    assert SURGETANK["read_only"] is True
    written = [mount.split(":")[0] for mount in SURGETANK["tmpfs"]]
    written += [mount.split(":")[1] for mount in SURGETANK["volumes"] if "toml" not in mount]
    assert written == ["/run/surgetank", "/tmp", "/var/lib/surgetank"]


def test_mounted_files_exist() -> None:
    for service in SERVICES.values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (FOLDER / source).exists(), source
            else:
                assert source in COMPOSE["volumes"], source


def test_prometheus_scrapes_as_the_built_configuration_does() -> None:
    built, ours = prometheus.configuration(), read("prometheus.yml")
    assert ours["global"] == built["global"]
    jobs = {job["job_name"]: job["static_configs"][0] for job in ours["scrape_configs"]}
    assert set(jobs) == {prometheus.SIDECAR_JOB, prometheus.BACKEND_JOB}
    assert {tuple(job["labels"].items()) for job in jobs.values()} == {
        (("instance", "surgetank-0"),)  # rules join by it
    }
    targets = {name: job["targets"] for name, job in jobs.items()}
    assert targets[prometheus.SIDECAR_JOB] == [f"surgetank:{DEFAULTS.http.port}"]
    assert targets[prometheus.BACKEND_JOB] == ["vllm:8000"]


def test_grafana_finds_what_the_boards_ask_for() -> None:
    built = provisioning.data_sources()["datasources"]
    ours = read("grafana/datasources/surgetank.yml")["datasources"]
    assert ours == [{**built[0], "url": "http://prometheus:9090"}]
    boards = provisioning.boards()
    path = {"path": "/monitoring/grafana/dashboards"}
    boards["providers"][0]["options"] = path
    assert read("grafana/dashboards/surgetank.yml") == boards


@pytest.fixture(scope="module")
def monitoring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the service `boards` writes."""
    folder = tmp_path_factory.mktemp("monitoring")
    build(folder)
    return folder


def test_files_are_where_they_are_looked_for(monitoring: Path) -> None:
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (monitoring / Path(home).relative_to("/monitoring")).exists()
    (rules,) = read("prometheus.yml")["rule_files"]
    assert list(monitoring.glob(str(Path(rules).relative_to("/monitoring"))))
    assert BOARDS["command"][-1] == "/monitoring"
    assert BOARDS["volumes"] == ["monitoring:/monitoring"]


def test_promtool_accepts_the_configuration_with_its_rules(
    monitoring: Path, tmp_path: Path
) -> None:
    tool = program("promtool")
    ours = read("prometheus.yml")
    ours["rule_files"] = [
        path.replace("/monitoring", str(monitoring)) for path in ours["rule_files"]
    ]
    file = tmp_path / "prometheus.yml"
    file.write_text(yaml.safe_dump(ours))
    assert "SUCCESS: 3 rule files found" in check(tool, "check", "config", str(file))


def test_the_compose_specification_accepts_it() -> None:
    """By the stricter of its readers: a key that it does not know is an error."""
    code = "import sys, compose_spec; compose_spec.PyCompose.from_json(sys.argv[1]).validate()"
    check(program("python", only_own=True), "-c", code, json.dumps(COMPOSE))
