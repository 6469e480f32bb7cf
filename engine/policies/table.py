"""Every order of service by the name that the configuration uses."""

from surgetank.engine.policies.deadline import deadline
from surgetank.engine.policies.fcfs import fcfs
from surgetank.engine.policies.policy import Policy
from surgetank.engine.policies.priority import priority

POLICIES: dict[str, Policy] = {"fcfs": fcfs, "priority": priority, "deadline": deadline}
