"""What was promoted is watched on: alone it has all the load that it let in.

A canary's share can look good at the others' expense: what lets everybody in is served in time
while the other arm still holds back for both. Once it is live there is nobody left to do so, and
what it admits comes late. So of what ends after a promotion, the late share is tested against
ALLOWED, with the canary's error rate. An engine that stalls makes every policy late, and may cost
a promoted one its place: what was configured is the safe side.
"""

from surgetank.admission.policies.canary import CanaryConfig
from surgetank.admission.policies.evidence import more, spent
from surgetank.admission.policies.judged import Judged
from surgetank.admission.ticket import Ticket

ALLOWED = 0.1  # of what was admitted and ended
_WINDOW = 2_000  # requests after which the test begins anew


class Probation:
    """The watch on one policy, from its promotion on."""

    def __init__(self, name: str, config: CanaryConfig, now: float) -> None:
        self.name = name
        self.good = self.late = 0  # in this window
        self._config = config
        self._since = now
        self._number = 1
        self._evidence = more(ALLOWED, margin=1.0)

    def ended(self, ticket: Ticket, how: Judged) -> None:
        """A request is over; those of before the promotion say nothing."""
        if ticket.queued_at is None or ticket.arrived < self._since or how is Judged.OTHER:
            return
        late = how is Judged.LATE
        self.late += late
        self.good += not late
        self._evidence.saw(candidate=late)

    def late_too_often(self) -> bool:
        """Whether more than ALLOWED come late, significantly."""
        if self._evidence.value >= 1.0 / spent(self._config.error_rate, self._number):
            return True
        if self.good + self.late >= _WINDOW:
            self._number += 1
            self.good = self.late = 0
            self._evidence = more(ALLOWED, margin=1.0)
        return False
