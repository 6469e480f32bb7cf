"""How many sequences another maker's engine really runs, learned from its own queue and refusals.

Its batch size is often a guess of ours, and what is above it waits in a queue of its own, where no
class, deadline or retry budget counts; or it is turned away (429, 503, 529). Both say the same: our
in-flight limit L is above what it runs. So

    standing queue   somebody waited in it at each of the last LOOKS looks     L <- r
    pushback         it turned requests away since the last pass               L <- in flight

with r the most that it ran at these looks, be it ours or not. An engine that tells its queue w but
not r: L <- in flight - w. In flight and L are of all that is in it, limits are of ours: what others
have there is taken off (routing/others.py). Once nothing of the kind happened for QUIET seconds,
and only while L is met and somebody waits for it, L grows by a twentieth (one at least) every QUIET
seconds: a limit that fits is tested at little cost. But an engine that turned requests away may
have had a bad moment and be no smaller: up to the most that it had at once before, with none turned
away, L doubles each second. L is never below 1 nor above what is configured, and a lost engine's is
forgotten. Of one engine it becomes the limit in_flight_seqs; of several each has its own below
that, which `surgetank backends` shows and the journal tells.

Additive increase and decrease to the measured value, not by a factor: the measured value is known
here, unlike a network's capacity (compare TCP's AIMD, and its slow start after a loss, RFC 5681).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from surgetank.admission.gate import GateConfig
from surgetank.admission.limits import Limit
from surgetank.admission.routing.others import left
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.control.journal import Journal
from surgetank.control.loop import OURSELVES
from surgetank.control.policies.policy import Policy, Wanted
from surgetank.engine.backends.remote.found import Signals, Vitals

NAME = "concurrency"
LOOKS = 3
QUIET = 10.0  # seconds
GROWTH = 0.05
_AGAIN = 1.0  # seconds between two doublings


@dataclass(frozen=True, slots=True)
class Learned:
    """`limit` None: nothing was learned. Looks are oldest first, each once."""

    limit: float | None = None
    quiet_since: float = 0.0
    pushbacks: int = 0
    looks: tuple[Signals, ...] = ()
    took: float = 0.0  # sequences that it had at once, at the limit, since it was last full
    back: float = 0.0  # and before, up to which the limit comes back fast


@dataclass(frozen=True, slots=True)
class Sight:
    """One engine as the gate sees it at `at`."""

    at: float
    vitals: Vitals
    ours: int  # sequences that we have in it
    others: int  # and those that are not ours
    waits: bool  # somebody waits at the gate

    @property
    def in_it(self) -> int:
        """All its sequences."""
        return self.ours + self.others

    def met(self, limit: float) -> bool:
        """Whether no more of ours may go in."""
        return self.ours >= int(left(limit, self.others))


def learn(state: Learned, most: float, sight: Sight) -> Learned:
    """What is to be learned of an engine that may have `most` in any case."""
    vitals = sight.vitals
    if vitals.found is None:
        return Learned(pushbacks=vitals.pushbacks)
    looks = _looked(state.looks, vitals.signals)
    runs = _what_runs(state, looks, sight)
    if runs is None:
        state = _grown(replace(state, pushbacks=vitals.pushbacks, looks=looks), sight)
    else:
        state = _full(state, most, runs, sight)
    if state.limit is not None and state.limit >= most:
        state = replace(state, limit=None)
    return state


def step(state: Learned, config: GateConfig, snapshot: DeskSnapshot) -> tuple[Learned, Wanted]:
    """One pass of the control loop, for one engine."""
    vitals = snapshot.vitals
    if not vitals.foreign or len(snapshot.engines) > 1:
        return state, {}
    most = min(float(config.in_flight_seqs), snapshot.view(Limit.IN_FLIGHT_SEQS).maximum)
    waits = snapshot.queue_requests > 0
    others = sum(engine.others for engine in snapshot.engines)
    sight = Sight(snapshot.at, vitals, snapshot.dispatched_seqs, others, waits)
    state = learn(state, most, sight)
    if state.limit is None:
        return state, {Limit.IN_FLIGHT_SEQS: float(config.in_flight_seqs)}
    ours = max(1, int(left(state.limit, others)))
    return state, {Limit.IN_FLIGHT_SEQS: float(ours)}


class EachLearns:
    """For several engines: after each pass of the control loop, each one's own limit."""

    def __init__(
        self, config: GateConfig, hold: Callable[[str, float | None], None], journal: Journal
    ) -> None:
        """`hold(name, limit)`: that engine may have so many sequences; None: as the limits say."""
        self._most = float(config.in_flight_seqs)
        self._hold = hold
        self._journal = journal
        self._states: dict[str, Learned] = {}

    def __call__(self, snapshot: DeskSnapshot) -> None:
        """Learn from it; one engine alone is the policy's."""
        if len(snapshot.engines) < 2:
            return
        waits = snapshot.queue_requests > 0
        for look in snapshot.engines:
            card, state = look.card, self._states.get(look.name, Learned())
            most = self._most if card is None else min(self._most, card.max_num_seqs)
            sight = Sight(snapshot.at, look.vitals, look.dispatched_seqs, look.others, waits)
            state = self._states[look.name] = learn(state, most, sight)
            if state.limit != look.learned_slots:
                self._hold(look.name, state.limit)
                self._journal.write(
                    who=OURSELVES,
                    why=f"policy:{NAME}",
                    what=f"{Limit.IN_FLIGHT_SEQS} of {look.name}",
                    before=look.learned_slots or most,
                    after=state.limit or most,
                    cause="policy",
                )


def _looked(looks: tuple[Signals, ...], signals: Signals) -> tuple[Signals, ...]:
    if signals.waiting is None or (looks and looks[-1].at == signals.at):
        return looks
    return (*looks, signals)[-LOOKS:]


def _what_runs(state: Learned, looks: tuple[Signals, ...], sight: Sight) -> float | None:
    """What it runs, when that is less than is in it; None while it does not say so."""
    in_it = float(sight.in_it)
    if sight.vitals.pushbacks > state.pushbacks:
        return in_it
    standing = min((look.waiting or 0.0 for look in looks), default=0.0)
    if standing <= 0 or len(looks) < LOOKS:
        return None
    told = [look.running for look in looks if look.running is not None]
    runs = max(told) if told else in_it - standing
    return runs if runs < in_it else None


def _full(state: Learned, most: float, runs: float, sight: Sight) -> Learned:
    """It is full: at `runs`, or at the limit that it has. A queue of its own shows its size: there
    is nothing to come back to."""
    limit = max(1.0, runs) if runs < (state.limit or most) else state.limit
    pushbacks = sight.vitals.pushbacks
    back = (state.took or state.back) if pushbacks > state.pushbacks else 0.0
    return Learned(limit, sight.at, pushbacks, back=back)


def _grown(state: Learned, sight: Sight) -> Learned:
    limit = state.limit
    if limit is not None and not sight.met(limit):
        return state
    state = replace(state, took=max(state.took, float(sight.in_it)))
    if limit is None or not sight.waits:
        return state
    quiet = sight.at - state.quiet_since
    if limit < state.back and quiet >= _AGAIN:
        limit = min(2.0 * limit, state.back)
    elif quiet >= QUIET:
        limit += max(1, int(GROWTH * limit))
    else:
        return state
    return replace(state, limit=limit, quiet_since=sight.at)


concurrency = Policy(Learned(), step, "as many in flight as another maker's engine shows to run")
