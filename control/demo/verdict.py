"""What a storm did to its callers: pure arithmetic over samples, window by window."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from surgetank.control.demo.load import Sample

WINDOW = 5.0  # seconds of arrivals judged together
RECOVERED = 0.9  # share of the success ratio before the stall that counts as recovered
ATTEMPTS = 3  # that the openai client makes of a call by default
HEALTHY = 0.5  # success ratio before the stall below which there is nothing to go back to


@dataclass(frozen=True)
class Episode:
    """One run: what its callers saw, and when the engine stood still."""

    samples: tuple[Sample, ...]
    stall_start: float
    stall_end: float
    duration: float  # seconds during which calls were started


@dataclass(frozen=True)
class Verdict:
    """The row of one run in the table. Rates per second, times in seconds."""

    calls: int
    goodput_before: float
    goodput_after: float
    success_before: float  # share of calls that the stall could not touch
    success_after: float  # share of calls started after the stall
    attempts_per_call: float  # calls started after the stall began
    ttft_p50: float | None  # streamed calls that succeeded, started after the stall began
    ttft_p99: float | None
    recovery: float | None  # None: not while it was observed
    observed: float  # after the stall


def quantile(values: Sequence[float], q: float) -> float | None:
    """Nearest-rank quantile; None for no values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


def success(samples: Sequence[Sample], start: float, end: float) -> float | None:
    """Share of the calls started in [start, end) that succeeded; None if there was none."""
    cohort = [sample.ok for sample in samples if start <= sample.started < end]
    return sum(cohort) / len(cohort) if cohort else None


def judged_until(episode: Episode, patience: float) -> float:
    """Calls begun later might be answered only because no more calls come: they prove nothing."""
    return episode.duration - ATTEMPTS * patience


def recovery(episode: Episode, before: float, until: float, step: float = 0.5) -> float | None:
    """Seconds from the stall's end to the first call after which every window succeeds as before.

    A window is WINDOW seconds of arrivals; it is good at RECOVERED of the share before the stall.
    None when the last window before `until` is still bad, or when the run was not HEALTHY before.
    """
    if before < HEALTHY:
        return None
    at, since = episode.stall_end, None
    while at + WINDOW <= until:
        share = success(episode.samples, at, at + WINDOW)
        if share is not None and share < RECOVERED * before:
            since = None
        elif since is None:
            since = at
        at += step
    return None if since is None else since - episode.stall_end


def judge(episode: Episode, warm_up: float, patience: float) -> Verdict:
    """Reduce one run to its row. Left out are the calls of the first `warm_up` seconds, those after
    judged_until(), and from "before" those that the stall may have caught: begun less than
    `patience` seconds ahead of it.
    """
    calm, until = episode.stall_start - patience, judged_until(episode, patience)
    samples = [sample for sample in episode.samples if warm_up <= sample.started < until]
    before = [sample for sample in samples if sample.started < calm]
    stormed = [sample for sample in samples if sample.started >= episode.stall_start]
    after = [sample for sample in stormed if sample.started >= episode.stall_end]
    share_before = success(samples, warm_up, calm) or 0.0
    first_tokens = [s.ttft for s in stormed if s.ok and s.ttft is not None]
    return Verdict(
        calls=len(samples),
        goodput_before=sum(s.ok for s in before) / (calm - warm_up),
        goodput_after=sum(s.ok for s in after) / (until - episode.stall_end),
        success_before=share_before,
        success_after=success(samples, episode.stall_end, until) or 0.0,
        attempts_per_call=sum(len(s.attempts) for s in stormed) / max(1, len(stormed)),
        ttft_p50=quantile(first_tokens, 0.5),
        ttft_p99=quantile(first_tokens, 0.99),
        recovery=recovery(episode, share_before, until),
        observed=until - episode.stall_end,
    )
