"""Building is deterministic, writes only what changed, and can check a folder."""

import json
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import surgetank.dashboards
from surgetank.control.cli import main
from surgetank.control.config import Config
from surgetank.dashboards import prometheus
from surgetank.dashboards.build import build, files


def test_the_same_bytes_each_time() -> None:
    assert files() == files()


def test_a_second_build_writes_nothing(tmp_path: Path) -> None:
    first = build(tmp_path)
    assert set(first.written) == set(files())
    assert build(tmp_path).written == ()
    assert build(tmp_path, check=True).current


def test_check_names_what_is_not_current_and_leaves_it(tmp_path: Path) -> None:
    build(tmp_path)
    edited = tmp_path / "alertmanager" / "alertmanager.yml"
    edited.write_text("edited")
    (tmp_path / "prometheus" / "rules" / "alerts.yml").unlink()
    outcome = build(tmp_path, check=True)
    assert outcome.stale == ("prometheus/rules/alerts.yml", "alertmanager/alertmanager.yml")
    assert edited.read_text() == "edited"


def test_every_file_can_be_read(monitoring: Path) -> None:
    for path in monitoring.rglob("*.json"):
        assert json.loads(path.read_text())["uid"] == path.stem
    for path in monitoring.rglob("*.yml"):
        assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_it_scrapes_where_the_product_listens() -> None:
    config = Config()
    jobs = {job["job_name"]: job for job in prometheus.configuration()["scrape_configs"]}
    sidecar = jobs[prometheus.SIDECAR_JOB]["static_configs"][0]
    engine = jobs[prometheus.ENGINE_JOB]["static_configs"][0]
    assert sidecar["targets"] == [f"{config.http.host}:{config.http.port}"]
    assert engine["targets"] == [f"{config.engine.metrics_host}:{config.engine.metrics_port}"]
    assert sidecar["labels"] == engine["labels"]


def test_the_command_builds_and_checks(tmp_path: Path) -> None:
    out = ["--out", str(tmp_path)]
    stale = CliRunner().invoke(main, ["dashboards", "build", *out, "--check"])
    assert stale.exit_code == 1
    assert f"run: surgetank dashboards build --out {tmp_path}" in stale.output
    built = CliRunner().invoke(main, ["dashboards", "build", *out, "--json"])
    assert set(json.loads(built.output)["written"]) == set(files())
    assert CliRunner().invoke(main, ["dashboards", "build", *out, "--check"]).exit_code == 0


def test_without_the_library_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in ("build", "grafana"):
        monkeypatch.delattr(surgetank.dashboards, module)
        monkeypatch.delitem(sys.modules, f"surgetank.dashboards.{module}")
    monkeypatch.setitem(sys.modules, "grafana_foundation_sdk.builders", None)
    said = CliRunner().invoke(main, ["dashboards", "build", "--out", str(tmp_path), "--json"])
    assert said.exit_code == 1
    assert json.loads(said.output)["error"] == {
        "code": "not_installed",
        "message": "grafana_foundation_sdk is not installed; run: "
        "pip install 'surgetank[dashboards]'",
    }
