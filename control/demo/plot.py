"""The storm as a picture: what callers got and what they sent, second by second."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from surgetank.control.demo.verdict import Episode

_COLOURS = {"unprotected": "#c0392b", "protected": "#1f7a4d"}
_SMOOTH = 3  # seconds averaged for each point


def _per_second(times: list[float], duration: float) -> list[float]:
    counts = [0] * (int(duration) + 1)
    for at in times:
        if 0 <= at < len(counts):
            counts[int(at)] += 1
    half = _SMOOTH // 2
    windows = [counts[max(0, i - half) : i + half + 1] for i in range(len(counts))]
    return [sum(window) / len(window) for window in windows]


def draw(episodes: Mapping[str, Episode], rate: float, path: Path) -> None:
    """Two panels over time, both runs in each: calls answered, and HTTP requests sent."""
    figure, (good, sent) = plt.subplots(2, 1, figsize=(9, 6), sharex=True, layout="constrained")
    for name, episode in episodes.items():
        answered = [s.ended for s in episode.samples if s.ok]
        requests = [at for s in episode.samples for at in s.attempts]
        seconds = range(int(episode.duration) + 1)
        colour = _COLOURS.get(name)
        good.plot(seconds, _per_second(answered, episode.duration), color=colour, label=name)
        sent.plot(seconds, _per_second(requests, episode.duration), color=colour, label=name)
    stall = next(iter(episodes.values()))
    for axis in (good, sent):
        axis.axvspan(stall.stall_start, stall.stall_end, color="#888", alpha=0.25)
        axis.axhline(rate, color="#555", linestyle=":", linewidth=1)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_ylim(bottom=0)
        axis.grid(axis="y", alpha=0.25)
    good.set_ylabel("calls answered / s")
    sent.set_ylabel("HTTP requests sent / s")
    sent.set_xlabel("seconds (grey: the engine is stopped; dotted: calls offered / s)")
    good.legend(frameon=False, loc="lower right")
    good.set_title("A stall, then a retry storm: the same traffic with and without the gate")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
