"""The benchmarks' pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

_OURS = "#1f7a4d"
_COLOURS = ("#2c6fbb", "#b8860b", "#c0392b", "#7d3c98", "#008b8b", "#555555", "#d35400")


def speeds(found: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Decode tokens per second over the batch size, one line an engine."""
    figure, axis = plt.subplots(figsize=(8, 4.5), layout="constrained")
    names = list(dict.fromkeys(each["engine"] for each in found))
    for name, colour in zip(names, colours(names)):
        points = [e for e in found if e["engine"] == name and e["phase"] == "decode"]
        batches = [e["batch"] for e in points]
        values = [e["tokens_per_second"] for e in points]
        axis.plot(batches, values, marker="o", color=colour, label=name)
    axis.set_xscale("log", base=2)
    ticks = sorted({each["batch"] for each in found})
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.set_xlabel("sequences decoded together")
    axis.set_ylabel("tokens / s")
    _save(figure, [axis], path)


def latencies(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Throughput, mean and P99 latency of each way to schedule, side by side."""
    keys = (
        ("tokens_per_second", "tokens / s"),
        ("latency_mean", "mean latency, s"),
        ("latency_p99", "P99 latency, s"),
        ("ttft_mean", "mean TTFT, s"),
    )
    figure, axes = plt.subplots(1, len(keys), figsize=(12, 3.8), layout="constrained")
    names = [row["policy"] for row in rows]
    for axis, (key, label) in zip(axes, keys):
        values = [row[key] for row in rows]
        bars = axis.bar(range(len(names)), values, color=_COLOURS[: len(names)])
        axis.bar_label(bars, fmt="%.3g", fontsize=8)
        axis.set_xticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
        axis.tick_params(axis="x", labelsize=7, rotation=20)
        axis.set_title(label, fontsize=10)
    _save(figure, axes, path, legend=False)


def colours(names: Sequence[str]) -> list[str]:
    """One for each name; ours is always the same."""
    rest = iter(_COLOURS * len(names))
    return [_OURS if name == "surgetank" else next(rest) for name in names]


def _save(figure: Any, axes: Sequence[Axes], path: Path, *, legend: bool = True) -> None:
    for axis in axes:
        axis.set_ylim(bottom=0)
        axis.grid(axis="y", alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        if legend:
            axis.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
