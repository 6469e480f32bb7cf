"""Admission every few steps: between them the batch decodes undisturbed by new prompts."""

from surgetank.engine.policies.policy import Moment, Policy


class Interval(Policy):
    """By arrival, every `admit_every` steps, or at once while nothing runs."""

    def may_admit(self, moment: Moment) -> bool:
        return moment.running == 0 or moment.step % moment.admit_every == 0
