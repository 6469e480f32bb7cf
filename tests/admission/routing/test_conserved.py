"""Whatever engines, clients and clock do in whatever order: each request ends once, is in one
engine at a time, and moves to no other after its first byte."""

import random

import pytest
from tests.admission.rig import Door, Rig
from tests.fakes import tiny_card

from surgetank.admission import refusals
from surgetank.admission.gate import GateConfig
from surgetank.admission.routing.affinity import Prefix
from surgetank.admission.routing.config import RoutingConfig
from surgetank.admission.work import Work
from surgetank.engine.api import StepOutput
from surgetank.telemetry.vocabulary import Priority

CARDS = (tiny_card(max_num_seqs=3), tiny_card(max_num_seqs=2, kv_blocks=60), tiny_card(name="b"))
ROUTING = RoutingConfig(eject_after=2, eject_for=3, slow_start=10)
STEPS = 250


class Storm:
    """Three engines, and what happens to them at random."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        config = GateConfig(queue_requests=8, queue_wait=20)
        self.rig = Rig(config, CARDS[0], engines=3, routing=ROUTING)
        self.doors: list[Door] = []
        self.spoken: dict[Work, str] = {}  # at which engine
        self.events = {
            self.submit: 6,
            self.tokens: 6,
            self.finish: 4,
            self.cancel: 1,
            self.turn_away: 4,
            self.die: 1,
            self.come_up: 2,
            self.stall: 1,
            self.step: 2,
            self.drain: 0.5,
            self.undrain: 1,
            self.wait: 2,
        }

    def go(self) -> None:
        (event,) = self.rng.choices(list(self.events), list(self.events.values()))
        event()

    def submit(self) -> None:
        if not self.rig.desk.ready():
            return
        choice = self.rng.choice
        prompt, key, timeout = choice([1, 30, 300]), choice([b"", b"x", b"y"]), choice(["", "5"])
        door = self.rig.send(
            prompt=prompt,
            n=choice([1, 1, 2]),
            priority=choice(list(Priority)),
            headers=[("x-stainless-read-timeout", timeout)] if timeout else [],
            prefix=Prefix(key, prompt) if key else None,
        )
        self.doors.append(door)

    def tokens(self) -> None:
        """One for each sequence of an engine."""
        at = self.rng.randrange(3)
        self.spoken |= dict.fromkeys(self.within(at), str(at))
        for request_id in sorted(self.rig.backends[at].open):
            self.rig.backends[at].emit(request_id, "a")

    def finish(self) -> None:
        backend = self.rng.choice(self.rig.backends)
        if backend.open:
            backend.finish(self.rng.choice(sorted(backend.open)))

    def cancel(self) -> None:
        if self.doors and (call := self.rng.choice(self.doors).call) is not None:
            call.cancel()

    def turn_away(self) -> None:
        unspoken = [each for at in range(3) for each in self.within(at) if each not in self.spoken]
        if unspoken:
            lost, full = refusals.backend_down("hung up"), refusals.pushback(429)
            self.rig.desk.turned_away(self.rng.choice(unspoken), self.rng.choice([lost, full]))

    def die(self) -> None:
        backend = self.rng.choice(self.rig.backends)
        if backend.card is not None:
            backend.die()

    def come_up(self) -> None:
        backend = self.rng.choice(self.rig.backends)
        if backend.card is None:
            backend.come_up(self.rng.choice(CARDS))

    def stall(self) -> None:
        self.rng.choice(self.rig.backends).stalled = self.rng.choice([0.0, 5.0])

    def step(self) -> None:
        at = self.rng.randrange(3)
        if self.rig.backends[at].card is not None:
            self.rig.desk.engines.watchers[at].on_step(StepOutput([], [], None))

    def drain(self) -> None:
        self.rig.desk.engines.drain(self.rng.choice("012"))

    def undrain(self) -> None:
        self.rig.desk.engines.undrain(self.rng.choice("012"))

    def wait(self) -> None:
        self.rig.timer.advance(self.rng.choice([0.1, 1.0, 10.0]))

    def within(self, at: int) -> list[Work]:
        """Who is in that engine."""
        calls = [door.call for door in self.doors if door.call is not None]
        return [
            each
            for each in calls
            if each.permit is not None and each.side is not None and each.side.at == at
        ]

    def check(self) -> None:
        self.rig.check_conservation()
        whole = self.rig.desk.snapshot()
        assert whole.dispatched_seqs == sum(look.dispatched_seqs for look in whole.engines)
        for at, backend in enumerate(self.rig.backends):
            ours = self.within(at)
            assert whole.engines[at].dispatched == len(ours)
            assert {call.request_id for call in ours} == set(backend.open)
        for call, engine in self.spoken.items():
            assert call.ticket.engine == engine
        for door in self.doors:
            assert len(door.ends) <= 1
            if door.call is not None:
                assert (door.outcome is None) == (door.call.ticket.outcome is None)

    def end(self) -> None:
        self.rig.desk.end_all()
        self.check()
        whole = self.rig.desk.snapshot()
        assert (whole.dispatched, whole.dispatched_seqs, whole.kv_blocks_reserved) == (0, 0, 0)
        assert whole.queue_requests == 0
        assert [look.unread for look in whole.engines] == [0, 0, 0]


@pytest.mark.parametrize("seed", range(20))
def test_each_request_ends_once_and_is_in_one_engine(seed: int) -> None:
    storm = Storm(seed)
    for _ in range(STEPS):
        storm.go()
        storm.check()
    storm.end()
    looks = storm.rig.desk.snapshot().engines
    assert sum(look.moved_away for look in looks) > 0
    assert storm.spoken
