"""A control policy on trial: stepped like the live ones, its values only supposed."""

from typing import Any

from surgetank.admission.gate import GateConfig
from surgetank.admission.policies.part import Part
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.control.policies.policy import Policy, Wanted


class Tried:
    """Keeps its state. What it raises is its part's fault, and its last values hold."""

    def __init__(self, policy: Policy, part: Part, config: GateConfig) -> None:
        self.wanted: Wanted = {}  # all that it would set, decisive or not
        self._policy = policy
        self._part = part
        self._config = config
        self._state: Any = policy.start

    def step(self, snapshot: DeskSnapshot) -> None:
        """One pass of the control loop."""
        try:
            self._state, wanted = self._policy.step(self._state, self._config, snapshot)
            self._part.suppose(wanted)
            self.wanted = dict(wanted)
        except Exception as error:  # a policy may be foreign code
            self._part.failed(error)
