"""The policies that run, in order; where two want the same limit, the later one's value holds."""

from surgetank.control.policies.brownout import brownout
from surgetank.control.policies.concurrency import concurrency
from surgetank.control.policies.policy import Policy
from surgetank.control.policies.recovery import recovery
from surgetank.control.policies.static import static
from surgetank.control.policies.waste import waste

POLICIES: dict[str, Policy] = {
    "static": static,
    "waste": waste,
    "concurrency": concurrency,
    "brownout": brownout,
    "recovery": recovery,
}
