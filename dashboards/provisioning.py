"""Grafana's provisioning files: where its data comes from, and where the boards lie."""

from typing import Any

FOLDER = "Surgetank"
BOARDS_PATH = "/var/lib/grafana/dashboards/surgetank"

BOARDS_HEADER = f"""\
# The JSON files of grafana/dashboards/ are expected in {BOARDS_PATH}.
"""
SOURCES_HEADER = """\
# The Prometheus that runs with prometheus/prometheus.yml.
"""


def boards() -> dict[str, Any]:
    """provisioning/dashboards/surgetank.yml."""
    provider = {
        "name": "surgetank",
        "folder": FOLDER,
        "type": "file",
        "allowUiUpdates": False,
        "options": {"path": BOARDS_PATH},
    }
    return {"apiVersion": 1, "providers": [provider]}


def data_sources() -> dict[str, Any]:
    """provisioning/datasources/surgetank.yml."""
    source = {
        "name": "Prometheus",
        "type": "prometheus",
        "uid": "surgetank-prometheus",
        "access": "proxy",
        "url": "http://127.0.0.1:9090",
        "isDefault": True,
        "jsonData": {"timeInterval": "5s", "httpMethod": "POST"},
    }
    return {"apiVersion": 1, "datasources": [source]}
