"""How clients behave when they are refused or kept waiting: a few numbers, and well-known sets."""

import random
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from surgetank.admission.outcome import Refusal


@dataclass(frozen=True)
class Unhinted(Refusal):
    """A refusal that says nothing of retries, as most servers' do: the client is on its own."""


_RETRIED = frozenset({408, 409, 429})  # and 5xx: what openai's client retries


class Behaviour(BaseModel):
    """One kind of client."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, description="What the kind is called.")
    retries: int = Field(default=0, ge=0, le=100, description="Attempts after the first.")
    wait: Literal["immediate", "backoff"] = Field(
        default="immediate", description="Between attempts, where no hint is obeyed."
    )
    base: float = Field(
        default=0.5, gt=0, le=60, description="Backoff of the first retry, seconds."
    )
    cap: float = Field(default=8.0, gt=0, le=600, description="The longest backoff, seconds.")
    obeys: bool = Field(default=False, description="Hints are obeyed, `do not retry` too.")
    announces: bool = Field(default=True, description="Attempts carry their number.")
    timeout: float | None = Field(
        default=4.0, gt=0, le=3600, description="Seconds that it waits for a first token."
    )
    tells_timeout: bool = Field(default=True, description="Attempts carry the timeout.")
    patience: float | None = Field(
        default=None, gt=0, le=86_400, description="Seconds for all attempts together."
    )

    def headers(self, attempt: int, left: float | None) -> tuple[tuple[str, str], ...]:
        """What an attempt says of itself; `left` seconds remain for the whole call."""
        said = []
        if self.announces:
            said.append(("x-stainless-retry-count", str(attempt)))
        if self.tells_timeout and self.timeout is not None:
            said.append(("x-stainless-read-timeout", f"{self.timeout:g}"))
        if left is not None:
            said.append(("x-surgetank-timeout", f"{max(left, 0.001):.3f}"))
        return tuple(said)

    def wait_before(self, retry: int, refusal: Refusal | None, rng: random.Random) -> float | None:
        """Seconds until retry number `retry` (from 1); None when the client gives up.

        `refusal` is None after a timeout. Backoff is with full jitter: U(0, min(cap, base*2^k)).
        """
        if retry > self.retries or (refusal is not None and not _retried(refusal)):
            return None
        if self.obeys and refusal is not None and not isinstance(refusal, Unhinted):
            return refusal.retry_after
        if self.wait == "immediate":
            return 0.0
        return rng.uniform(0.0, min(self.cap, self.base * 2 ** (retry - 1)))


def _retried(refusal: Refusal) -> bool:
    return refusal.http_status in _RETRIED or refusal.http_status >= 500


BEHAVIOURS: dict[str, Behaviour] = {
    each.name: each
    for each in (
        Behaviour(name="patient", timeout=None),
        Behaviour(name="no-retry"),
        Behaviour(name="immediate-1", retries=1),
        Behaviour(name="immediate-3", retries=3),
        Behaviour(name="backoff", retries=3, wait="backoff"),
        Behaviour(name="obedient", retries=3, wait="backoff", obeys=True),
        Behaviour(name="silent", retries=3, announces=False, tells_timeout=False),
    )
}
