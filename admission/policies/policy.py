"""What an admission policy is: its answer to one request, and how it is made."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from surgetank.admission.outcome import Refusal
from surgetank.admission.policies.site import Site
from surgetank.admission.ticket import Ticket
from surgetank.admission.wait import Wait
from surgetank.engine.api import ModelCard


class Admission(msgspec.Struct, frozen=True):
    """Yes, and whom it costs their place in the queue (sheddable requests only)."""

    displaced: tuple[Ticket, ...] = ()
    wait: Wait | None = None  # as predicted; None while it cannot be
    paid: bool = False  # a retry that the budget has to pay for


class AdmissionPolicy(Protocol):
    """Decides on requests that the engine could run. On the event loop's thread; it must be quick.

    It may learn from what it is told, and changes nothing else: it may be asked about requests
    that another policy decides on.
    """

    def decide(
        self, ticket: Ticket, card: ModelCard, now: float, stalled_for: float | None
    ) -> Admission | Refusal:
        """`now`: monotonic seconds; `stalled_for`: the engine's silence, None while unknown."""

    def ended(self, ticket: Ticket, now: float) -> None:
        """A request that was admitted, by whichever policy, is over: its outcome stands in it."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """An admission policy as the table and entry points offer it. `build` is called once for each
    part that it plays, so that what one learns is its own; `bounded`: it sees to the queue's
    bounds by itself, else they are checked after it."""

    build: Callable[[Site], AdmissionPolicy]
    help: str
    bounded: bool = False
