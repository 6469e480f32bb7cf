"""The brown-out ladder: less of everything that can be spared, one rung at a time.

    x = max(W / (kappa*T), KV / kv_reserve, TPOT / target), smoothed over 1 s, while requests wait

    rung 1 from x = .7    batch and sheddable get shorter answers
         2          .85   sheddable are thinned out, the more the higher x
         3         1.0    the retry lane closes, no sheddable
         4         1.2    critical only; also 5 s after a step should have come, until one comes

Up as soon as x calls for it, one rung at a time; down when x is below .8 of what the rung needs for
5 s, one rung at a time: a load that hovers at a threshold does not make the ladder flap.

The threshold law holds W at kappa*T by itself, so x stays near 1 in any overload. Rung 4 therefore
needs 5 s of x >= 1.2, which says that predictions fail, and is left after 1 s; and the engine's
silence is not in x: it refuses by itself while it lasts, and must hold nothing back afterwards. KV
and TPOT at their bounds are a full engine, not a broken one: they call for rung 2 at most.

An operator's value for `brownout_level` is the rung, whatever x says.
"""

import math
from dataclasses import dataclass, replace

from surgetank.admission.gate import GateConfig
from surgetank.admission.limits import SPECS, Limit
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.control.policies.policy import Policy, Wanted
from surgetank.telemetry.vocabulary import Priority

ENTER = (0.7, 0.85, 1.0, 1.2)  # x that calls for rung 1, 2, 3, 4
EXIT = 0.8  # of that, below which a rung is left
DWELL = 5.0  # seconds below it before; also above 1.2 before rung 4
DWELL_TOP = 1.0  # seconds before rung 4 is left
STALL = 5.0  # seconds of silence, beyond what a step may take, that mean critical only;
UNKNOWN = 30.0  # and where nobody knows yet what a step takes: it may read a first long prompt
SMOOTHING = 1.0  # seconds, time constant of x
SHORT = 256  # tokens of an answer from rung 1 on
_FULL = 0.999  # x of an engine that is merely full


@dataclass(frozen=True, slots=True)
class Ladder:
    """Where it stands. None: x is not so."""

    rung: int = 0
    x: float = 0.0
    at: float | None = None  # the last look
    calm_since: float | None = None  # x is below what keeps the rung
    extreme_since: float | None = None  # x calls for rung 4


def pressure(config: GateConfig, snapshot: DeskSnapshot) -> float:
    """x of this moment, before smoothing; at most 2."""
    laws = snapshot.laws
    if not snapshot.queue_requests or laws.wait is None:
        return 0.0
    x = laws.wait.gamma * laws.wait.queueing / laws.threshold
    full = (laws.kv_used or 0.0) / config.kv_reserve
    slow = (laws.tpot or 0.0) / snapshot.tpot_target
    return min(2.0, max(x, min(_FULL, full), min(_FULL, slow)))


def climb(state: Ladder, x: float, now: float) -> Ladder:
    """The next state, for the smoothed x."""
    extreme_since = None
    if x >= ENTER[3]:
        extreme_since = now if state.extreme_since is None else state.extreme_since
    called = sum(x >= enter for enter in ENTER[:3])
    if extreme_since is not None and now - extreme_since >= DWELL:
        called = 4
    seen = Ladder(state.rung, x, now, None, extreme_since)
    if called > state.rung:
        return replace(seen, rung=state.rung + 1)
    if state.rung == 0 or x >= EXIT * ENTER[state.rung - 1]:
        return seen
    calm_since = now if state.calm_since is None else state.calm_since
    if now - calm_since >= (DWELL_TOP if state.rung == 4 else DWELL):
        return replace(seen, rung=state.rung - 1, calm_since=now)
    return replace(seen, calm_since=calm_since)


def measures(rung: int, x: float, config: GateConfig) -> dict[Limit, float]:
    """What a rung means for the limits."""
    longest = SPECS[Limit.LOW_OUTPUT_TOKENS].default
    return {
        Limit.LOW_OUTPUT_TOKENS: min(SHORT, longest) if rung >= 1 else longest,
        Limit.SHEDDABLE_SHARE: _thinned(x) if rung == 2 else float(rung < 2),
        Limit.RETRY_SHARE: 0.0 if rung >= 3 else config.retry_share,
        Limit.LOWEST_CLASS: Priority.CRITICAL if rung >= 4 else Priority.SHEDDABLE,
    }


def _stalled(snapshot: DeskSnapshot) -> bool:
    wait = snapshot.laws.wait
    return (snapshot.stalled_for or 0.0) >= UNKNOWN if wait is None else wait.age >= STALL


def _thinned(x: float) -> float:
    """1 below rung 2, 0 at rung 3, in steps of a quarter: each step is a change in the journal."""
    _, low, high, _ = ENTER
    return min(1.0, max(0.0, math.ceil(4.0 * (high - x) / (high - low)) / 4.0))


def step(state: Ladder, config: GateConfig, snapshot: DeskSnapshot) -> tuple[Ladder, Wanted]:
    """One pass of the control loop."""
    if not config.laws.brownout:
        return Ladder(), {}
    now, x = snapshot.at, pressure(config, snapshot)
    if state.at is not None:
        x = state.x + (x - state.x) * -math.expm1((state.at - now) / SMOOTHING)
    state = climb(state, x, now)
    rung = 4 if _stalled(snapshot) else state.rung
    held = snapshot.view(Limit.BROWNOUT_LEVEL)
    acting = int(held.current) if held.override else rung
    return state, {Limit.BROWNOUT_LEVEL: float(rung), **measures(acting, x, config)}


brownout = Policy(Ladder(), step, "the brown-out ladder: what can be spared goes first")
