"""The static policy: every limit is what the configuration says."""

from surgetank.admission.gate import GateConfig
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.control.policies.policy import Wanted, stateless


def configured(config: GateConfig, snapshot: DeskSnapshot) -> Wanted:
    """The configured values, whatever the desk looks like."""
    del snapshot
    return config.base_limits()


static = stateless(configured, "every limit as it is configured")
