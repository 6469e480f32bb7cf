"""Runs as a picture over time: what callers wanted, what they sent, what they got, how fast."""

import io
from collections.abc import Sequence

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from surgetank.control.lab.judge import Floats, Judged, judge, quantile, tries
from surgetank.control.lab.world import Run

_OURS = "#1f7a4d"
_COLOURS = ("#c0392b", "#2c6fbb", "#b8860b", "#7d3c98", "#008b8b", "#555555", "#d35400")


def draw(runs: Sequence[Run]) -> bytes:
    """A PNG with three panels; the same runs give the same bytes."""
    figure, panels = plt.subplots(3, 1, figsize=(9, 8), sharex=True, layout="constrained")
    good, sent, wait = panels
    end = max(run.duration for run in runs)
    edges = np.linspace(0.0, end or 1.0, 61)
    width = edges[1] - edges[0]
    for number, run in enumerate(runs):
        calls, name = judge(run), run.scenario.policy
        colour = _OURS if name == "ours" else _COLOURS[number % len(_COLOURS)]
        if number == 0:
            offered = np.histogram(calls.arrived, edges)[0] / width
            good.plot(edges[:-1], offered, color="#888", linestyle=":", label="offered")
        got = np.histogram(calls.arrived[calls.good], edges)[0] / width
        good.plot(edges[:-1], got, color=colour, label=name)
        sent.plot(edges[:-1], np.histogram(tries(run).at, edges)[0] / width, color=colour)
        wait.plot(edges[:-1], _p99(calls, edges), color=colour)
    wait.axhline(runs[0].scenario.slo.ttft, color="#888", linestyle=":")
    for fault in runs[0].scenario.faults:
        for panel in panels:
            panel.axvspan(fault.at, fault.at + fault.seconds, color="#888", alpha=0.2)
            panel.axvline(fault.at, color="#888", alpha=0.2)  # one may take no time
    _dress(good, "good calls / s, by arrival")
    _dress(sent, "attempts / s")
    _dress(wait, "TTFT p99, s")
    figure.legend(frameon=False, ncols=5, loc="outside upper left")
    wait.set_xlabel("seconds (grey: faults; dotted: offered, and the TTFT target)")
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110, metadata={"Software": None})
    plt.close(figure)
    return picture.getvalue()


def _p99(calls: Judged, edges: Floats) -> Floats:
    bins = np.digitize(calls.arrived, edges) - 1
    return np.array([quantile(calls.ttft[bins == n], 0.99) for n in range(len(edges) - 1)])


def _dress(panel: Axes, label: str) -> None:
    panel.set_ylabel(label)
    panel.set_ylim(bottom=0)
    panel.grid(axis="y", alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)
