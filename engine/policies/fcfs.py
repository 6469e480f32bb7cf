"""First come, first served: continuous batching as it is usually meant."""

from surgetank.engine.policies.policy import Policy


class Fcfs(Policy):
    """By arrival alone, whenever there is room."""
