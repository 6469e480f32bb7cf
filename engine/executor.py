"""Carries a plan out: blocks moved, forward, sample. What fails ends requests, never the engine."""

import logging

import torch

from surgetank.engine.api import OUT_OF_MEMORY, Tokens
from surgetank.engine.budgets import Budgets
from surgetank.engine.intake import Intake
from surgetank.engine.plan import Plan
from surgetank.engine.preemption import dispensable
from surgetank.engine.relief import Relief, oom_source
from surgetank.engine.report import Stopwatch, Times
from surgetank.engine.roster import Roster
from surgetank.engine.runner import Runner
from surgetank.engine.sampler import NO_TOKEN, Samples, sample
from surgetank.engine.sequence import Sequence
from surgetank.telemetry.vocabulary import FinishReason, OomAction, OomSource

logger = logging.getLogger(__name__)


class Executor:
    """Turns plans into tokens."""

    def __init__(
        self, runner: Runner, roster: Roster, intake: Intake, budgets: Budgets, relief: Relief
    ) -> None:
        self._runner = runner
        self._roster = roster
        self._intake = intake
        self._budgets = budgets
        self._relief = relief

    def run(self, plan: Plan, times: Times, watch: Stopwatch) -> list[Tokens]:
        """One step's tokens. While memory does not suffice, the plan is cut down until it does."""
        if self._roster and not plan.chunks:
            self._unblock()
        self._move(plan, times, watch)
        while plan.chunks:
            try:
                choosing, samples = self._compute(plan, times, watch)
            except Exception as error:
                self._retreat(plan, error)
            else:
                return self._advance_all(plan, choosing, samples, times, watch)
        return []

    def _compute(
        self, plan: Plan, times: Times, watch: Stopwatch
    ) -> tuple[list[Sequence], Samples]:
        """Forward and sample: nothing that could not be done once more."""
        ready = [sequence for sequence, count in plan.chunks if count == sequence.remaining]
        choosing = [each for leader in ready for each in (leader, *leader.followers)]
        logits = self._runner.forward(plan.decode, plan.prefill)
        times.forward += watch.lap()
        return choosing, _sample(logits, ready, choosing)

    def _retreat(self, plan: Plan, error: Exception) -> None:
        """Cut the plan down where memory ran out; any other failure ends all that it computes."""
        source = oom_source(error)
        if source is None:
            logger.error("a step failed", exc_info=error)
            self._fail([each for each, _ in plan.chunks], _told(error))
            plan.keep(0, [])
            return
        before = plan.tokens
        self._refuse(self._relief.make_smaller(plan, source), source, _told(error))
        if plan.tokens < before:
            self._budgets.shrink(before // 2)

    def _advance_all(
        self,
        plan: Plan,
        choosing: list[Sequence],
        samples: Samples,
        times: Times,
        watch: Stopwatch,
    ) -> list[Tokens]:
        for sequence, count in plan.chunks:
            self._roster.view.kv.fill(sequence.table, sequence.tokens, count)
        for sequence in choosing:
            if sequence.leader is None:
                self._roster.fork(sequence)
        tokens = [self._advance(each, row, samples) for row, each in enumerate(choosing)]
        times.sample += watch.lap()
        return tokens

    def _advance(self, sequence: Sequence, row: int, samples: Samples) -> Tokens:
        """One sequence's new token; with its last one it leaves."""
        token = samples.token_ids[row]
        key = (sequence.request_id, sequence.index)
        if token == NO_TOKEN:
            self._roster.remove(sequence)
            detail = "the model's logits are not finite"
            return Tokens(*key, [], None, FinishReason.ERROR, detail)
        finish = sequence.append(token)
        if finish is not None:
            self._roster.remove(sequence)
        logprob = samples.logprobs.get(row)
        return Tokens(*key, [token], None if logprob is None else [logprob], finish)

    def _move(self, plan: Plan, times: Times, watch: Stopwatch) -> None:
        """Swap and copy blocks. When that fails, those end whose blocks should have been written;
        what should have left is computed again."""
        swaps = len(plan.swaps_out) + len(plan.swaps_in)
        if not swaps and not plan.copies:
            return
        try:
            self._runner.move(plan.swaps_out, plan.swaps_in, plan.copies)
        except Exception as error:
            logger.error("blocks could not be moved", exc_info=error)
            targets = {target for _, target in (*plan.swaps_in, *plan.copies)}
            hit = [each for each, _ in plan.chunks if not targets.isdisjoint(each.table.blocks)]
            plan.keep(plan.tokens, without=hit)
            for each in plan.preempted:
                self._roster.view.kv.forget_swapped(each.sequence.table)
            source = oom_source(error)
            if source is None:
                self._fail(hit, _told(error))
            else:
                self._relief.note(source, OomAction.EVICTED_CACHE)
                self._refuse(hit, source, _told(error))
        seconds = watch.lap()
        times.forward += seconds
        if swaps:
            self._budgets.swapped(swaps, seconds)

    def _unblock(self) -> None:
        """Not one sequence got a block: let the prefix cache go, then whoever is the least loss."""
        view = self._roster.view
        if not self._relief.find_blocks(view.kv):
            loss = max(view.running or view.waiting[:1], key=dispensable)
            self._refuse([loss], OomSource.KV, f"the KV pool of {view.kv.capacity} tokens is full")

    def _refuse(self, leaders: list[Sequence], source: OomSource, why: str) -> None:
        for leader in leaders:
            self._relief.note(source, OomAction.REFUSED)
            self._intake.refuse(leader, f"{OUT_OF_MEMORY}: {why}")

    def _fail(self, leaders: list[Sequence], detail: str) -> None:
        for leader in leaders:
            for sequence in (leader, *leader.followers):
                self._intake.end(sequence, FinishReason.ERROR, detail)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _sample(logits: torch.Tensor, ready: list[Sequence], choosing: list[Sequence]) -> Samples:
    """Followers choose from their leader's logits."""
    if len(choosing) > len(ready):
        widths = torch.tensor([leader.width for leader in ready], device=logits.device)
        logits = logits.repeat_interleave(widths, 0)
    return sample(logits, choosing)
