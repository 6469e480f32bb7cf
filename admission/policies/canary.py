"""A canary: a share of the calls is decided by a candidate, and both shares are compared.

A call's arm is a hash of its fingerprint, so that its retries stay where the first attempt was.
Each call is judged by the first attempt that is seen of it, so that a candidate gains nothing by
refusing it and taking the retry; what comes again is decided by its arm and not counted. Identical
calls count once: their arm is one throw of the dice. Calls become evidence in the order in which
they came, not in which they end: else of two arms that serve the same, the one that lets in longer
answers would lag behind, and look worse than it is.

Both arms share one engine. What the candidate lets in makes the others wait, too: that they suffer
cannot be seen in the comparison. That its own calls come late can; the rest is probation.py's.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from hashlib import blake2b

from pydantic import BaseModel, ConfigDict, Field

from surgetank.admission.policies.evidence import Evidence, fewer, more, spent
from surgetank.admission.policies.judged import Judged
from surgetank.admission.policies.part import Part
from surgetank.admission.ticket import Ticket

_REMEMBERED = 65_536  # calls
_CAP = 4.0  # times the mean cost: what one call weighs at most
_SMOOTHING = 0.02  # of the newest call in the mean
_TESTS = 2  # that share the error rate
_ENOUGH = 2_000  # calls that a window has at the least
_OVERTAKEN = 1_000  # calls that wait for one to end, before it is passed over until it does


class CanaryConfig(BaseModel):
    """How a canary is compared with the live policy."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    error_rate: float = Field(
        default=0.01,
        ge=1e-6,
        le=0.2,
        description="Chance that a candidate that is no worse is ever rolled back as worse.",
    )
    window: float = Field(
        default=600.0,
        ge=10,
        le=86_400,
        description=f"Seconds, and {_ENOUGH:,} calls, after which the comparison begins anew.",
    )


@dataclass(slots=True)
class Arm:
    """One share's calls. Seconds are of the engine, as estimated on arrival."""

    calls: int = 0
    refused: int = 0
    good: int = 0
    late: int = 0
    other: int = 0
    seconds: float = 0.0
    good_seconds: float = 0.0

    @property
    def goodput(self) -> float | None:
        """Answered well, of what was offered and has ended or was refused; None before any was."""
        return self.good_seconds / self.seconds if self.seconds else None

    @property
    def late_share(self) -> float | None:
        """Of those admitted that ended, how many came late."""
        ended = self.good + self.late + self.other
        return self.late / ended if ended else None


@dataclass(slots=True)
class Compared:
    """One window of the comparison."""

    share: float
    began: float
    number: int = 1  # of the window, from 1
    live: Arm = field(default_factory=Arm)
    candidate: Arm = field(default_factory=Arm)
    less_good: Evidence = field(init=False)
    more_late: Evidence = field(init=False)

    def __post_init__(self) -> None:
        self.less_good, self.more_late = fewer(self.share), more(self.share)


@dataclass(slots=True)
class _Call:
    """One that was admitted. `how`: None until it ends."""

    candidate: bool
    cost: float
    how: Judged | None = None
    passed_over: bool = False


class Canary:
    """One candidate at its share."""

    def __init__(
        self, part: Part, share: float, config: CanaryConfig, *, salt: str, now: float
    ) -> None:
        """`salt`: another one divides the calls in another way."""
        self.part = part
        self.share = share
        self.current = Compared(share, now)
        self.last: Compared | None = None  # the window before
        self._config = config
        self._salt = salt.encode()[:64]
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._pending: dict[Ticket, _Call] = {}  # those that have not ended
        self._line: deque[_Call] = deque()  # those that are no evidence yet, as they came
        self._mean_cost = 0.0

    def takes(self, ticket: Ticket) -> bool:
        """Whether the candidate decides on this call."""
        place = blake2b(_identity(ticket), key=self._salt, digest_size=8).digest()
        return int.from_bytes(place) < self.share * 2.0**64

    def decided(self, ticket: Ticket, *, candidate: bool, admitted: bool) -> None:
        """The first attempt of a call is judged by what becomes of it."""
        identity = _identity(ticket)
        if identity in self._known:
            return
        self._known[identity] = None
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        if admitted:
            call = self._pending[ticket] = _Call(candidate, ticket.estimate.seconds)
            self._line.append(call)
            return
        arm = self.arm(candidate=candidate)
        arm.calls += 1
        arm.refused += 1
        arm.seconds += ticket.estimate.seconds

    def ended(self, ticket: Ticket, how: Judged) -> None:
        """A request is over."""
        call = self._pending.pop(ticket, None)
        if call is None:
            return
        call.how = how
        arm = self.arm(candidate=call.candidate)
        arm.calls += 1
        arm.seconds += call.cost
        if how is Judged.GOOD:
            arm.good += 1
            arm.good_seconds += call.cost
        elif how is Judged.LATE:
            arm.late += 1
        else:
            arm.other += 1
        if call.passed_over:
            self._testify(call)
        while self._line and (self._line[0].how is not None or len(self._line) > _OVERTAKEN):
            first = self._line.popleft()
            if first.how is None:
                first.passed_over = True
            else:
                self._testify(first)

    def arm(self, *, candidate: bool) -> Arm:
        """The candidate's calls of this window, or the others."""
        return self.current.candidate if candidate else self.current.live

    def worse(self, now: float) -> str | None:
        """`goodput` or `late` when the candidate is significantly worse; else a new window begins
        when this one is over: a fall that comes late is seen as soon as an early one."""
        threshold = _TESTS / spent(self._config.error_rate, self.current.number)
        for cause, evidence in (
            ("goodput", self.current.less_good),
            ("late", self.current.more_late),
        ):
            if evidence.value >= threshold:
                return cause
        calls = self.current.live.calls + self.current.candidate.calls
        if now - self.current.began >= self._config.window and calls >= _ENOUGH:
            self.last = self.current
            self.current = Compared(self.share, now, self.last.number + 1)
        return None

    def _testify(self, call: _Call) -> None:
        if call.how is Judged.GOOD:
            weight = self._weight(call.cost)
            self.current.less_good.saw(candidate=call.candidate, weight=weight)
        elif call.how is Judged.LATE:
            self.current.more_late.saw(candidate=call.candidate)

    def _weight(self, cost: float) -> float:
        """By the mean of those before it, which knows nothing of its arm."""
        mean = self._mean_cost or cost
        self._mean_cost = mean + _SMOOTHING * (cost - mean)
        return min(1.0, cost / (_CAP * mean)) if mean else 1.0


def _identity(ticket: Ticket) -> bytes:
    return ticket.fingerprint or ticket.id.encode()
