"""What docs/fleet.md shows can be pasted: its settings load, its commands exist."""

import re
from pathlib import Path

import click

from surgetank.control.cli import main
from surgetank.control.config import Config
from surgetank.control.sources import load
from surgetank.telemetry.vocabulary import Priority

PAGE = (Path(__file__).parents[3] / "docs" / "fleet.md").read_text("utf-8")


def test_its_settings_load_together(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 3
    whole = "".join(blocks[:2]).replace("[leases.default]", blocks[2] + "\n[leases.default]", 1)
    file = tmp_path / "surgetank.toml"
    file.write_text(whole)
    config = load(Config, file=file)
    assert config.leases.url is not None
    assert config.leases.quota("acme").concurrency == 64
    assert config.leases.quota("acme").requests_per_minute is None
    assert config.leases.quota("bolt").tokens_per_minute == 200_000
    assert config.tenants.classes["acme"].range == (Priority.CRITICAL, Priority.DEFAULT)
    assert str(config.tenants.trusted_proxies[0]) == "10.1.0.0/16"


def test_its_commands_exist() -> None:
    named = set(re.findall(r"surgetank ([a-z]+)", PAGE))
    assert {"fleet", "status", "limits", "policy"} <= named
    assert named <= set(main.list_commands(click.Context(main)))
