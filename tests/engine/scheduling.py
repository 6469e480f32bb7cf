"""The scheduler in tests: its view, with the moves and the computing done by hand."""

from surgetank.engine.api import SamplingParams
from surgetank.engine.kv.manager import KVManager
from surgetank.engine.plan import Budget, Plan, View
from surgetank.engine.policies.policy import Policy
from surgetank.engine.policies.table import POLICIES
from surgetank.engine.scheduler import schedule
from surgetank.engine.sequence import Sequence

BUDGET = Budget(tokens=20, prefill_tokens=20, sequences=4, spare_blocks=0)


def request(order: int, length: int, **changes: object) -> Sequence:
    """A waiting sequence whose prompt nobody shares."""
    tokens = [order * 1000 + place for place in range(length)]
    sequence = Sequence(
        order, 0, tokens, length, SamplingParams(max_tokens=9), 0, frozenset(), order
    )
    for name, value in changes.items():
        setattr(sequence, name, value)
    return sequence


class World:
    """The scheduler's view, with the moves and the computing done by hand."""

    def __init__(
        self, blocks: int = 100, policy: Policy = POLICIES["fcfs"], host_blocks: int = 0
    ) -> None:
        self.view = View([], [], KVManager(blocks, 8, host_blocks), policy)

    def add(self, *sequences: Sequence) -> None:
        self.view.waiting = sorted([*self.view.waiting, *sequences], key=self.view.policy.place)

    def step(self, budget: Budget = BUDGET) -> Plan:
        plan = schedule(self.view, budget)
        self.view.steps += 1
        victims = [each.sequence for each in plan.preempted]
        for victim in victims:
            victim.preemptions += 1
            self.view.running.remove(victim)
        for sequence in plan.admitted:
            self.view.waiting.remove(sequence)
            self.view.running.append(sequence)
        self.add(*victims)
        for sequence, count in plan.chunks:
            self.view.kv.fill(sequence.table, sequence.tokens, count)
            if sequence.remaining == 0:
                sequence.append(order_token(sequence))
        return plan


def order_token(sequence: Sequence) -> int:
    return 500_000 + sequence.order * 100 + sequence.output_len


def chunks(plan: Plan) -> list[tuple[int, int]]:
    """(order, tokens) of everyone that works."""
    return [(sequence.order, count) for sequence, count in plan.chunks]


def victims(plan: Plan) -> list[int]:
    return orders([each.sequence for each in plan.preempted])


def orders(sequences: list[Sequence]) -> list[int]:
    return [sequence.order for sequence in sequences]
