"""Engines that speak HTTP: what one does not take goes to another, and its client hears of one."""

import random
from dataclasses import dataclass, field

import pytest
from tests.admission.rig import VirtualTimer
from tests.fakes import tiny_card

from surgetank.admission.api import End
from surgetank.admission.desk import FrontDesk
from surgetank.admission.relay import RelayAdapter, RelayAsk, RelayEngine
from surgetank.admission.routing.affinity import prefix_key
from surgetank.engine.api import ModelCard, Settings
from surgetank.engine.backends.remote.api import (
    AnswerHead,
    AnswerSink,
    Carrier,
    Forward,
    Usage,
)
from surgetank.engine.backends.remote.config import Role
from surgetank.engine.backends.remote.found import Found, Vitals
from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.registry import Registry
from surgetank.telemetry.steprecord import StepRecord
from surgetank.telemetry.vocabulary import Outcome, Priority, Reason

OK, FULL, BROKEN = AnswerHead(200, ()), AnswerHead(503, ()), AnswerHead(500, ())


@dataclass(eq=False)
class PlayedRemote:
    """An engine that the test answers for."""

    models: tuple[str, ...]
    card: ModelCard | None = field(default_factory=tiny_card)
    last_step: StepRecord | None = None
    sent: dict[int, tuple[Forward, AnswerSink]] = field(default_factory=dict)

    @property
    def vitals(self) -> Vitals:
        found = None if self.card is None else Found("vllm", "1", self.card, self.models)
        return Vitals("vllm", "http://x", found)

    def stalled_for(self, now: float) -> float | None:
        return 0.0

    def apply(self, settings: Settings) -> None:
        raise AssertionError("its budgets are its own")

    def forward(self, request_id: int, request: Forward, sink: AnswerSink) -> None:
        self.sent[request_id] = (request, sink)

    def cancel(self, request_id: int) -> None:
        self.sent.pop(request_id, None)

    def hold(self, request_id: int, held: bool) -> None:
        raise AssertionError("nobody is slow")

    def only(self) -> tuple[Forward, AnswerSink]:
        (sent,) = self.sent.values()
        return sent


@dataclass
class Client:
    """Implements RelayListener."""

    heads: list[AnswerHead] = field(default_factory=list)
    data: bytes = b""
    ends: list[End] = field(default_factory=list)

    def on_head(self, head: AnswerHead) -> None:
        self.heads.append(head)

    def on_data(self, data: bytes, between: bool) -> None:
        self.data += data

    def direct(self) -> None:
        """Never."""

    def on_end(self, end: End, complete: bool) -> None:
        self.ends.append(end)


class Proxy:
    """Implements Carrier."""

    def go(self, url: str, request: Forward, sink: AnswerSink) -> None:
        raise AssertionError("the played engine does not ask it to")


class Pair:
    """Two engines behind a desk; both answer to m, each to a name of its own besides."""

    def __init__(self, **roles: Role) -> None:
        self.a, self.b = PlayedRemote(("tiny", "m", "x")), PlayedRemote(("tiny", "y", "m"))
        clock = ManualClock()
        adapter = RelayAdapter(
            RelayEngine(self.a, "a", roles.get("a", Role.BOTH)),
            RelayEngine(self.b, "b", roles.get("b", Role.BOTH), pass_priority=True),
            affinity_characters=5,
        )
        self.desk = FrontDesk(
            adapter=adapter,
            recorder=Recorder(Registry(Process.SIDECAR)),
            clock=clock,
            rng=random.Random(1),
            call_later=VirtualTimer(clock).call_later,
        )
        for remote, watcher in zip((self.a, self.b), self.desk.engines.watchers, strict=True):
            assert remote.card is not None
            watcher.on_up(remote.card)

    def ask(
        self,
        beginning: str = "",
        *,
        stream: bool = True,
        carrier: Carrier | None = None,
        tenant: str = "",
        body: bytes = b'{"prompt":"hi"}',
    ) -> Client:
        client, ticket = Client(), self.desk.arrive("http", ())
        ticket.stream, ticket.priority, ticket.tenant = stream, Priority.BATCH, tenant
        forward = Forward("/v1/completions", (), body, 3, stream=stream, carrier=carrier)
        ask = RelayAsk(forward, 8, 1, False, 2, lambda body, most: body, beginning=beginning)
        self.desk.submit(ticket, self.desk.find("m"), ask, client)
        return client


@pytest.mark.parametrize("lost", [False, True])
def test_what_an_engine_does_not_take_another_answers(lost: bool) -> None:
    pair = Pair()
    client = pair.ask()
    _, sink = pair.a.only()
    if lost:
        sink.on_lost("the engine hung up")
    else:
        sink.on_head(FULL)
        assert not pair.a.sent  # hung up, unread
    _, other = pair.b.only()
    other.on_head(OK)
    other.on_data(b"data: 1\n\n", 1, True)
    other.on_done(Usage(output_tokens=1))
    assert client.heads == [OK]
    assert client.data == b"data: 1\n\n"
    assert [end.outcome for end in client.ends] == [Outcome.OK]
    assert [look.moved_away for look in pair.desk.snapshot().engines] == [1, 0]
    assert [look.faults for look in pair.desk.snapshot().engines] == [int(lost), 0]


def test_the_client_hears_that_all_are_full() -> None:
    pair = Pair()
    client = pair.ask()
    pair.a.only()[1].on_head(FULL)
    pair.b.only()[1].on_head(FULL)
    assert client.heads == []
    assert [end.outcome for end in client.ends] == [Outcome.OVERLOAD]


def test_nothing_moves_after_the_head() -> None:
    pair = Pair()
    client = pair.ask()
    pair.a.only()[1].on_head(OK)
    pair.a.only()[1].on_lost("the engine hung up")
    assert [end.outcome for end in client.ends] == [Outcome.BACKEND_DOWN]
    assert not pair.b.sent


def test_one_that_could_not_be_sent_is_not_suspected() -> None:
    pair = Pair()
    pair.ask()
    (ticket,) = pair.desk.peek.live()
    pair.a.only()[1].on_lost("the engine cannot be reached: connection refused", begun=False)
    assert (ticket.engine, ticket.deaths) == ("b", 0)
    pair.b.only()[1].on_lost("the engine hung up")
    assert (ticket.deaths, ticket.reason) == (1, Reason.ENGINE_LOST)


def test_who_waits_is_told_that_the_engines_are_lost_and_no_addresses() -> None:
    pair = Pair()
    clients = [pair.ask() for _ in range(17)]  # eight to each, and one waits
    for remote, watcher in zip((pair.a, pair.b), pair.desk.engines.watchers, strict=True):
        remote.card = None
        watcher.on_down("http://10.0.0.7:8000/v1/models: connection refused")
    told = {end.refusal.message for client in clients for end in client.ends if end.refusal}
    assert told == {"backend down: the engine was lost"}
    assert sum(len(client.ends) for client in clients) == 17


@pytest.mark.parametrize("lost", [False, True])
def test_what_a_proxy_carries_cannot_go_elsewhere(lost: bool) -> None:
    pair = Pair()
    client = pair.ask(carrier=Proxy())
    _, sink = pair.a.only()
    if lost:
        sink.on_lost("the engine hung up")
    else:
        sink.on_head(FULL)
    assert [end.outcome for end in client.ends] == [
        Outcome.BACKEND_DOWN if lost else Outcome.OVERLOAD
    ]
    assert not pair.b.sent


def test_the_prompt_of_a_plain_answer_counts_as_read_at_once() -> None:
    pair = Pair()
    pair.ask()
    pair.ask(stream=False)
    assert [look.unread for look in pair.desk.snapshot().engines] == [3, 0]


def test_one_tenants_errors_take_no_engine_from_the_others() -> None:
    """Its prompts differ, and each engine fails at each: four times as many are needed."""
    pair = Pair()
    for number in range(38):
        pair.ask(tenant="ann", body=b'{"prompt":"%d"}' % number)
        (sink,) = (sink for each in (pair.a, pair.b) for _, sink in each.sent.values())
        sink.on_head(BROKEN)
        sink.on_done(Usage())
        pair.a.sent.clear()
        pair.b.sent.clear()
    looks = pair.desk.snapshot().engines
    assert [(look.faults, look.ejections) for look in looks] == [(19, 0), (19, 0)]


def test_an_engines_own_error_goes_to_the_client_and_counts_as_a_fault() -> None:
    pair = Pair()
    client = pair.ask()
    _, sink = pair.a.only()
    sink.on_head(BROKEN)
    sink.on_done(Usage())
    assert client.heads == [BROKEN]
    assert [end.outcome for end in client.ends] == [Outcome.INTERNAL]
    assert [look.faults for look in pair.desk.snapshot().engines] == [1, 0]


def test_each_engine_is_told_of_classes_as_it_wants() -> None:
    pair = Pair()
    pair.ask()
    pair.ask()
    assert pair.a.only()[0].body == b'{"prompt":"hi"}'
    assert pair.b.only()[0].body == b'{"prompt":"hi","priority":2}'


def test_served_are_the_names_that_all_answer_to() -> None:
    assert Pair().desk.names() == ["tiny", "m", "default"]
    assert Pair(b=Role.PREFILL).desk.names() == ["tiny", "m", "x", "default"]


def test_an_engine_that_only_reads_prompts_gets_no_requests() -> None:
    pair = Pair(a=Role.PREFILL)
    for _ in range(3):
        pair.ask()
    assert (len(pair.a.sent), len(pair.b.sent)) == (0, 3)


def test_a_beginning_says_where_a_prompt_belongs() -> None:
    pair = Pair()
    pair.ask("Hello")
    (ticket,) = pair.desk.peek.live()
    assert ticket.prefix is not None
    assert ticket.prefix.key == prefix_key("Hello")
    assert ticket.prefix.tokens == 1
