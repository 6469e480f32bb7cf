"""A sidecar's policies under its fleet's direction: what was promoted for all is promoted here."""

import logging

from surgetank.admission.policies.plugins import PolicyError
from surgetank.control.actions import UnknownName, WouldWorsen
from surgetank.control.trials import LIVE, Trials

logger = logging.getLogger(__name__)


class Directed:
    """Implements fleet.Policies. `name` is the policy that all promote; "": there is none."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self.name = ""

    def use(self, name: str, *, who: str, why: str, ttl: float | None) -> None:
        """Promote it in the place of what was promoted before; what cannot be is logged."""
        before, self.name = self.name, name
        trials = self._trials
        try:
            if before != name and before in trials.held and trials.state(before) == LIVE:
                trials.rollback(before, who=who, why=why, dry_run=False)
            if name and trials.state(name) != LIVE:
                trials.promote(name, ttl=ttl, who=who, why=why, dry_run=False, force=True)
        except (UnknownName, WouldWorsen, PolicyError) as error:
            logger.warning("fleet: policy %s cannot be followed here: %s", name or before, error)

    def fallen(self) -> str | None:
        """Why it was rolled back here by itself, if it was."""
        why = self._trials.fallen.get(self.name)
        if why is None or why.startswith(("operator", "expiry")):
            return None
        return None if self._trials.state(self.name) == LIVE else f"{self.name}: {why}"
