"""Static batching: a batch is formed, runs to its last token, and only then comes the next."""

from surgetank.engine.policies.policy import Moment, Policy


class Static(Policy):
    """By arrival, into an empty batch only. Slots that end early stand empty until all have."""

    def may_admit(self, moment: Moment) -> bool:
        return moment.running == 0
