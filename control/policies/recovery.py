"""The way out of a metastable failure: the load that keeps an engine down after its cause is gone.

Suspected, while requests wait and the engine is as fast as ever (mu >= 1 / 1.5), when either

    of the admitted requests that ended in the last 10 s fewer than half were served, or
    attempts / first attempts > 1.5 and goodput is down by a third from the 10 s before

The engine then works for nobody: clients give up before their turn and come back. The cure is to
break the loop rather than to wait: close the retry lane, let in 50 %, and give 10 % back a second.
With half the arrivals the queue empties of those that nobody waits for any more, and the rest are
in time again. After the ramp it has to be suspected anew, on evidence from after it.
"""

from dataclasses import dataclass

from surgetank.admission.flow import Flow
from surgetank.admission.gate import GateConfig
from surgetank.admission.limits import Limit
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.control.policies.policy import Policy, Wanted

WINDOW = 10.0  # seconds of evidence
SAMPLING = 1.0  # seconds between two looks that are kept
SERVED = 0.5  # share of those that ended, below which the work is in vain
SLOW = 1.5  # times its usual step: then the engine is the cause, not the load
AMPLIFIED = 1.5  # attempts per first attempt
FALLEN = 2.0 / 3.0  # of the goodput before
ENOUGH = 20  # requests ended in the window
FIRST_SHARE = 0.5
PER_SECOND = 0.1


@dataclass(frozen=True, slots=True)
class Look:
    """What was counted up to a moment, and whether requests waited then."""

    at: float
    flow: Flow
    contended: bool


@dataclass(frozen=True, slots=True)
class Watch:
    """The evidence, oldest first; `ramp_since`: when the way out began."""

    looks: tuple[Look, ...] = ()
    ramp_since: float | None = None


def suspect(looks: tuple[Look, ...], drain: float | None) -> bool:
    """Whether the evidence speaks of a metastable failure."""
    newest = looks[-1]
    window = [look for look in looks if newest.at - look.at <= WINDOW + SAMPLING / 2]
    covered = newest.at - window[0].at >= WINDOW - SAMPLING / 2
    if not covered or not all(look.contended for look in window):
        return False
    if drain is None or drain < 1.0 / SLOW:
        return False
    now = newest.flow.since(window[0].flow)
    in_vain = now.ended >= ENOUGH and now.good < SERVED * now.ended
    return in_vain or (_amplified(now) and _fallen(looks, window[0], now))


def _amplified(flow: Flow) -> bool:
    attempts = flow.first + flow.retries
    return attempts >= ENOUGH and attempts > AMPLIFIED * flow.first


def _fallen(looks: tuple[Look, ...], since: Look, now: Flow) -> bool:
    """Goodput against the window before; unknown counts as not fallen."""
    earlier = [look for look in looks if look.at <= since.at]
    covered = since.at - earlier[0].at
    if covered < WINDOW / 2:
        return False
    before = since.flow.since(earlier[0].flow)
    return now.good / WINDOW < FALLEN * before.good / covered


def remember(looks: tuple[Look, ...], look: Look) -> tuple[Look, ...]:
    """Two windows of looks, a second apart; the newest replaces one that is too close."""
    if len(looks) >= 2 and looks[-1].at - looks[-2].at < SAMPLING:
        looks = looks[:-1]
    return (*(each for each in looks if look.at - each.at <= 2 * WINDOW + SAMPLING), look)


def step(state: Watch, config: GateConfig, snapshot: DeskSnapshot) -> tuple[Watch, Wanted]:
    """One pass of the control loop."""
    if not config.laws.recovery:
        return Watch(), {}
    now = snapshot.at
    if state.ramp_since is not None:
        share = round(FIRST_SHARE + PER_SECOND * int(now - state.ramp_since), 2)
        if share < 1.0:
            return state, {Limit.ADMISSION_SHARE: share, Limit.RETRY_SHARE: 0.0}
        return Watch(), {Limit.ADMISSION_SHARE: 1.0}
    look = Look(now, snapshot.flow, snapshot.queue_requests > 0)
    looks = remember(state.looks, look)
    if suspect(looks, snapshot.laws.drain):
        return Watch((), now), {Limit.ADMISSION_SHARE: FIRST_SHARE, Limit.RETRY_SHARE: 0.0}
    return Watch(looks), {Limit.ADMISSION_SHARE: 1.0}


recovery = Policy(Watch(), step, "half the arrivals, then more, after a metastable failure")
