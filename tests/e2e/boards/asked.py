"""What Grafana asks Prometheus for a board: its queries, with the variables filled in."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.e2e.prometheus_server import Document, Prometheus

from surgetank.dashboards.boards.table import BOARDS
from surgetank.dashboards.grafana import to_json
from surgetank.dashboards.panels import Panel

WINDOW = "15s"  # of rates, as Grafana takes it from a scrape each second and a short graph

# Metrics that this machine and set-up cannot have, and why.
CANNOT_BE_HERE = dict.fromkeys(
    (
        "compute_gpu_up",
        "compute_gpu_ratio",
        "compute_gpu_throttle_seconds_total",
        "compute_gpu_driver_losses_total",
        "compute_xid_total",
        "memory_alloc_retries_total",
    ),
    "there is no GPU",
) | {
    "policy_canary_goodput_ratio": "no candidate is on trial",
    "fleet_leader": "one sidecar alone follows nobody",
    "backend_signal_available": "the engine behind the gate is our own",
}

# What may or may not happen in so short a load, and why.
MAY_NOT_HAPPEN = {
    'advice=~"obeyed|ignored"': "on a slow machine every refusal says not to come back at all",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One query of one panel."""

    board: str
    panel: Panel
    expr: str
    legend: str

    @property
    def where(self) -> str:
        """For whom a test fails."""
        return f"{self.board} / {self.panel.title}: {self.expr}"

    @property
    def cannot_be_here(self) -> bool:
        """Whether it asks for something that a test on this machine cannot surely have."""
        return any(part in self.expr for part in (*CANNOT_BE_HERE, *MAY_NOT_HAPPEN))


def every_query() -> Iterator[Asked]:
    """Of every panel of every board."""
    for board in BOARDS:
        for panel in board.panels:
            for query in panel.queries:
                yield Asked(board.uid, panel, query.expr, query.legend)


def filled(expr: str, instance: str = ".*", model: str = ".*", window: str = WINDOW) -> str:
    """The expression as Prometheus gets it; several values are joined by |."""
    values = {
        "__rate_interval": window,
        "__interval": window,
        "instance": instance,
        "model": model,
    }
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], expr)


def board_results(
    prometheus: Prometheus, uid: str, start: float, end: float, step: float
) -> Document:
    """A board with what Prometheus answers for it, as the drawing page takes it."""
    board = next(board for board in BOARDS if board.uid == uid)
    built: Document = json.loads(to_json(board))
    results: dict[int, dict[str, Any]] = {}
    for panel in built["panels"]:
        for target in panel.get("targets", ()):
            expr = filled(target["expr"], window=f"{max(4 * step, 10):g}s")
            if target["instant"]:
                found = [
                    {"metric": labels, "value": [end, str(value)]}
                    for labels, value in prometheus.query(expr, end)
                ]
            else:
                found = prometheus.query_range(expr, start, end, step)
            results.setdefault(panel["id"], {})[target["refId"]] = found
    return {"dashboard": built, "results": results, "from": start, "to": end, "step": step}
