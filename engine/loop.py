"""The step loop's turn: schedule, forward, sample, emit, and one record of it all."""

import logging
from dataclasses import replace

import torch

from surgetank.engine.api import Commands, Settings, Started, StepOutput, Tokens
from surgetank.engine.intake import Intake
from surgetank.engine.report import Scheduled, Stopwatch, Times, record, slot_states
from surgetank.engine.roster import Roster
from surgetank.engine.runner import Runner
from surgetank.engine.sampler import NO_TOKEN, Samples, sample
from surgetank.engine.scheduler import Budget, Plan, schedule
from surgetank.engine.sequence import Sequence
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.vocabulary import FinishReason

logger = logging.getLogger(__name__)


class StepLoop:
    """One engine's work, a step at a time. Knows nothing of sockets and processes."""

    def __init__(
        self, runner: Runner, roster: Roster, intake: Intake, budget: Budget, clock: Clock
    ) -> None:
        self.roster = roster
        self.intake = intake
        self.budget = budget
        self._slots = budget.sequences
        self._prefill_share = budget.prefill_tokens / budget.tokens
        self._runner = runner
        self._clock = clock
        self.steps = 0

    @property
    def busy(self) -> bool:
        """There is something to compute or to answer."""
        return bool(self.roster) or bool(self.intake.answers)

    def faults(self) -> list[str]:
        """What is wrong with the KV cache's books; an empty list when all is well."""
        holders = [sequence.table for sequence in self.roster if sequence.leader is None]
        return self.roster.view.kv.faults(holders)

    def take(self, commands: Commands) -> None:
        """What arrived between two steps. Raises ProtocolError."""
        if commands.settings is not None:
            self._apply(commands.settings)
        now = self._clock.monotonic()
        for request in commands.submit:
            self.intake.submit(request, self.budget.sequences, now)
        for request_id, index in commands.cancel:
            self.intake.cancel(request_id, index)

    def step(self, times: Times) -> StepOutput | None:
        """One step, or only the answers due; None without either. `times` has what came before."""
        self.intake.expire(self._clock.monotonic())
        if not self.roster:
            return StepOutput(self._answers(), [], None) if self.intake.answers else None
        watch = Stopwatch(self._clock)
        view, budget = self.roster.view, self.budget
        contended = bool(view.waiting)
        plan = schedule(view, budget)
        self.roster.follow(plan)
        started, scheduled = self._look(plan, contended)
        times.schedule = watch.lap()
        tokens = self._compute(plan, times, watch)
        self.steps += 1
        now = self._clock.monotonic()
        told = record(self.steps, now, plan, scheduled, budget, view, times)
        return StepOutput(tokens + self._answers(), started, told)

    def _apply(self, settings: Settings) -> None:
        """New limits, held within what the process was built for."""
        sequences = max(1, settings.max_num_seqs or self.budget.sequences)
        tokens = max(1, settings.max_batch_tokens or self.budget.tokens)
        self.budget = replace(
            self.budget,
            sequences=min(sequences, self._slots),
            tokens=tokens,
            prefill_tokens=max(1, int(tokens * self._prefill_share)),
        )
        self.intake.shrink(self.budget.sequences)
        logger.info("budget of a step: %s", self.budget)

    def _look(self, plan: Plan, contended: bool) -> tuple[list[Started], Scheduled]:
        """The plan's facts, before sequences grow, fork and leave. Recomputing is no cache hit."""
        first = [sequence for sequence in plan.admitted if not sequence.started]
        for sequence in first:
            sequence.started = True
        hits = sum(sequence.table.stored for sequence in first)
        scheduled = Scheduled(
            slots=slot_states(plan, self.roster.view, self._slots),
            context_tokens=sum(each.table.stored + count for each, count in plan.chunks),
            prefix_hits=hits,
            prefix_misses=sum(sequence.prompt_len for sequence in first) - hits,
            contended=contended,
        )
        return [Started(each.request_id, each.table.stored) for each in first], scheduled

    def _compute(self, plan: Plan, times: Times, watch: Stopwatch) -> list[Tokens]:
        """Forward and sample. What goes wrong there ends the plan's requests, not the engine."""
        ready = [sequence for sequence, count in plan.chunks if count == sequence.remaining]
        choosing = [each for leader in ready for each in (leader, *leader.followers)]
        try:
            logits = self._runner.forward(plan.decode, plan.prefill, plan.copies)
            times.forward = watch.lap()
            samples = self._sample(logits, ready, choosing)
        except Exception as error:
            logger.exception("step %d failed", self.steps + 1)
            self._fail(plan, f"{type(error).__name__}: {error}")
            return []
        for sequence, count in plan.chunks:
            self.roster.view.kv.fill(sequence.table, sequence.tokens, count)
        for leader in ready:
            self.roster.fork(leader)
        tokens = [self._advance(each, row, samples) for row, each in enumerate(choosing)]
        times.sample = watch.lap()
        return tokens

    def _sample(
        self, logits: torch.Tensor, ready: list[Sequence], choosing: list[Sequence]
    ) -> Samples:
        """Followers choose from their leader's logits."""
        if len(choosing) > len(ready):
            widths = torch.tensor([leader.width for leader in ready], device=logits.device)
            logits = logits.repeat_interleave(widths, 0)
        return sample(logits, choosing)

    def _advance(self, sequence: Sequence, row: int, samples: Samples) -> Tokens:
        """One sequence's new token; with its last one it leaves."""
        token = samples.token_ids[row]
        key = (sequence.request_id, sequence.index)
        if token == NO_TOKEN:
            self.roster.remove(sequence)
            detail = "the model's logits are not finite"
            return Tokens(*key, [], None, FinishReason.ERROR, detail)
        finish = sequence.append(token)
        if finish is not None:
            self.roster.remove(sequence)
        logprob = samples.logprobs.get(row)
        return Tokens(*key, [token], None if logprob is None else [logprob], finish)

    def _fail(self, plan: Plan, detail: str) -> None:
        for leader, _ in plan.chunks:
            for sequence in (leader, *leader.followers):
                self.intake.end(sequence, FinishReason.ERROR, detail)

    def _answers(self) -> list[Tokens]:
        answers, self.intake.answers = self.intake.answers, []
        return answers
