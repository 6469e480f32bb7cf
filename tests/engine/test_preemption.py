"""Who gives way, for whom, how many at once, how often, and what becomes of their blocks."""

import math
from dataclasses import replace

import pytest
from tests.engine.scheduling import World, orders, request, victims

from surgetank.engine.plan import Budget
from surgetank.engine.policies.table import POLICIES
from surgetank.telemetry.vocabulary import PreemptionKind, PreemptionReason, Priority

BUDGET = Budget(tokens=60, prefill_tokens=60, sequences=3, spare_blocks=0, displace=True)
CRITICAL, BATCH, SHEDDABLE = Priority.CRITICAL, Priority.BATCH, Priority.SHEDDABLE


def by_class(blocks: int = 100, host_blocks: int = 0) -> World:
    return World(blocks, POLICIES["priority"], host_blocks)


def test_a_higher_class_takes_the_slot_of_the_lowest_with_the_least_to_lose() -> None:
    world = by_class()
    world.add(
        request(1, 5, priority=BATCH),
        request(2, 30, priority=SHEDDABLE),
        request(3, 8, priority=SHEDDABLE),
    )
    world.step(BUDGET)
    world.add(request(4, 5, priority=CRITICAL))
    plan = world.step(BUDGET)
    assert (victims(plan), orders(plan.admitted)) == ([3], [4])
    assert orders(plan.decode) == [1, 2]
    (preempted,) = plan.preempted
    assert (preempted.reason, preempted.kind, preempted.tokens) == (
        PreemptionReason.PRIORITY,
        PreemptionKind.RECOMPUTE,
        8,
    )
    assert orders(world.view.waiting) == [3]


def test_a_higher_class_takes_as_many_blocks_as_it_lacks_and_no_more() -> None:
    world = by_class(blocks=12)
    roomy = replace(BUDGET, sequences=8)
    world.add(*(request(order, length, priority=BATCH) for order, length in [(1, 6), (2, 22)]))
    world.add(*(request(order, length, priority=BATCH) for order, length in [(3, 30), (4, 6)]))
    world.step(roomy)  # 1 + 3 + 4 + 1 of 12 blocks
    world.add(request(5, 33, priority=CRITICAL))  # 5 blocks; 3 are free
    plan = world.step(roomy)
    assert (victims(plan), orders(plan.admitted)) == ([4, 1], [5])
    world.add(request(6, 23, priority=CRITICAL))  # 3 blocks; the 22 tokens of the second have them
    plan = world.step(roomy)
    assert (victims(plan), orders(plan.admitted)) == ([2], [6])


def test_small_victims_are_spared_when_a_large_one_is_needed_anyway() -> None:
    world = by_class(blocks=5)
    roomy = replace(BUDGET, sequences=8)
    world.add(request(1, 6, priority=BATCH), request(2, 30, priority=BATCH))  # 1 + 4 blocks
    world.step(roomy)
    world.add(request(3, 30, priority=CRITICAL))
    assert victims(world.step(roomy)) == [2]


@pytest.mark.parametrize("policy", ["fcfs", "priority", "deadline"])
def test_equals_never_displace_each_other(policy: str) -> None:
    world = World(policy=POLICIES[policy])
    world.add(*(request(order, 5, priority=BATCH, deadline=9.0) for order in (1, 2, 3)))
    world.step(BUDGET)
    world.add(request(4, 5, priority=BATCH, deadline=1.0))
    for _ in range(20):
        assert world.step(BUDGET).preempted == []
    assert orders(world.view.waiting) == [4]


def test_nobody_is_put_back_when_that_would_not_be_enough_or_not_at_once() -> None:
    world = by_class(blocks=6)
    world.add(request(1, 30), request(2, 6, priority=BATCH))
    world.step(BUDGET)
    world.add(request(3, 30, priority=CRITICAL))  # 4 blocks: both would have to go
    budget = replace(BUDGET, preemptions=1)
    world.view.running[0].preemptions = 1  # the first is exempt
    assert world.step(budget).preempted == []
    busy = by_class()
    busy.add(request(1, 6, priority=BATCH), request(2, 500, priority=BATCH))
    busy.step(replace(BUDGET, sequences=2))
    busy.view.running[1].priority = Priority.CRITICAL
    busy.add(request(3, 6, priority=Priority.CRITICAL))
    plan = busy.step(replace(BUDGET, sequences=2))
    assert (plan.preempted, plan.admitted) == ([], [])  # one long prompt has every token


def test_blocks_that_victim_and_newcomer_share_are_not_won_twice() -> None:
    world = by_class(blocks=5)
    victim, stays = request(1, 20, priority=BATCH), request(2, 12, priority=CRITICAL)
    world.add(victim, stays)
    world.step(BUDGET)  # 3 + 2 blocks
    first = request(3, 28, priority=CRITICAL)
    first.tokens[:16] = victim.tokens[:16]
    world.add(first)  # 4 blocks, 2 of them the victim's: with its third, one is missing
    assert world.step(BUDGET).preempted == []


def test_nobody_slips_in_behind_the_one_who_made_others_go() -> None:
    world = by_class(blocks=5)
    roomy = replace(BUDGET, sequences=8)
    world.add(request(1, 35, priority=BATCH))
    world.step(roomy)
    world.add(request(2, 8, priority=CRITICAL), request(3, 8, priority=BATCH))
    plan = world.step(roomy)
    assert (victims(plan), orders(plan.admitted)) == ([1], [2])


def test_the_cap_exempts_and_fcfs_and_a_setting_forbid() -> None:
    for changes in ({"displace": False}, {"preemptions": 0}):
        world = by_class()
        world.add(*(request(order, 5, priority=BATCH) for order in (1, 2, 3)))
        world.step(BUDGET)
        world.add(request(4, 5, priority=CRITICAL))
        assert world.step(replace(BUDGET, **changes)).preempted == []


def test_the_displaced_keep_their_place_and_come_back_before_later_equals() -> None:
    world = by_class()
    world.add(*(request(order, 5, priority=BATCH) for order in (1, 2, 3, 4)))
    world.step(BUDGET)
    world.add(request(5, 5, priority=CRITICAL))
    assert victims(world.step(BUDGET)) == [3]
    assert orders(world.view.waiting) == [3, 4]
    done = world.view.running.pop()
    world.view.kv.release(done.table)
    assert orders(world.step(BUDGET).admitted) == [3]


def test_exempt_sequences_pause_while_others_go_on_and_the_last_resort_ends_a_deadlock() -> None:
    world = World(blocks=4)
    budget = Budget(60, 60, 4, 0, preemptions=0)
    world.add(request(1, 7), request(2, 7), request(3, 6))
    world.step(budget)  # three of four blocks; each has its first token
    world.step(budget)  # 8, 8 and 7 tokens stored
    plan = world.step(budget)
    assert (orders(plan.decode), plan.starved, plan.preempted) == ([1, 3], 1, [])
    for _ in range(7):
        plan = world.step(budget)
        assert (orders(plan.decode), plan.starved) == ([1], 2)
    plan = world.step(budget)  # all three would need a block, and there is none
    assert (victims(plan), orders(plan.decode), plan.starved) == ([3], [1], 1)


def test_a_swap_is_chosen_when_it_is_cheaper_and_there_is_room() -> None:
    def kind(budget: Budget, host_blocks: int = 10) -> PreemptionKind:
        world = by_class(host_blocks=host_blocks)
        world.add(*(request(order, 16, priority=BATCH) for order in (1, 2, 3)))
        world.step(BUDGET)
        world.add(request(4, 5, priority=CRITICAL))
        (preempted,) = world.step(budget).preempted
        return preempted.kind

    swap, recompute = PreemptionKind.SWAP, PreemptionKind.RECOMPUTE
    assert kind(replace(BUDGET, recompute_seconds=0.01, swap_seconds=0.079)) is swap  # 2 blocks
    assert kind(replace(BUDGET, recompute_seconds=0.01, swap_seconds=0.081)) is recompute
    forced = replace(BUDGET, recompute_seconds=math.inf, swap_seconds=0.0)
    assert kind(forced) is swap
    assert kind(forced, host_blocks=1) is recompute
    assert kind(BUDGET) is recompute


def test_what_was_swapped_out_comes_back_where_it_was() -> None:
    world = by_class(blocks=8, host_blocks=4)
    budget = replace(BUDGET, recompute_seconds=math.inf, swap_seconds=0.0)
    world.add(request(1, 20, priority=BATCH), request(2, 25, priority=Priority.DEFAULT))
    world.step(budget)
    world.add(request(3, 30, priority=CRITICAL))
    plan = world.step(budget)
    assert victims(plan) == [1]
    assert [host for _, host in plan.swaps_out] == [0, 1, 2]
    assert world.view.kv.host.used == 3
    for sequence in world.view.running:
        world.view.kv.release(sequence.table)
    world.view.running.clear()
    world.view.kv.pool.drop_cached()
    plan = world.step(budget)
    assert [host for host, _ in plan.swaps_in] == [0, 1, 2]
    assert [(each.order, count) for each, count in plan.prefill] == [(1, 1)]  # its newest token
    assert world.view.kv.host.used == 0
    assert world.view.kv.faults([each.table for each in world.view.running]) == []
