"""Which arrival is a retry of what failed before: by its fingerprint, when its headers are silent.

A fingerprint is a keyed hash of tenant, model, prompt and sampling. The key is random and never
leaves the process, so that a fingerprint says nothing to anybody else. Each failure accounts for
one return within 60 s: of two callers that ask the same, only as many count as retries as failed.
What a refusal advised is remembered with it, so that obedience can be measured.
"""

import hashlib
from collections import OrderedDict, deque

import msgspec

from surgetank.telemetry.tracecontext import SpanId
from surgetank.telemetry.vocabulary import Outcome

REMEMBERED = 60.0  # seconds
_KEEP = 16_384  # fingerprints
_KEEP_EACH = 64  # failures of one fingerprint
EARLY = 0.9  # of the advised wait: who returns before has not obeyed

# A client that meets one of these may ask again; the others are its own mistakes, or success.
RETRIED = frozenset(
    {
        Outcome.OVERLOAD,
        Outcome.QUOTA,
        Outcome.RETRY_BUDGET,
        Outcome.EXPIRED,
        Outcome.EVICTED,
        Outcome.DRAINING,
        Outcome.BACKEND_DOWN,
        Outcome.CIRCUIT_OPEN,
        Outcome.DEADLINE,
        Outcome.CANCELLED,
        Outcome.INTERNAL,
    }
)


class Failure(msgspec.Struct, frozen=True):
    """How an attempt ended, and what its client was told."""

    at: float
    attempt: int
    advised: float | None  # seconds to wait; None: do not retry, or nothing was said
    span: SpanId | None = None  # that tells of it
    deaths: int = 0  # as in Ticket


class Return(msgspec.Struct, frozen=True):
    """An arrival that matches a failure."""

    failure: Failure
    taken: float  # seconds since it

    @property
    def obeyed(self) -> bool | None:
        """Whether the client waited as advised; None when it was not told how long."""
        return None if self.failure.advised is None else self.taken >= EARLY * self.failure.advised


class Attempts:
    """Failures of late, by fingerprint; at most a bounded number of them."""

    def __init__(self, key: bytes) -> None:
        """`key`: 16 to 64 random bytes."""
        self._key = key
        self._failures: OrderedDict[bytes, deque[Failure]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failures)

    def fingerprint(self, tenant: str, model: str, identity: bytes) -> bytes:
        """16 bytes; equal for equal requests in this process."""
        digest = hashlib.blake2b(identity, digest_size=16, key=self._key)
        digest.update(f"\0{tenant}\0{model}".encode())
        return digest.digest()

    def failed(self, fingerprint: bytes, failure: Failure) -> None:
        """An attempt ended so that it may be tried again."""
        failures = self._failures.setdefault(fingerprint, deque(maxlen=_KEEP_EACH))
        failures.append(failure)
        self._failures.move_to_end(fingerprint)
        while len(self._failures) > _KEEP or self._stale(failure.at):
            self._failures.popitem(last=False)

    def returned(self, fingerprint: bytes, now: float) -> Return | None:
        """The failure that this arrival comes back from, which is then used up; None: none."""
        failures = self._failures.get(fingerprint)
        if failures is None:
            return None
        while failures and failures[0].at < now - REMEMBERED:
            failures.popleft()
        failure = failures.popleft() if failures else None
        if not failures:
            del self._failures[fingerprint]
        return None if failure is None else Return(failure, now - failure.at)

    def _stale(self, now: float) -> bool:
        oldest = next(iter(self._failures.values()))
        return oldest[-1].at < now - REMEMBERED
