"""Whatever happens in whatever order: received = outcomes + in flight, and all is given back."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.admission.rig import Door, Rig
from tests.fakes import tiny_card

from surgetank.admission.gate import GateConfig
from surgetank.admission.hints import MAX_HINT, MIN_HINT
from surgetank.admission.limits import Limit
from surgetank.admission.outcome import Refusal
from surgetank.admission.ticket import Ticket
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.vocabulary import FinishReason, Outcome, Priority, Reason


def gauge(recorder: Recorder, name: str) -> list[float]:
    """A gauge's values, as a scrape would see them."""
    readings = recorder.registry.read()
    samples = next(each.samples for each in readings if each.spec.name == name)
    return [value for value in samples.values() if isinstance(value, float)]


class Storm(RuleBasedStateMachine):
    """Clients, engine, operator and clock, all at random."""

    def __init__(self) -> None:
        super().__init__()
        config = GateConfig(queue_requests=6, queue_tokens=200, in_flight_seqs=3, queue_wait=20)
        self.rig = Rig(config, tiny_card(kv_blocks=40))
        self.doors: list[Door] = []
        self.arrived: list[Ticket] = []
        self.drained = 0

    @rule()
    def arrive(self) -> None:
        self.arrived.append(self.rig.arrive([("x-stainless-retry-count", "1")]))

    @precondition(lambda self: self.arrived)
    @rule(outcome=st.sampled_from([Outcome.INVALID, Outcome.CANCELLED, Outcome.OVERLOAD]))
    def refuse(self, outcome: Outcome) -> None:
        refusal = Refusal(outcome, Reason.BAD_REQUEST, "refused by its door")
        self.rig.desk.refuse(self.arrived.pop(), refusal)

    @precondition(lambda self: self.rig.desk.ready())
    @rule(
        prompt=st.integers(1, 300),
        n=st.integers(1, 9),
        stream=st.booleans(),
        priority=st.sampled_from(Priority),
        timeout=st.sampled_from(["", "0.5", "5"]),
    )
    def submit(self, prompt: int, n: int, stream: bool, priority: Priority, timeout: str) -> None:
        headers = [("x-stainless-read-timeout", timeout)] if timeout else []
        self.doors.append(
            self.rig.send(
                prompt=prompt, n=n, stream=stream, priority=priority, headers=headers, stop=["E"]
            )
        )

    @precondition(lambda self: self.doors)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.doors)).call
        if call is not None:
            call.cancel()

    @precondition(lambda self: self.rig.backend.open)
    @rule(
        data=st.data(),
        text=st.sampled_from(["", "a", "E", "aEb"]),
        finish=st.sampled_from([None, None, *FinishReason]),
    )
    def tokens(self, data: st.DataObject, text: str, finish: FinishReason | None) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.rig.backend.open)))
        index = data.draw(st.integers(0, self.rig.backend.open[request_id][0].n - 1))
        self.rig.backend.emit(request_id, text, index=index, finish=finish)

    @precondition(lambda self: self.rig.backend.open)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self.rig.backend.finish(data.draw(st.sampled_from(sorted(self.rig.backend.open))))

    @rule()
    def engine_restarts(self) -> None:
        self.rig.backend.die()
        self.check()
        self.rig.backend.come_up(self.rig.desk.find("tiny").card if self.rig.desk.ready() else CARD)

    @rule(seconds=st.sampled_from([0.01, 1.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.rig.timer.advance(seconds)

    @rule(
        limit=st.sampled_from([Limit.QUEUE_REQUESTS, Limit.IN_FLIGHT_SEQS]), value=st.integers(1, 8)
    )
    def operator(self, limit: Limit, value: int) -> None:
        until = self.rig.clock.monotonic() + 2
        self.rig.desk.limits.override(limit, value, until=until, who="op", why="test")

    @rule()
    def drain(self) -> None:
        self.rig.desk.drain(self._count_drained)

    @rule()
    def undrain(self) -> None:
        self.rig.desk.undrain()

    def _count_drained(self) -> None:
        assert not self.rig.desk.snapshot().queue_requests
        self.drained += 1

    @invariant()
    def check(self) -> None:
        rig, desk = self.rig, self.rig.desk.snapshot()
        rig.check_conservation()
        alive = [door for door in self.doors if door.outcome is None]
        assert rig.recorder.in_flight() == len(alive) + len(self.arrived)
        tickets = [door.call.ticket for door in alive if door.call is not None]
        queued = [ticket for ticket in tickets if ticket.dispatched_at is None]
        running = [ticket for ticket in tickets if ticket.dispatched_at is not None]
        assert desk.queue_requests == sum(ticket.n for ticket in queued)
        assert desk.queue_tokens == sum(ticket.prompt_tokens for ticket in queued)
        assert desk.dispatched_seqs == sum(ticket.n for ticket in running)
        assert desk.dispatched == len(running)
        assert bool(desk.kv_blocks_reserved) == bool(running)
        assert desk.queue_requests <= 8
        assert sum(gauge(rig.recorder, "queue_requests")) == len(queued)
        assert sum(gauge(rig.recorder, "queue_tokens")) == desk.queue_tokens

    @invariant()
    def hints_are_in_range(self) -> None:
        for ended in self.rig.desk.recent():
            hint = ended.refusal.retry_after if ended.refusal else None
            assert hint is None or MIN_HINT <= hint < MAX_HINT

    def teardown(self) -> None:
        self.rig.backend.die()
        for ticket in self.arrived:
            self.rig.desk.refuse(ticket, Refusal(Outcome.CANCELLED, Reason.CLIENT_GONE, "gone"))
        assert self.rig.recorder.in_flight() == 0
        assert all(door.outcome is not None for door in self.doors)


CARD = tiny_card(kv_blocks=40)
Storm.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestStorm = Storm.TestCase
