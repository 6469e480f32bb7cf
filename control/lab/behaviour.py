"""How clients behave when they are refused or kept waiting: a few numbers, and well-known sets."""

import random
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from surgetank.admission.client.retrier import ATTEMPT_HEADER, RetryPolicy
from surgetank.admission.outcome import Refusal


class Unhinted(Refusal, frozen=True):
    """A refusal that says nothing of retries, as most servers' do: the client is on its own."""


_SHIPPED = RetryPolicy()  # what a client of our helpers does that sets nothing
_RETRIED = frozenset({408, 409, 429})  # and 5xx: what openai's client retries


class Behaviour(BaseModel):
    """One kind of client."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, description="What the kind is called.")
    retries: int = Field(default=0, ge=0, le=100, description="Attempts after the first.")
    wait: Literal["immediate", "backoff", "helper"] = Field(
        default="immediate",
        description="Between attempts, where no hint is obeyed; helper: all is left to ours.",
    )
    base: float = Field(
        default=0.5, gt=0, le=60, description="Backoff of the first retry, seconds."
    )
    cap: float = Field(default=8.0, gt=0, le=600, description="The longest backoff, seconds.")
    jitter: tuple[float, float] = Field(
        default=(0.0, 1.0), description="Of the backoff, between which shares of it one is drawn."
    )
    obeys: bool = Field(default=False, description="Hints are obeyed, `do not retry` too.")
    announces: bool = Field(default=True, description="Attempts carry their number.")
    streams: bool = Field(
        default=True,
        description="False: it wants the answer in one piece, and waits for all of it.",
    )
    timeout: float | None = Field(
        default=4.0,
        gt=0,
        le=3600,
        description="Seconds that it waits for the first that it hears: a token, or the answer.",
    )
    tells_timeout: bool = Field(default=True, description="Attempts carry the timeout.")
    patience: float | None = Field(
        default=None, gt=0, le=86_400, description="Seconds for all attempts together."
    )

    @model_validator(mode="after")
    def _helper_can_do_it(self) -> "Behaviour":
        if self.wait == "helper":
            self.policy()
        return self

    def policy(self) -> RetryPolicy:
        """What our helpers are told, where they do the retrying; ValueError out of their range."""
        return RetryPolicy(self.retries + 1, self.base, self.cap, deadline=self.patience)

    def headers(self, attempt: int, left: float | None) -> tuple[tuple[str, str], ...]:
        """What an attempt says of itself; `left` seconds remain for the whole call."""
        said = []
        if self.announces:
            own = self.wait == "helper"
            said.append((ATTEMPT_HEADER if own else "x-stainless-retry-count", str(attempt)))
        if self.tells_timeout and self.timeout is not None:
            said.append(("x-stainless-read-timeout", f"{self.timeout:g}"))
        if left is not None:
            said.append(("x-surgetank-timeout", f"{max(left, 0.001):.3f}"))
        return tuple(said)

    def wait_before(self, retry: int, refusal: Refusal | None, rng: random.Random) -> float | None:
        """Seconds until retry number `retry` (from 1); None when the client gives up.

        `refusal` is None after a timeout. Backoff is U(jitter) * min(cap, base*2^k). In the lab,
        kinds that are left to our helpers ask those instead.
        """
        if retry > self.retries or (refusal is not None and not _retried(refusal)):
            return None
        if self.obeys and refusal is not None and not isinstance(refusal, Unhinted):
            return refusal.retry_after
        if self.wait == "immediate":
            return 0.0
        backoff = min(self.cap, self.base * 2.0 ** (retry - 1))
        return rng.uniform(*self.jitter) * backoff


def _retried(refusal: Refusal) -> bool:
    return refusal.http_status in _RETRIED or refusal.http_status >= 500


def _helped(name: str, *, obeys: bool) -> Behaviour:
    return Behaviour(
        name=name,
        retries=_SHIPPED.attempts - 1,
        wait="helper",
        base=_SHIPPED.base,
        cap=_SHIPPED.cap,
        obeys=obeys,
    )


BEHAVIOURS: dict[str, Behaviour] = {
    each.name: each
    for each in (
        Behaviour(name="patient", timeout=None),
        Behaviour(name="no-retry"),
        Behaviour(name="immediate-1", retries=1),
        Behaviour(name="immediate-3", retries=3),
        # Our own helpers, as they are shipped; those that back off are behind something that
        # keeps the hints from them.
        _helped("backoff", obeys=False),
        _helped("obedient", obeys=True),
        Behaviour(name="silent", retries=3, announces=False, tells_timeout=False),
        # As their libraries do it: openai (three retries instead of its two), and grpc with a
        # retry policy (proposal A6), which knows a deadline for the call and none for an attempt.
        Behaviour(name="openai", retries=3, wait="backoff", jitter=(0.75, 1.0), obeys=True),
        Behaviour(
            name="grpc",
            retries=3,
            wait="backoff",
            base=0.2,
            cap=10.0,
            jitter=(0.8, 1.2),
            obeys=True,
            timeout=None,
            patience=12.0,
        ),
    )
}
