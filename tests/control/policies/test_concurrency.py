"""What another maker's engine cannot run is not sent to it, and what it can is found again."""

from dataclasses import dataclass, field, replace

from tests.admission.rig import Rig
from tests.control.policies.conftest import Look
from tests.fakes import engine_look, tiny_card

from surgetank.admission.gate import GateConfig
from surgetank.admission.limits import Limit
from surgetank.control.journal import Journal
from surgetank.control.policies.concurrency import (
    GROWTH,
    LOOKS,
    QUIET,
    EachLearns,
    Learned,
    Sight,
    learn,
    step,
)
from surgetank.engine.backends.remote.found import Found, Signals, Vitals
from surgetank.telemetry.clock import ManualClock

FOUND = Found("vllm", "1", tiny_card(), ("m",))
MAXIMUM = 8.0  # of the snapshots that are looked at: the engine's slots, as far as we know


@dataclass
class Played:
    """An engine that runs `runs` of what it gets; control passes come four a second."""

    look: Look
    runs: int
    others: int = 0  # requests of somebody else that it has before ours
    refuses: bool = False
    limit: float = MAXIMUM
    state: Learned = field(default_factory=Learned)
    now: float = 0.0
    pushbacks: int = 0

    def go(self, seconds: float, *, demand: int = 100) -> float:
        for _ in range(int(seconds * 4)):
            self.now += 0.25
            ours = min(demand, int(self.limit))
            running = min(self.runs, ours + self.others)
            waiting = ours + self.others - running
            if self.refuses and waiting:
                ours, self.pushbacks = ours - waiting, self.pushbacks + waiting
                waiting = 0
            told = Signals(at=float(int(self.now)), running=running, waiting=waiting)
            if self.refuses:
                told = Signals()
            self.state, wanted = step(
                self.state,
                GateConfig(),
                self.look(
                    self.now,
                    queued=demand - ours,
                    dispatched_seqs=ours,
                    vitals=Vitals("vllm", "", FOUND, told, None, self.pushbacks),
                ),
            )
            self.limit = min(MAXIMUM, wanted[Limit.IN_FLIGHT_SEQS])
        return self.limit


def test_a_standing_queue_brings_the_limit_down_to_what_runs(look: Look) -> None:
    engine = Played(look, runs=3)
    assert engine.go(LOOKS - 2) == MAXIMUM  # it may be a queue that passes
    assert engine.go(3) == 3


def test_requests_turned_away_do_so_at_once(look: Look) -> None:
    engine = Played(look, runs=5, refuses=True)
    assert engine.go(0.25) == 5


def test_the_limit_is_tried_slowly_and_found_again(look: Look) -> None:
    engine = Played(look, runs=2)
    assert engine.go(LOOKS + 1) == 2
    assert engine.go(QUIET / 2) == 2
    tried = [engine.go(0.25) for _ in range(int(4 * (QUIET + LOOKS)))]
    assert {2, 3} == set(tried)  # a try, which shows a queue
    assert tried.count(3) <= 4 * LOOKS
    engine.runs = 8
    engine.go(7 * (QUIET + 1))
    assert engine.state.limit is None  # nothing is left to learn
    assert engine.limit == MAXIMUM


def test_it_does_not_grow_while_nobody_waits_for_it(look: Look) -> None:
    engine = Played(look, runs=2)
    engine.go(LOOKS + 1)
    assert engine.go(5 * QUIET, demand=1) == 2


def test_a_queue_of_others_is_not_our_doing(look: Look) -> None:
    engine = Played(look, runs=8, others=8)
    assert engine.go(LOOKS + 5) == 8
    engine = Played(look, runs=3, others=8)
    assert engine.go(LOOKS + 5) == 3


def told(of_others: int, pushbacks: int = 0) -> Sight:
    """At a moment at which we have five there, and more of ours wait."""
    vitals = Vitals("vllm", "", FOUND, Signals(at=0.0, running=5.0), None, pushbacks)
    return Sight(QUIET, vitals, 5, of_others, waits=True)


def test_what_is_learned_is_of_all_that_it_has() -> None:
    refused = learn(Learned(), 100.0, told(3, pushbacks=1))
    assert refused.limit == 8  # five of ours, and three
    grown = learn(Learned(limit=8.0), 100.0, told(2))
    assert grown.limit == 9  # of eight two are others', and half a slot is left free: it is met
    assert learn(Learned(limit=12.0), 100.0, told(3)).limit == 12  # three more of ours may go in


def test_the_limit_is_what_others_leave_of_it(look: Look) -> None:
    engines = (engine_look("a", others=1),)
    seen = look(QUIET, queued=1, engines=engines, dispatched_seqs=5, vitals=told(2).vitals)
    state, wanted = step(Learned(limit=4.0), GateConfig(), seen)
    assert state.limit == 5
    assert wanted == {Limit.IN_FLIGHT_SEQS: 3}  # of four


def test_an_engine_that_refused_all_for_a_moment_soon_has_what_it_had(look: Look) -> None:
    engine = Played(look, runs=6)
    engine.go(5, demand=6)
    engine.refuses, engine.runs = True, 0
    assert engine.go(2) == 1
    engine.runs = 8
    assert [engine.go(1) for _ in range(4)] == [2, 4, 6, 6]
    assert engine.go(QUIET / 2) == 6  # what it never had is tried slowly
    assert engine.go(QUIET) == 7


def test_an_engine_that_became_smaller_is_not_driven_full_again_and_again(look: Look) -> None:
    engine = Played(look, runs=6)
    engine.go(5, demand=6)
    engine.refuses, engine.runs = True, 2
    engine.go(1)
    before = engine.pushbacks
    assert engine.go(QUIET - 1) == 2
    assert engine.pushbacks == before + 2  # at one try of 4
    engine.go(QUIET)
    assert engine.pushbacks <= before + 3


def test_one_is_the_least(look: Look) -> None:
    engine = Played(look, runs=0)
    assert engine.go(60) == 1


def test_a_lost_engine_is_forgotten(look: Look) -> None:
    engine = Played(look, runs=2)
    engine.go(LOOKS + 1)
    gone = look(99.0, vitals=Vitals("vllm", pushbacks=7))
    state, wanted = step(engine.state, GateConfig(), gone)
    assert state == Learned(pushbacks=7)
    assert wanted == {Limit.IN_FLIGHT_SEQS: GateConfig().in_flight_seqs}


def test_each_of_several_engines_has_a_limit_of_its_own(look: Look) -> None:
    held: dict[str, float | None] = {}
    journal = Journal(ManualClock(), None)
    learn = EachLearns(GateConfig(), held.__setitem__, journal)
    base = Rig(engines=2).desk.snapshot()

    def pass_at(at: float, pushbacks: int, wants: tuple[int, int]) -> None:
        vitals = Vitals("vllm", "", FOUND, Signals(), None, pushbacks)
        looks = (
            replace(
                base.engines[0],
                vitals=vitals,
                dispatched_seqs=wants[0],
                learned_slots=held.get("0"),
            ),
            replace(base.engines[1], vitals=replace(vitals, pushbacks=0), dispatched_seqs=wants[1]),
        )
        learn(look(at, engines=looks))

    pass_at(1.0, 2, (5, 7))
    assert held == {"0": 5.0}
    pass_at(1.0 + QUIET, 2, (5, 7))
    assert held == {"0": 6.0}  # a try
    changes = [(each.what, each.before, each.after) for each in journal.recent()]
    assert changes == [
        ("in_flight_seqs of 0", 8.0, 5.0),  # the engine's slots, until it taught something
        ("in_flight_seqs of 0", 5.0, 6.0),
    ]
    held.clear()
    pass_at(2.0 + QUIET, 2, (5, 7))
    assert held == {"0": 6.0}  # an engine that is not held to it any more is, again
    assert step(Learned(), GateConfig(), look(1.0, engines=base.engines)) == (Learned(), {})


def test_the_embedded_engine_tells_its_steps_and_is_left_alone(look: Look) -> None:
    assert step(Learned(), GateConfig(), look(1.0)) == (Learned(), {})


def test_large_limits_grow_by_a_share(look: Look) -> None:
    state = Learned(limit=100.0)
    snapshot = look(
        QUIET, queued=1, dispatched_seqs=100, vitals=Vitals("vllm", "", FOUND, Signals())
    )
    views = tuple(replace(view, maximum=500.0) for view in snapshot.limits)
    _, wanted = step(state, GateConfig(), replace(snapshot, limits=views))
    assert wanted[Limit.IN_FLIGHT_SEQS] == 100 + 100 * GROWTH
