"""What all connections of one HTTP door share: configuration, clock, budgets, the way in."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from surgetank.admission.doors.http.config import HttpConfig
from surgetank.admission.doors.http.exchange import Exchange, Handler
from surgetank.admission.doors.http.refusals import too_many_bytes, too_many_connections
from surgetank.admission.outcome import Refusal
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.vocabulary import Reason


class Watched(Protocol):
    """A connection as the server sees it."""

    @property
    def unsent(self) -> int:
        """Bytes written that the client has not taken."""

    def sweep(self, now: float) -> None:
        """Act on the deadlines that have passed."""

    def drain(self) -> None:
        """Close when no request is being answered; else once it is."""

    def shut(self) -> None:
        """End the request being answered, and close."""

    def abort(self) -> None:
        """Close at once, unsent bytes or not."""


class Shared:
    """Owned by the server; connections register here and draw on its budgets."""

    def __init__(
        self,
        config: HttpConfig,
        clock: Clock,
        rng: random.Random,
        open_request: Callable[[Exchange], Handler],
    ) -> None:
        self.config = config
        self.clock = clock
        self.open_request = open_request
        self.connections: set[Watched] = set()
        self.draining = False
        self.buffered = 0  # bytes of half-received bodies
        self.on_closed: Callable[[], None] = lambda: None  # after each connection's end
        self.on_unread: Callable[[Reason], None] = lambda reason: None  # no headers, so no ticket
        self._peers: Counter[str] = Counter()
        self._rng = rng

    def new_id(self) -> str:
        """A request id, for requests that brought none."""
        return self._rng.randbytes(16).hex()

    def admit(self, connection: Watched, peer: str) -> Refusal | None:
        """Register a connection; a refusal when it is one too many to serve."""
        self.connections.add(connection)
        self._peers[peer] += 1
        open_now, limit = len(self.connections), self.config.max_connections
        per_peer = self.config.max_connections_per_peer
        if open_now > limit:
            return too_many_connections(open_now, limit, "max_connections")
        if per_peer is not None and self._peers[peer] > per_peer:
            return too_many_connections(self._peers[peer], per_peer, "max_connections_per_peer")
        return None

    def release(self, connection: Watched, peer: str) -> None:
        """The connection has ended."""
        self.connections.discard(connection)
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]
        self.on_closed()

    def reserve(self, size: int) -> Refusal | None:
        """Room for this many more bytes of bodies; a refusal, and no change, when there is none."""
        limit = self.config.max_buffered_bytes
        if self.buffered + size > limit:
            return too_many_bytes(self.buffered + size, limit)
        self.buffered += size
        return None

    def free(self, size: int) -> None:
        """Give reserved bytes back."""
        self.buffered -= size
