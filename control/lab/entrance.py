"""Where simulated clients knock: what every policy, ours or a rival's, looks like to them."""

from dataclasses import dataclass
from typing import Protocol

from surgetank.admission.api import Ask, Headers, Listener
from surgetank.admission.outcome import Refusal
from surgetank.telemetry.vocabulary import Outcome, Priority, Reason


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, as an authenticating door would know it, and how the answer is wanted."""

    tenant: str = ""
    priority: Priority = Priority.DEFAULT
    streams: bool = True


class Handle(Protocol):
    """A request that was let in."""

    def cancel(
        self, outcome: Outcome = Outcome.CANCELLED, reason: Reason = Reason.CLIENT_GONE
    ) -> None:
        """The client goes away."""


class Entrance(Protocol):
    """One sidecar's door."""

    def open(
        self, caller: Caller, headers: Headers, ask: Ask, listener: Listener
    ) -> Handle | Refusal:
        """Let a request in, or refuse it at once. After a handle, on_end follows once, and may
        come before this returns."""
