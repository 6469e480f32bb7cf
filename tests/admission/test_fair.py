"""Turns among tenants and among classes: bounded gaps, floor shares, and nobody starves."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgetank.admission.cost import Estimate
from surgetank.admission.fair import _KEEP, CREDIT, DEBT, FairOrder
from surgetank.admission.queue import Queue
from surgetank.admission.ticket import Ticket
from surgetank.telemetry.vocabulary import Priority


def ticket(tenant: str = "", cost: float = 1.0, priority: Priority = Priority.DEFAULT) -> Ticket:
    made = Ticket(id="", arrived=0.0, door="http", priority=priority, tenant=tenant)
    made.prompt_tokens, made.estimate = 10, Estimate(1.0, 1, cost)
    return made


def serve(queue: Queue, now: float = 0.0) -> Ticket:
    """Dispatch whoever is next."""
    first = queue.heads()[0]
    queue.remove(first)
    queue.served(first, now)
    return first


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.1, 1.0)), min_size=30, max_size=150),
    st.integers(10, 30),
)
@settings(deadline=None)
def test_tenants_that_wait_differ_by_at_most_two_requests(
    sent: list[tuple[str, float]], turns: int
) -> None:
    order, served = FairOrder(), dict.fromkeys("abc", 0.0)
    for tenant, cost in sent:
        order.add(ticket(tenant, cost))
    for _ in range(turns):
        waiting = {tenant for tenant in "abc" if order.waits(tenant)}
        first = order.next()
        assert first is not None
        order.remove(first)
        order.charge(first.tenant, first.estimate.seconds)
        served[first.tenant] += first.estimate.seconds
        if all(order.waits(tenant) for tenant in waiting) and len(waiting) == 3:
            assert max(served[t] for t in "abc") - min(served[t] for t in "abc") <= 2.0
        else:
            break


def test_a_hog_does_not_delay_a_light_tenant() -> None:
    queue = Queue(0.05)
    for _ in range(100):
        queue.add(ticket("hog"), 0.0)
    for _ in range(5):
        serve(queue)
    queue.add(ticket("light"), 0.0)
    assert [serve(queue).tenant for _ in range(3)].count("light") == 1


def test_an_early_stop_gives_the_rest_back() -> None:
    order = FairOrder()
    for _ in range(3):
        order.add(ticket("a"))
        order.add(ticket("b"))
    order.charge("a", 1.0)
    assert order.next() is not None
    order.charge("b", 1.2)
    order.charge("b", -1.0)
    first = order.next()
    assert first is not None
    assert first.tenant == "b"


def test_idling_earns_no_more_than_the_credit_and_a_debt_fades_to_its_bound() -> None:
    order = FairOrder()
    order.add(ticket("busy"))
    order.charge("busy", 50.0)
    order.add(ticket("new"))
    assert order._counters["new"] == pytest.approx(50.0), "the unknown have no credit"
    order.charge("idle", -40.0)
    order.add(ticket("idle"))
    assert order._counters["idle"] == pytest.approx(50.0 - CREDIT)
    order.charge("gone", 900.0)
    order.add(ticket("gone"))
    assert order._counters["gone"] == pytest.approx(50.0 - CREDIT + DEBT)


def test_counters_of_passers_by_are_bounded() -> None:
    order = FairOrder()
    for number in range(2 * _KEEP):
        passing = ticket(str(number))
        order.add(passing)
        order.remove(passing)
        order.charge(passing.tenant, 1.0)
    assert len(order._counters) <= _KEEP + 1
    assert order.next() is None


def test_what_comes_back_stands_where_it_stood() -> None:
    queue = Queue()
    came = [ticket("a") for _ in range(3)]
    for at, each in enumerate(came):
        queue.add(each, float(at))
    lost = [serve(queue, 3.0), serve(queue, 3.0)]
    for each in lost:
        queue.restore(each, 4.0)
    assert [serve(queue) for _ in came] == came


def test_what_comes_back_is_no_older_than_it_is() -> None:
    queue = Queue()
    old, young = ticket("a"), ticket("b")
    queue.add(old, 0.0)
    queue.add(young, 1.0)
    queue.remove(young)
    queue.restore(young, 5.0)
    assert queue.waited(4.5, 5.0) == [old]
    assert queue.levels(5.0)[Priority.DEFAULT].oldest_age == 5.0
    assert list(queue.newest(Priority.DEFAULT)) == [young, old]


def test_each_lower_class_gets_its_floor_and_the_highest_the_rest() -> None:
    queue, served = Queue(0.05), Counter[Priority]()
    for priority in Priority:
        for _ in range(2000):
            queue.add(ticket(priority=priority), 0.0)
    for _ in range(1000):
        served[serve(queue).priority] += 1
    assert served.total() == 1000
    assert served[Priority.CRITICAL] == pytest.approx(850, abs=5)
    for priority in (Priority.DEFAULT, Priority.BATCH, Priority.SHEDDABLE):
        assert served[priority] == pytest.approx(50, abs=3)


def test_a_floor_is_no_savings_account() -> None:
    queue = Queue(0.05)
    for _ in range(300):
        queue.add(ticket(priority=Priority.CRITICAL), 0.0)
    for _ in range(100):
        serve(queue)
    for _ in range(50):
        queue.add(ticket(priority=Priority.BATCH), 0.0)
    assert Counter(serve(queue).priority for _ in range(100))[Priority.BATCH] <= 6


@given(st.lists(st.tuples(st.sampled_from(Priority), st.sampled_from("ab")), max_size=60))
@settings(deadline=None)
def test_everybody_is_served_once_and_the_sums_come_back_to_zero(
    sent: list[tuple[Priority, str]],
) -> None:
    queue = Queue(0.05)
    tickets = [ticket(tenant, 0.3, priority) for priority, tenant in sent]
    for each in tickets:
        queue.add(each, 0.0)
    served = [serve(queue) for _ in tickets]
    assert {id(each) for each in served} == {id(each) for each in tickets}
    assert (queue.requests, queue.tokens, queue.heads()) == (0, 0, [])
    assert queue.line(ticket(), 0.0).empty


@given(st.integers(0, 40), st.integers(0, 40), st.sampled_from("ab"))
def test_more_waiting_never_means_less_wait(few: int, more: int, tenant: str) -> None:
    waits = []
    for count in sorted((few, few + more)):
        queue = Queue(0.05)
        for _ in range(count):
            queue.add(ticket("a", 0.3), 0.0)
        waits.append(queue.line(ticket(tenant, 0.3), 0.0).seconds(1.0, 0.05, 0.1))
    assert waits[0] <= waits[1] + 1e-9
