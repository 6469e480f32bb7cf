"""A run's picture: TTFT of each call over time, and the tokens that came each second."""

import math
from collections import Counter
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from surgetank.control.bench.serve.figures import is_good
from surgetank.control.bench.serve.player import Played
from surgetank.control.bench.serve.wishes import Slo

_GOOD, _LATE, _FAILED, _RATE = "#1f7a4d", "#b8860b", "#c0392b", "#2c6fbb"


def draw(played: Played, slo: Slo, title: str, path: Path) -> None:
    """Write the PNG; OSError when that cannot be."""
    figure, (above, below) = plt.subplots(
        2, figsize=(9, 6), layout="constrained", sharex=True, height_ratios=(2, 1)
    )
    kinds = {
        "good": (_GOOD, [r for r in played.rows if is_good(r, slo)]),
        "outside a target": (_LATE, [r for r in played.rows if r.ok and not is_good(r, slo)]),
        "failed (when it ended)": (_FAILED, [r for r in played.rows if not r.ok]),
    }
    for label, (colour, rows) in kinds.items():
        points = [(r.due - played.begun, r.e2el if r.ttft is None else r.ttft) for r in rows]
        if points:
            above.scatter(*zip(*points), s=12, color=colour, label=f"{label}: {len(rows)}")
    if slo.ttft is not None:
        above.axhline(slo.ttft, color="#555555", linewidth=0.8, linestyle="--")
    above.set_ylabel("TTFT, s")
    above.set_title(title, fontsize=10)
    tokens = Counter(
        math.floor(at - played.begun)
        for row in played.rows
        for at in row.answer.times
        if at >= played.begun
    )
    seconds = range(max(tokens, default=0) + 1)
    below.step(seconds, [tokens[each] for each in seconds], where="post", color=_RATE)
    below.set_ylabel("pieces / s")
    below.set_xlabel("seconds since the run began")
    for axis in (above, below):
        axis.set_ylim(bottom=0)
        axis.grid(axis="y", alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    if played.rows:
        above.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
