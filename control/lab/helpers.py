"""Clients that retry by our own helpers: admission/client's Retrier and budget, in virtual time.

There is one client for each kind and tenant, with one budget among all its calls. A refusal comes
to it as the HTTP door writes it, and is read by what reads it in the helpers.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from surgetank.admission.client.failures import hint_of
from surgetank.admission.client.hints import Hint
from surgetank.admission.client.retrier import Call, Retrier
from surgetank.admission.doors.http.errors import error_headers
from surgetank.admission.outcome import Refusal
from surgetank.control.lab.behaviour import Behaviour, Unhinted
from surgetank.telemetry.clock import Clock


class Helpers:
    """Every such client of a run."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._retriers: dict[tuple[str, str], Retrier] = {}

    def begin(self, kind: Behaviour, tenant: str) -> Call:
        """A call of that tenant's client begins."""
        retrier = self._retriers.get((kind.name, tenant))
        if retrier is None:
            retrier = Retrier(kind.policy(), clock=self._clock, rng=self._rng)
            self._retriers[kind.name, tenant] = retrier
        return retrier.begin()


@dataclass(frozen=True, slots=True)
class _Answer:
    """As much of an HTTP response as the helpers look at."""

    status_code: int
    headers: Mapping[str, str]


def advice(refusal: Refusal | None, wall: float, *, hinted: bool) -> Hint | None:
    """What a helper makes of a failure; None: no retry can cure it.

    `refusal` is None after a timeout. Without `hinted`, its headers do not arrive.
    """
    if refusal is None:
        return hint_of(TimeoutError(), wall)
    told = hinted and not isinstance(refusal, Unhinted)
    headers = dict(error_headers(refusal)) if told else {}
    return hint_of(_Answer(refusal.http_status, headers), wall)
