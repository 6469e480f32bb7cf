"""Which engine is left out because it fails: consecutive faults eject it, for a while.

A fault is an engine's own: an answer of 5xx, a connection that is lost or refused. That it is full
(429, 503, 529) is load and no fault: leaving it out would move the load to the others, which then
are full in their turn. What the client did or did not wait for is no fault either, but where the
engine was silent with all its work: it hangs, and would get requests again whenever the last of
those that it has is given up.

After `eject_after` faults in a row it is out for `eject_for` seconds times the ejections so far;
one of those is forgotten for each `eject_for` seconds that it is back in. (Envoy's outlier
detection counts so; its consecutive_5xx counts 503 too, which an engine answers when it is full.)

An answer of 5xx may be the request's fault, and a client that sends such requests would take one
engine after the other from everybody. So the same request again counts a quarter, and a row of one
known tenant alone must be four times as long. Not for ever: an engine that fails everything at once
looks idle, and gets all that comes. A lost connection or a hang is the engine's own, whoever met
it. (Envoy splits the two likewise, into errors of external and of local origin.)
"""

import math
from dataclasses import dataclass, replace

from surgetank.admission.routing.config import RoutingConfig
from surgetank.telemetry.vocabulary import Outcome, Reason

_DOUBTED = 4  # as many faults say as much as one that nobody's request can have caused

_FAULTS = frozenset({Reason.ENGINE_LOST, Reason.ENGINES_LOST, Reason.ENGINE_ERROR})
_GIVEN_UP = frozenset({Outcome.CANCELLED, Outcome.DEADLINE})


@dataclass(frozen=True, slots=True)
class Met:
    """Who met a fault, where that matters."""

    caller: str = ""  # a tenant; "": not known, or any would have met it
    request: bytes = b""  # the same for two attempts at the same thing; b"": not known


_ANYBODY = Met()


@dataclass(frozen=True, slots=True)
class Standing:
    """One engine's. Times are monotonic seconds."""

    faults: int = 0  # in a row
    repeats: int = 0  # of these, by a request that had met one before
    met: frozenset[Met] = frozenset()  # who met them
    ejections: int = 0  # since the start
    times: int = 0  # of these, as many as were remembered at the last
    ejected_at: float = -math.inf
    back_at: float = -math.inf

    def out(self, now: float) -> bool:
        """Whether it is left out."""
        return now < self.back_at


def is_fault(outcome: Outcome, reason: Reason, *, silent: bool = False) -> bool | None:
    """What the end of a request says of its engine: True a fault, False that it works, None
    nothing. `silent`: it gives no sign of work, though it has some."""
    if outcome is Outcome.OK:
        return False
    return True if reason in _FAULTS or (silent and outcome in _GIVEN_UP) else None


def met_by(caller: str, request: bytes, reason: Reason) -> Met:
    """Who met a fault of that reason."""
    return Met(caller, request) if reason is Reason.ENGINE_ERROR else _ANYBODY


def observed(
    standing: Standing,
    fault: bool,
    config: RoutingConfig,
    now: float,
    *,
    may_go: bool,
    met: Met = _ANYBODY,
) -> Standing:
    """One more answer or fault, and who met it; `may_go`: there are enough others in."""
    if not fault:
        return _forgiven(standing) if standing.faults else standing
    if standing.out(now):
        return standing
    again = bool(met.request) and met in standing.met
    row = replace(standing, faults=standing.faults + 1, repeats=standing.repeats + again)
    if len(row.met) < _DOUBTED * config.eject_after:
        row = replace(row, met=row.met | {met})
    return _ejected(row, config, now) if may_go and _enough(row, config) else row


def _forgiven(standing: Standing) -> Standing:
    return replace(standing, faults=0, repeats=0, met=frozenset())


def _enough(row: Standing, config: RoutingConfig) -> bool:
    """Whether so many faults in a row eject."""
    callers = {met.caller for met in row.met}
    alone = len(callers) == 1 and "" not in callers
    said = row.faults - row.repeats + row.repeats / _DOUBTED
    return 0 < config.eject_after * (_DOUBTED if alone else 1) <= said


def may_eject(engines: int, out: int, share: float) -> bool:
    """Whether one more of `engines` may go while so many are out: at most that share of them, but
    of two or more always one."""
    return engines > 1 and out < max(1, math.floor(share * engines))


def _ejected(standing: Standing, config: RoutingConfig, now: float) -> Standing:
    forgotten = 0.0 if standing.times == 0 else (now - standing.back_at) // config.eject_for
    times = max(0, standing.times - int(forgotten)) + 1
    seconds = min(config.eject_at_most, config.eject_for * times)
    return replace(
        _forgiven(standing),
        ejections=standing.ejections + 1,
        times=times,
        ejected_at=now,
        back_at=now + seconds,
    )
