"""The retry lane's budget: what first attempts earn, in engine-seconds, retries may spend.

Each admitted first attempt deposits beta (.10) of its cost, which is there for 10 s. So retries are
at most beta of the work admitted lately, and in a storm, when nothing is admitted, they end by
themselves within 10 s. On top comes a floor, so that a service with little traffic can retry at
all: one mean request per second, but at most 5 % of the engine:

    spent in any window T  <=  beta * (first attempts' cost in T + 10 s) + floor * T + reserve

where the reserve is what the floor has saved up: ten seconds of it, or one request's cost if that
is more. A request dearer than the whole reserve passes when the reserve is full and empties it.
Each tenant has such an account, and all together have one: a retry is paid from both or from none,
and what a tenant has not earned itself only from the reserve of all, not from others' deposits.

A hint is a promise: what a client that was told to come back will cost is held until shortly after
its slot, and no other retry may spend it.
"""

import math
from collections import OrderedDict, deque

from surgetank.admission.expiry import Expiries

TTL = 10.0  # seconds that a deposit lasts
FLOOR_SHARE = 0.05  # of the engine, the most that the floor gives
_SLOT = 0.5  # seconds of deposits that are kept as one
_GRACE = 2.0  # seconds after its slot that a promise is kept
_TENANTS = 1024


class Account:
    """One balance of deposits that expire and a floor that fills up. Never below 0."""

    def __init__(self, now: float) -> None:
        self._deposits: deque[tuple[float, float]] = deque()  # (expires at, what is left of it)
        self._deposited = 0.0
        self._filled_at = now
        self._reserve = math.inf  # begins full: cut to what it may be when first looked at

    def balance(self, now: float, mean_cost: float) -> float:
        """Engine-seconds to spend; `mean_cost` of a request sets the floor. From any thread."""
        live = sum(held for expires, held in tuple(self._deposits) if expires > now)
        return live + self._filled(now, mean_cost)

    def deposit(self, amount: float, now: float) -> None:
        """A first attempt was admitted."""
        expires = now + TTL
        if self._deposits and expires - self._deposits[-1][0] < _SLOT:
            expires, held = self._deposits[-1]
            self._deposits[-1] = (expires, held + amount)
        else:
            self._deposits.append((expires, amount))
        self._deposited += amount

    def earned(self, now: float, mean_cost: float) -> float:
        """What deposits are left."""
        self._settle(now, mean_cost)
        return self._deposited

    def covers(self, earned: float, cost: float, now: float, mean_cost: float) -> bool:
        """Whether a retry of that cost may pass, of which `earned` at most comes from deposits."""
        left = self.left(earned, now, mean_cost)
        return self._reserve >= self._most(mean_cost) or left >= cost

    def left(self, earned: float, now: float, mean_cost: float) -> float:
        """The most that such a retry may cost, but for one that a full reserve lets pass."""
        self._settle(now, mean_cost)
        return min(earned, self._deposited) + self._reserve

    def withdraw(self, earned: float, cost: float, now: float, mean_cost: float) -> None:
        """Pay for a retry that is covered: deposits that expire first go first, up to `earned`; the
        rest is the reserve's."""
        self._settle(now, mean_cost)
        left = min(earned, cost, self._deposited)
        cost -= left
        while left > 0.0 and self._deposits:
            expires, held = self._deposits.popleft()
            used = min(held, left)
            left -= used
            self._deposited -= used
            if used < held:
                self._deposits.appendleft((expires, held - used))
        self._reserve = max(0.0, self._reserve - cost)

    def _settle(self, now: float, mean_cost: float) -> None:
        while self._deposits and self._deposits[0][0] <= now:
            self._deposited -= self._deposits.popleft()[1]
        if not self._deposits:
            self._deposited = 0.0  # no rounding error outlives the deposits
        self._reserve = self._filled(now, mean_cost)
        self._filled_at = now

    def _filled(self, now: float, mean_cost: float) -> float:
        rate = min(mean_cost, FLOOR_SHARE)
        filled = self._reserve + rate * (now - self._filled_at)
        return min(filled, self._most(mean_cost))

    @staticmethod
    def _most(mean_cost: float) -> float:
        return max(TTL * min(mean_cost, FLOOR_SHARE), mean_cost)


class RetryBudget:
    """Every tenant's account, the one of all, and what is held for those who will come back."""

    def __init__(self, now: float, mean_cost: float) -> None:
        self.mean_cost = mean_cost  # engine-seconds of a request of late; whoever knows updates it
        self.held = 0.0
        self._all = Account(now)
        self._tenants: OrderedDict[str, Account] = OrderedDict()
        self._promises: dict[bytes, float] = {}
        self._lapses: Expiries[bytes] = Expiries()

    def balance(self, now: float) -> float:
        """What all tenants together may spend, promises included."""
        return self._all.balance(now, self.mean_cost)

    def deposit(self, tenant: str, amount: float, now: float) -> None:
        """A first attempt of that tenant was admitted; `amount` = beta * its cost."""
        self._all.deposit(amount, now)
        self._account(tenant, now).deposit(amount, now)

    def hold(self, fingerprint: bytes, cost: float, slot: float, now: float) -> None:
        """A client was told to come back at `slot`."""
        self.release(fingerprint, now)
        self._promises[fingerprint] = cost
        self._lapses.set(fingerprint, slot + _GRACE)
        self.held += cost

    def release(self, fingerprint: bytes, now: float) -> bool:
        """It came back, or was told otherwise; False when nothing was held for it any more."""
        if not self._promises:
            return False
        for lapsed in self._lapses.pop_due(now):
            self.held -= self._promises.pop(lapsed)
        cost = self._promises.pop(fingerprint, None)
        self._lapses.discard(fingerprint)
        self.held = self.held - (cost or 0.0) if self._promises else 0.0
        return cost is not None

    def short_of(self, tenant: str, cost: float, now: float, *, promised: bool) -> str | None:
        """Whose account does not cover a retry: `tenant` or `all`; None: both do. Unless the retry
        was `promised`, it may not touch what is held for others."""
        mean, account = self.mean_cost, self._account(tenant, now)
        earned = account.earned(now, mean)
        if not account.covers(earned, cost, now, mean):
            return "tenant"
        if not self._all.covers(earned, cost, now, mean):
            return "all"
        unheld = self._all.balance(now, mean) - self.held
        return None if promised or unheld >= cost else "all"

    def left(self, tenant: str, now: float, *, promised: bool) -> float:
        """The most that a retry of that tenant's may cost."""
        mean, account = self.mean_cost, self._account(tenant, now)
        earned = account.earned(now, mean)
        left = min(each.left(earned, now, mean) for each in (account, self._all))
        unheld = self._all.balance(now, mean) - self.held
        return left if promised else max(0.0, min(left, unheld))

    def withdraw(self, tenant: str, cost: float, now: float) -> None:
        """Pay for a retry that is covered, from both accounts."""
        mean, account = self.mean_cost, self._account(tenant, now)
        earned = account.earned(now, mean)
        account.withdraw(earned, cost, now, mean)
        self._all.withdraw(earned, cost, now, mean)

    def _account(self, tenant: str, now: float) -> Account:
        account = self._tenants.get(tenant)
        if account is None:
            account = self._tenants[tenant] = Account(now)
            if len(self._tenants) > _TENANTS:
                self._tenants.popitem(last=False)
        self._tenants.move_to_end(tenant)
        return account
