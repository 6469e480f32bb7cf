"""What a refusal advises: whether to come back, and after how long. Pure functions."""

from collections.abc import Iterable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

Pairs = Iterable[tuple[str, str | bytes]]  # HTTP headers or gRPC trailers
COARSE = 1.0  # seconds added at random to a wait given in whole seconds: all were told the same


@dataclass(frozen=True, slots=True)
class Hint:
    """A server's advice. `retry` None: it said nothing; False: it said not to."""

    retry: bool | None = None
    wait: float | None = None  # seconds
    spread: float = 0.0  # seconds that may be added to it


NOTHING = Hint()
NEVER = Hint(retry=False)


def read_hint(pairs: Pairs, wall: float) -> Hint:
    """The advice in headers or trailers; `wall` is now, for a Retry-After that names a date.

    `grpc-retry-pushback-ms` below 0 or unreadable means: do not retry (gRPC proposal A6). A header
    that cannot be read otherwise counts as absent.
    """
    said = {name.lower(): value for name, value in pairs if isinstance(value, str)}
    pushback = said.get("grpc-retry-pushback-ms")
    if pushback is not None:
        milliseconds = _number(pushback)
        return NEVER if milliseconds is None else Hint(True, milliseconds / 1000)
    should = {"true": True, "false": False}.get(said.get("x-should-retry", "").lower())
    if should is False:
        return NEVER
    exact = _number(said.get("retry-after-ms", ""))
    if exact is not None:
        return Hint(should, exact / 1000)
    coarse = _retry_after(said.get("retry-after", ""), wall)
    return Hint(should) if coarse is None else Hint(should, coarse, COARSE)


def _number(text: str) -> float | None:
    """A number >= 0 in plain digits, or None."""
    whole, _, part = text.strip().partition(".")
    digits = (whole + part).isascii() and (whole + part).isdigit() and len(text) <= 20
    return float(text) if digits else None


def _retry_after(text: str, wall: float) -> float | None:
    """Seconds, or until an HTTP date (RFC 9110, 10.2.3)."""
    seconds = _number(text)
    if seconds is not None or not text:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - wall)
    except ValueError:  # neither form: as if it were not there
        return None
