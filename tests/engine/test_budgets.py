"""Each step's budget: limits that change live, prompts cut to the time a step may take."""

import pytest
from msgspec import structs
from tests.engine.scheduling import World, chunks, orders, request
from tests.engine.tiny_engine import Client, greedy, prompt_of, tiny_config, tiny_loop

from surgetank.engine.api import Commands, Settings
from surgetank.engine.budgets import Budgets
from surgetank.engine.intake import ProtocolError
from surgetank.engine.kv.manager import KVManager
from surgetank.engine.plan import Budget
from surgetank.engine.policies.table import POLICIES
from surgetank.telemetry.stepmodel import ENOUGH, StepModel
from surgetank.telemetry.vocabulary import FinishReason, Priority, SlotState

MODEL = StepModel(t0=0.010, a=0.001, b=0.002, c=0.0)


def timed(seconds: float, least: int = 1, model: StepModel = MODEL) -> Budget:
    return Budget(100, 100, 8, 0, seconds=seconds, model=model, least_prefill=least)


def busy(budget: Budget) -> World:
    """Two that decode, and a long prompt to read."""
    world = World()
    world.add(request(1, 4), request(2, 4))
    world.step(budget)
    world.add(request(3, 400))
    return world


def test_prompts_are_cut_so_that_the_step_stays_within_its_time() -> None:
    world = busy(timed(0.050))
    assert chunks(world.step(timed(0.050)))[2:] == [(3, 36)]  # 10 + 2 * 2 + 36 ms
    assert chunks(world.step(timed(0.0301)))[2:] == [(3, 16)]


def test_context_counts_too_and_more_of_it_leaves_less_time() -> None:
    model = StepModel(t0=0.010, a=0.0009, b=0.002, c=0.0001)
    world = busy(timed(0.050, model=model))
    first, second = (chunks(world.step(timed(0.050, model=model)))[2][1] for _ in range(2))
    assert (first, second) == (35, 31)  # ms of 36, without 1 and 4.7 for context


def test_a_minimum_is_always_read_and_nobody_decoding_means_no_limit() -> None:
    world = busy(timed(0.001, least=10))
    assert chunks(world.step(timed(0.001, least=10)))[2:] == [(3, 10)]
    alone = World()
    alone.add(request(1, 400))
    assert chunks(alone.step(timed(0.001, least=10))) == [(1, 100)]


def test_a_target_that_decoding_alone_misses_does_not_starve_prompts() -> None:
    slow = StepModel(t0=0.100, a=0.001, b=0.010, c=0.0)
    world = busy(timed(0.050, model=slow))
    assert chunks(world.step(timed(0.050, model=slow)))[2:] == [(3, 60)]  # half of 120 ms


def test_the_minimum_is_for_all_prompts_of_the_step_together() -> None:
    world = busy(timed(0.001, least=10))
    world.add(request(4, 3, priority=Priority.CRITICAL))
    plan = world.step(timed(0.001, least=10))
    assert (plan.prefill_tokens, plan.blocked_by) == (10, SlotState.BLOCKED_TOKEN_BUDGET)


def budgets(**changes: object) -> Budgets:
    config = tiny_config(max_batch_tokens=100, tpot_target=0.05, **changes)
    return Budgets(config, KVManager(64, 8, host_blocks=4, block_bytes=1000))


def fitted(**changes: object) -> Budgets:
    """After steps of every kind, each as MODEL would have it."""
    made = budgets(**changes)
    for step in range(ENOUGH * 10):
        prefill, decode = (step * 7) % 60, step % 8
        made.fit.learn(prefill, decode, 0, MODEL.seconds(prefill, decode, 0))
    return made


def test_the_fit_is_used_once_it_is_believed_and_the_target_can_be_lifted() -> None:
    assert budgets().budget().seconds == float("inf")
    made = fitted()
    assert made.budget().seconds == 0.05
    assert made.budget().model.a == pytest.approx(0.001, rel=0.1)
    made.apply(Settings(tpot_target=0.2))
    assert made.budget().seconds == 0.2
    made.apply(Settings(tpot_target=0))
    assert made.budget().seconds == float("inf")


def test_swap_and_recompute_are_priced_by_what_was_measured() -> None:
    made = fitted()
    assert made.budget().swap_seconds == 0.0  # unmeasured: the first is a trial
    made.swapped(blocks=4, seconds=0.002)
    assert made.budget().swap_seconds == pytest.approx(0.001)  # a block out and in
    assert made.budget().recompute_seconds == pytest.approx(0.001, rel=0.1)
    assert fitted(preemption="recompute").budget().swap_seconds == float("inf")


def test_steps_that_swapped_or_ran_out_of_memory_teach_nothing() -> None:
    client = Client(tiny_loop())
    client.submit([5], greedy(1))
    client.run()
    record = structs.replace(client.records[0], forward=0.5)
    made = budgets()
    made.learn(structs.replace(record, swapped_in_bytes=9))
    made.learn(structs.replace(record, swapped_out_bytes=9))
    made.learn(structs.replace(record, ooms=(1, *record.ooms[1:])))
    assert made.fit.steps == 0
    made.learn(record)
    assert made.fit.steps == 1


def test_a_step_that_ran_out_of_memory_stays_small_for_a_while() -> None:
    client = Client(tiny_loop(max_batch_tokens=100))
    made = client.loop._budgets
    made.shrink(20)
    assert (made.budget().tokens, made.budget().prefill_tokens) == (20, 20)
    client.submit([5], greedy(200))
    sizes = []
    while client.loop.busy:
        client.step()
        sizes.append(made.budget().tokens)
    assert sorted(set(sizes)) == [20, 40, 80, 100]
    assert sizes.count(40) == 64


def test_limits_change_live_and_never_exceed_what_was_built() -> None:
    made = budgets()
    made.apply(Settings(prefill_share=0.5, kv_watermark=0.25, max_num_seqs=99))
    budget = made.budget()
    assert (budget.prefill_tokens, budget.sequences, made._kv.pool.available) == (50, 8, 16)
    made.apply(Settings(kv_watermark=7.0, max_num_seqs=0, prefill_share=-1.0))
    budget = made.budget()
    assert (budget.prefill_tokens, budget.sequences, made._kv.pool.available) == (1, 1, 64)


def test_what_no_longer_fits_is_refused_while_it_waits_and_what_runs_goes_on() -> None:
    client = Client(tiny_loop(kv_blocks=40, kv_spare=0))
    runs, waits = (
        client.submit(prompt_of(90), greedy(20)),
        client.submit(prompt_of(250, 1), greedy(9)),
    )
    small = client.submit(prompt_of(20, 3), greedy(5))
    for _ in range(3):
        client.step()
    client.loop.take(Commands(settings=Settings(kv_watermark=0.5)))
    client.step()
    assert client.details[waits, 0] == (
        "250 prompt tokens and max_tokens 9 exceed the KV pool of 160 tokens"
    )
    client.run()
    assert client.finishes[runs, 0] is FinishReason.LENGTH
    assert client.finishes[small, 0] is FinishReason.LENGTH
    assert max(record.kv_used for record in client.records[4:]) <= 20
    assert [record.kv_limit for record in client.records[2:5]] == [40, 20, 20]


def test_a_policy_can_be_changed_and_an_unknown_one_is_told() -> None:
    client = Client(tiny_loop(max_num_seqs=1))
    client.submit([5], greedy(9))
    client.step()
    low = client.submit([6], greedy(2), priority=Priority.BATCH)
    high = client.submit([7], greedy(2), priority=Priority.CRITICAL)
    client.loop.take(Commands(settings=Settings(policy="priority")))
    waiting = client.loop.roster.view.waiting
    assert [each.request_id for each in waiting] == [high, low]
    with pytest.raises(ProtocolError, match="policy is 'lifo'; allowed: fcfs, priority, deadline"):
        client.loop.take(Commands(settings=Settings(policy="lifo")))


def test_a_static_batch_runs_to_its_end_before_the_next_is_formed() -> None:
    world = World(policy=POLICIES["static"])
    world.add(*(request(order, 2) for order in range(6)))
    assert orders(world.step().admitted) == [0, 1, 2, 3]
    world.view.kv.release(world.view.running.pop().table)
    plan = world.step()
    assert (plan.admitted, plan.blocked_by) == ([], SlotState.BLOCKED_OTHER)
    for sequence in world.view.running:
        world.view.kv.release(sequence.table)
    world.view.running.clear()
    assert orders(world.step().admitted) == [4, 5]


def test_admission_at_intervals_waits_for_its_step_unless_nothing_runs() -> None:
    budget = Budget(20, 20, 4, 0, admit_every=4)
    world = World(policy=POLICIES["interval"])
    world.view.steps = 1
    world.add(request(0, 2))
    assert orders(world.step(budget).admitted) == [0]
    world.add(request(1, 2))
    assert [orders(world.step(budget).admitted) for _ in range(3)] == [[], [], [1]]
