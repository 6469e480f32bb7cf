"""Writes what monitoring needs: Grafana's boards, Prometheus' rules, Alertmanager's routes.

The same catalogue gives the same bytes, so that a folder built before can be checked.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from surgetank.dashboards import grafana, prometheus, provisioning
from surgetank.dashboards.alerts import routes
from surgetank.dashboards.alerts.table import GROUPS as ALERTS
from surgetank.dashboards.backends import BACKENDS
from surgetank.dashboards.boards.table import BOARDS
from surgetank.dashboards.recordings import RECORDINGS
from surgetank.dashboards.rules import Group

_MADE = "# Made by `surgetank dashboards build`; edits are lost.\n"


class _Dumper(yaml.SafeDumper):
    """YAML as people write it: long expressions stay in one piece."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What build() found or did: files by name, relative to the folder."""

    written: tuple[str, ...]
    stale: tuple[str, ...]  # missing or different, and left so

    @property
    def current(self) -> bool:
        """Whether the folder now holds what it should."""
        return not self.stale


def files() -> dict[str, str]:
    """Every file by its path in the folder."""
    return {
        **{f"grafana/dashboards/{board.uid}.json": grafana.to_json(board) for board in BOARDS},
        "grafana/provisioning/dashboards/surgetank.yml": _yaml(
            provisioning.boards(), provisioning.BOARDS_HEADER
        ),
        "grafana/provisioning/datasources/surgetank.yml": _yaml(
            provisioning.data_sources(), provisioning.SOURCES_HEADER
        ),
        "prometheus/prometheus.yml": _yaml(prometheus.configuration(), prometheus.HEADER),
        "prometheus/rules/backends.yml": _rules([BACKENDS]),
        "prometheus/rules/recordings.yml": _rules(RECORDINGS),
        "prometheus/rules/alerts.yml": _rules(ALERTS),
        "alertmanager/alertmanager.yml": _yaml(routes.configuration(), routes.HEADER),
    }


def build(out: Path, *, check: bool = False) -> Outcome:
    """Write what is not current under `out`; with `check`, only say what is not."""
    stale = [
        (name, text)
        for name, text in files().items()
        if not (out / name).exists() or (out / name).read_text("utf-8") != text
    ]
    names = tuple(name for name, _ in stale)
    if check:
        return Outcome((), names)
    for name, text in stale:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text, "utf-8")
    return Outcome(names, ())


def _rules(groups: Iterable[Group]) -> str:
    return _yaml({"groups": [group.as_dict() for group in groups]})


def _yaml(document: dict[str, Any], header: str = "") -> str:
    body = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)
    return _MADE + header + body
