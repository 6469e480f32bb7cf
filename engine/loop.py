"""The step loop's turn: take commands, schedule, carry out, and one record of it all."""

import logging
from dataclasses import replace

from surgetank.engine.api import OUT_OF_MEMORY, Commands, Settings, Started, StepOutput, Tokens
from surgetank.engine.budgets import Budgets
from surgetank.engine.executor import Executor
from surgetank.engine.intake import Intake, ProtocolError
from surgetank.engine.plan import Budget, Plan
from surgetank.engine.policies.table import POLICIES
from surgetank.engine.relief import Relief
from surgetank.engine.report import Scheduled, Stopwatch, Times, Trouble, record, slot_states
from surgetank.engine.roster import Roster
from surgetank.engine.runner import Runner
from surgetank.engine.scheduler import schedule
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.stepmodel import StepFit
from surgetank.telemetry.vocabulary import Move, OomAction, OomSource, SlotState

logger = logging.getLogger(__name__)


class StepLoop:
    """One engine's work, a step at a time. Knows nothing of sockets and processes."""

    def __init__(
        self, runner: Runner, roster: Roster, intake: Intake, budgets: Budgets, clock: Clock
    ) -> None:
        self.roster = roster
        self.intake = intake
        self.steps = 0
        self.heard = 0  # messages taken in since the sidecar connected
        self._budgets = budgets
        self._clock = clock
        self._relief = Relief(runner, roster)
        self._executor = Executor(runner, roster, intake, budgets, self._relief)
        self._faults = 0  # found since the last record
        self._showing = False  # the last record showed sequences

    @property
    def busy(self) -> bool:
        """There is something to compute, to answer or to take back of what was last shown."""
        return bool(self.roster) or bool(self.intake.answers) or self._showing

    @property
    def budget(self) -> Budget:
        """The next step's."""
        return self._budgets.budget()

    @property
    def fit(self) -> StepFit:
        """What the engine has learnt of its own speed."""
        return self._budgets.fit

    def faults(self) -> list[str]:
        """What is wrong with the KV cache's books; an empty list when all is well. The next
        record tells how many that were."""
        holders = [sequence.table for sequence in self.roster if sequence.leader is None]
        found = self.roster.view.kv.faults(holders)
        self._faults += len(found)
        return found

    def take(self, commands: Commands) -> None:
        """What arrived between two steps. Raises ProtocolError."""
        self.heard += 1
        if commands.settings is not None:
            self._apply(commands.settings)
        now = self._clock.monotonic()
        for request in commands.submit:
            try:
                self.intake.submit(request, now)
            except MemoryError:
                self._relief.note(OomSource.HOST, OomAction.REFUSED)
                self.intake.turn_away(request, f"{OUT_OF_MEMORY}: the host has none left for it")
        for request_id, index in commands.cancel:
            self.intake.cancel(request_id, index)

    def abandon(self) -> int:
        """Nobody listens any more: all out. Returns how many choices that were."""
        self.heard = 0
        return self.intake.abandon()

    def step(self, times: Times) -> StepOutput | None:
        """One step, or only the answers due; None without either. `times` has what came before.

        When the last sequences left without a step (cancelled, say), one more record shows it.
        """
        self.intake.expire(self._clock.monotonic())
        if not self.roster and not self._showing:
            if not self.intake.answers:
                return None
            return StepOutput(self._answers(), [], None, heard=self.heard)
        watch = Stopwatch(self._clock)
        view, budget = self.roster.view, self.budget
        if not self.roster:
            budget = replace(budget, tokens=0)
        contended = bool(view.waiting)
        plan = schedule(view, budget)
        self.roster.follow(plan)
        moved = _moved(plan)
        started, scheduled = self._look(plan, contended)
        times.schedule = watch.lap()
        tokens = self._executor.run(plan, times, watch)
        self.steps += 1
        trouble = Trouble(self._relief.take_events(), self._take_faults())
        now = self._clock.monotonic()
        told = record(self.steps, now, plan, scheduled, budget, view, times, trouble)
        self._showing = bool(self.roster)
        self._budgets.learn(told)
        return StepOutput(tokens + self._answers(), started, told, moved, self.heard)

    def _apply(self, settings: Settings) -> None:
        """New limits, held within what the process was built for."""
        if settings.policy is not None:
            if settings.policy not in POLICIES:
                allowed = ", ".join(POLICIES)
                raise ProtocolError(f"policy is {settings.policy!r}; allowed: {allowed}")
            self.roster.reorder(POLICIES[settings.policy])
        self._budgets.apply(settings)
        self.intake.resize(self._budgets.limits.sequences, self.roster.view.kv.capacity)
        logger.info("limits: %s", self._budgets.limits)

    def _look(self, plan: Plan, contended: bool) -> tuple[list[Started], Scheduled]:
        """The plan's facts, before sequences grow, fork and leave. Recomputing is no cache hit."""
        first = [sequence for sequence in plan.admitted if not sequence.started]
        again = [sequence for sequence in plan.admitted if sequence.started]
        for sequence in first:
            sequence.started = True
        hits = sum(sequence.table.stored for sequence in first)
        scheduled = Scheduled(
            slots=slot_states(plan, self.roster.view, self._budgets.built.sequences)
            if self.roster
            else dict.fromkeys(SlotState, 0),
            prefix_hits=hits,
            prefix_misses=sum(sequence.prompt_len for sequence in first) - hits,
            recomputed=sum(max(0, each.lost - each.table.stored) for each in again),
            contended=contended,
        )
        return [Started(each.request_id, each.table.stored) for each in first], scheduled

    def _take_faults(self) -> int:
        faults, self._faults = self._faults, 0
        return faults

    def _answers(self) -> list[Tokens]:
        answers, self.intake.answers = self.intake.answers, []
        return answers


def _moved(plan: Plan) -> list[tuple[int, Move]]:
    """Who was put back, and who was taken up again: has been in a step before."""
    back = [(each.sequence.request_id, Move.PREEMPTED) for each in plan.preempted]
    again = [(each.request_id, Move.RESUMED) for each in plan.admitted if each.started]
    return back + again
