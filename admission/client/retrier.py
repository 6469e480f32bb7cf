"""When a failed call is tried again, and after how long; every helper here asks this one.

    wait = U(.05, min(cap, base * 2^attempt))        full jitter, below the cap as well as at it
    wait = hint + U(0, spread)                       when the server gave a hint: never earlier

(AWS Architecture Blog, "Exponential Backoff and Jitter", 2015.) A call ends with its last error
when the attempts are used up, the server says so, the wait would not fit before the deadline, or
the budget is spent. It never sleeps first and gives up afterwards.
"""

import random
from dataclasses import dataclass

from surgetank.admission.client.budget import RetryBudget
from surgetank.admission.client.hints import Hint
from surgetank.telemetry.clock import Clock, SystemClock

ATTEMPT_HEADER = "x-surgetank-attempt"  # 0 on the first try; whoever sets it owns the retries
SHORTEST = 0.05  # seconds


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How a client retries. Seconds; ValueError when a value is out of its range."""

    attempts: int = 3  # the first one included
    base: float = 0.2
    cap: float = 10.0
    deadline: float | None = None  # for all attempts of a call together
    longest: float = 60.0  # a server that asks for more ends the call

    def __post_init__(self) -> None:
        for name, least, most in (
            ("attempts", 1, 10),
            ("base", SHORTEST, 60.0),
            ("cap", self.base, 600.0),
            ("deadline", 0.0, 86_400.0),
            ("longest", SHORTEST, 86_400.0),
        ):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ValueError(f"{name} is {value}; allowed: {least:g} to {most:g}")


class Retrier:
    """One client's retrying: keep it as long as the client, so that its budget knows all calls."""

    def __init__(
        self,
        policy: RetryPolicy | None = None,
        *,
        budget: RetryBudget | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.policy = policy or RetryPolicy()
        self.clock = clock or SystemClock()
        self.budget = budget or RetryBudget(clock=self.clock)
        self._rng = rng or random.Random()

    def begin(self, timeout: float | None = None) -> "Call":
        """A call begins; `timeout` in seconds tightens the policy's deadline."""
        self.budget.deposit()
        limits = [each for each in (timeout, self.policy.deadline) if each is not None]
        return Call(self, min(limits, default=None))

    def wait(self, attempt: int, hint: Hint) -> float:
        """Seconds to wait after attempt number `attempt` (0 = the first) failed."""
        if hint.wait is not None:
            return max(SHORTEST, hint.wait) + self._rng.uniform(0.0, hint.spread)
        return self._rng.uniform(SHORTEST, min(self.policy.cap, self.policy.base * 2**attempt))

    def allows(self, attempt: int, wait: float, left: float | None) -> bool:
        """Whether a further attempt may follow; pays for it when it may. `left`: seconds until
        the deadline."""
        return (
            attempt + 1 < self.policy.attempts
            and wait <= self.policy.longest
            and (left is None or wait < left)
            and self.budget.withdraw()
        )


class Call:
    """One call and its attempts."""

    def __init__(self, retrier: Retrier, timeout: float | None) -> None:
        self._retrier = retrier
        self._due = None if timeout is None else retrier.clock.monotonic() + timeout
        self.attempt = 0

    def time_left(self) -> float | None:
        """Seconds until the deadline; None without one."""
        return None if self._due is None else max(0.0, self._due - self._retrier.clock.monotonic())

    def next(self, hint: Hint | None) -> float | None:
        """Seconds to wait, then try again as number `attempt`; None: the call ends here.

        `hint` None: the failure is not one that a retry can cure.
        """
        if hint is None or hint.retry is False:
            return None
        wait = self._retrier.wait(self.attempt, hint)
        if not self._retrier.allows(self.attempt, wait, self.time_left()):
            return None
        self.attempt += 1
        return wait
