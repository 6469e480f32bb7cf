"""Every policy by the name that the configuration uses."""

from surgetank.engine.policies.deadline import Deadline
from surgetank.engine.policies.fcfs import Fcfs
from surgetank.engine.policies.interval import Interval
from surgetank.engine.policies.policy import Policy
from surgetank.engine.policies.priority import ByClass
from surgetank.engine.policies.static import Static

POLICIES: dict[str, Policy] = {
    "fcfs": Fcfs(),
    "priority": ByClass(),
    "deadline": Deadline(),
    "static": Static(),
    "interval": Interval(),
}
