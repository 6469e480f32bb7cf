"""The scheduler's numbers: who enters, who reads how much, who decodes, who must give way."""

import pytest
from tests.engine.scheduling import BUDGET, World, chunks, orders, request, victims

from surgetank.engine.plan import Budget
from surgetank.engine.policies.table import POLICIES
from surgetank.engine.sequence import Sequence
from surgetank.telemetry.vocabulary import Priority, SlotState


def test_prompts_are_cut_into_chunks_and_decoding_goes_first() -> None:
    world = World()
    world.add(request(1, 12), request(2, 30), request(3, 5))
    assert chunks(world.step()) == [(1, 12), (2, 8)]
    assert chunks(world.step()) == [(1, 1), (2, 19)]
    assert chunks(world.step()) == [(1, 1), (2, 3), (3, 5)]
    assert chunks(world.step()) == [(1, 1), (2, 1), (3, 1)]


def test_no_step_exceeds_its_budget_and_every_prompt_is_read_once() -> None:
    world = World()
    lengths = [3, 50, 17, 1, 44, 20, 8]
    world.add(*(request(order, length) for order, length in enumerate(lengths)))
    read = dict.fromkeys(range(len(lengths)), 0)
    for _ in range(40):
        plan = world.step()
        assert plan.tokens <= BUDGET.tokens
        for sequence, count in plan.prefill:
            read[sequence.order] += count
        world.view.running = [s for s in world.view.running if not self_finished(world, s)]
    assert read == dict(enumerate(lengths))


def self_finished(world: World, sequence: Sequence) -> bool:
    """After three tokens a sequence leaves, and its slot goes to the next."""
    if sequence.output_len < 3:
        return False
    world.view.kv.release(sequence.table)
    return True


def test_the_prefill_share_leaves_the_rest_to_decoding() -> None:
    world = World()
    world.add(request(1, 4), request(2, 100))
    budget = Budget(tokens=20, prefill_tokens=6, sequences=4, spare_blocks=0)
    assert chunks(world.step(budget)) == [(1, 4), (2, 2)]
    assert chunks(world.step(budget)) == [(1, 1), (2, 6)]


def test_sequences_beyond_the_limit_wait_and_the_reason_is_told() -> None:
    world = World()
    world.add(*(request(order, 2) for order in range(6)))
    plan = world.step()
    assert orders(plan.admitted) == [0, 1, 2, 3]
    assert plan.blocked_by is SlotState.BLOCKED_LIMIT


def test_a_request_of_several_choices_takes_several_slots() -> None:
    world = World()
    world.add(request(1, 2), request(2, 2, followers=[request(2, 2), request(2, 2)]), request(3, 2))
    plan = world.step()
    assert (orders(plan.admitted), plan.blocked_by) == ([1, 2], SlotState.BLOCKED_LIMIT)


def test_a_spent_token_budget_is_the_reason() -> None:
    world = World()
    world.add(request(1, 20), request(2, 5))
    assert world.step().blocked_by is SlotState.BLOCKED_TOKEN_BUDGET
    assert world.step().blocked_by is SlotState.NO_WORK


def test_the_line_stops_at_the_first_that_does_not_fit() -> None:
    world = World(blocks=4)
    world.add(request(1, 16), request(2, 17), request(3, 4))
    plan = world.step()
    assert (orders(plan.admitted), plan.blocked_by) == ([1], SlotState.BLOCKED_KV)


def test_spare_blocks_are_kept_for_the_running_unless_nobody_runs() -> None:
    budget = Budget(tokens=50, prefill_tokens=50, sequences=4, spare_blocks=2)
    world = World(blocks=4)
    world.add(request(1, 20), request(2, 4))
    plan = world.step(budget)
    assert (orders(plan.admitted), plan.blocked_by) == ([1], SlotState.BLOCKED_KV)
    assert world.view.kv.pool.available == 1


def test_the_victim_is_of_the_lowest_class_then_has_the_least_to_lose() -> None:
    world = World(blocks=7)
    world.add(
        request(1, 7, priority=Priority.BATCH),
        request(2, 15, priority=Priority.BATCH),
        request(3, 7),
        request(4, 15),
    )
    budget = Budget(tokens=50, prefill_tokens=50, sequences=4, spare_blocks=0)
    assert len(world.step(budget).admitted) == 4
    world.step(budget)  # each fills its last block
    plan = world.step(budget)  # each needs one more, one is free
    assert victims(plan) == [1, 2]  # with three blocks won, the two others can grow
    assert orders(plan.decode) == [3, 4]
    assert plan.preempted_tokens == 8 + 16
    assert (plan.admitted, plan.blocked_by) == ([], SlotState.BLOCKED_KV)


def test_only_as_many_give_way_as_it_takes() -> None:
    world = World(blocks=4)
    world.add(request(1, 7), request(2, 7), request(3, 7))
    world.step(budget := Budget(30, 30, 4, 0))
    world.step(budget)
    plan = world.step(budget)
    assert (victims(plan), orders(plan.decode)) == ([3], [1, 2])
    for _ in range(7):
        assert world.step(budget).preempted == []
    assert orders(world.view.waiting) == [3]


def test_the_preempted_find_their_old_place_and_what_is_still_cached() -> None:
    world = World(blocks=5)
    world.add(*(request(order, 7) for order in (1, 2, 3)))
    world.step(budget := Budget(30, 30, 4, 0))
    world.step(budget)
    world.step(budget)
    world.add(request(4, 1))
    assert orders(world.view.waiting) == [3, 4]
    for sequence in world.view.running:
        world.view.kv.release(sequence.table)
    world.view.running.clear()
    plan = world.step(budget)
    assert orders(plan.admitted) == [3, 4]
    assert chunks(plan) == [(3, 1), (4, 1)]  # 9 tokens, 8 of them still cached


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("fcfs", [1, 2, 3, 4]), ("priority", [3, 2, 4, 1]), ("deadline", [4, 2, 1, 3])],
)
def test_policies_order_the_line(policy: str, expected: list[int]) -> None:
    world = World(policy=POLICIES[policy])
    world.add(
        request(1, 1, priority=Priority.SHEDDABLE),
        request(2, 1, deadline=9.0),
        request(3, 1, priority=Priority.CRITICAL),
        request(4, 1, deadline=5.0),
    )
    assert orders(world.step().admitted) == expected


def test_chunks_begun_before_follow_the_policy_too() -> None:
    world = World(policy=POLICIES["priority"])
    world.add(request(1, 50, priority=Priority.BATCH))
    world.step()
    world.add(request(2, 10, priority=Priority.CRITICAL))
    assert chunks(world.step()) == [(2, 10), (1, 10)]
    world.add(request(3, 10, priority=Priority.BATCH), request(4, 25, priority=Priority.DEFAULT))
    budget = Budget(tokens=21, prefill_tokens=20, sequences=4, spare_blocks=0)
    assert chunks(world.step(budget)) == [(2, 1), (4, 20)]
    assert chunks(world.step(budget)) == [(2, 1), (4, 5), (1, 15)]


def test_first_come_first_served_reads_on_before_anyone_enters() -> None:
    world = World()
    world.add(request(1, 50, priority=Priority.BATCH))
    world.step()
    world.add(request(2, 10, priority=Priority.CRITICAL))
    assert chunks(world.step()) == [(1, 20)]


def test_fewer_tokens_than_decoding_sequences_serves_the_oldest() -> None:
    world = World()
    world.add(*(request(order, 2) for order in range(4)))
    world.step()
    plan = world.step(Budget(tokens=3, prefill_tokens=3, sequences=4, spare_blocks=0))
    assert orders(plan.decode) == [0, 1, 2]
