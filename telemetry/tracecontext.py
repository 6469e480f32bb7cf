"""Which trace a request belongs to, as W3C Trace Context (level 1) carries it between services."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_VERSION_00 = "00"
_TRACEPARENT = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})"
    r"(?P<more>-.*)?",
    re.ASCII,
)
_MEMBER = re.compile(
    r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{1,256}", re.ASCII
)
_SAMPLED = 0x01
MAX_STATE = 512  # characters; what is longer may be left out
MAX_MEMBERS = 32


@dataclass(frozen=True, slots=True)
class SpanId:
    """One span anywhere: 32 and 16 hexadecimal digits, never all zero."""

    trace: str
    span: str


@dataclass(frozen=True, slots=True)
class Parent:
    """The caller's span, and whether the caller keeps its trace."""

    id: SpanId
    sampled: bool
    state: str = ""  # tracestate as it came


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A request's own span, under its caller's if it has one."""

    id: SpanId
    parent: Parent | None = None
    sampled: bool = False  # kept, even if nothing remarkable happens

    def passed_on(self, headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """A request's headers (names in lower case) for the next service, whose parent this is."""
        said = f"{_VERSION_00}-{self.id.trace}-{self.id.span}-{self.sampled * _SAMPLED:02x}"
        state = "" if self.parent is None else self.parent.state
        others = (each for each in headers if each[0] not in ("traceparent", "tracestate"))
        return (*others, ("traceparent", said), *((("tracestate", state),) if state else ()))


def parse_traceparent(text: str) -> Parent | None:
    """The caller's span; None when the header is not what its version says it is."""
    match = _TRACEPARENT.fullmatch(text)
    if match is None or match["version"] == "ff":
        return None
    if match["version"] == _VERSION_00 and match["more"] is not None:
        return None  # later versions may append fields, this one has none
    if not int(match["trace"], 16) or not int(match["span"], 16):
        return None
    return Parent(SpanId(match["trace"], match["span"]), bool(int(match["flags"], 16) & _SAMPLED))


def parse_tracestate(text: str) -> str | None:
    """The header without empty members; None when one is malformed, stands twice or is too much."""
    members = [member for each in text.split(",") if (member := each.strip(" \t"))]
    keys = {member.partition("=")[0] for member in members}
    state = ",".join(members)
    if len(keys) != len(members) or len(members) > MAX_MEMBERS or len(state) > MAX_STATE:
        return None
    return state if all(_MEMBER.fullmatch(member) for member in members) else None


def in_share(trace: str, share: float) -> bool:
    """Whether a trace is among a share of all (0 to 1), the same for every service that asks.

    id mod 2^64 < share * 2^64, as OpenTelemetry's TraceIdRatioBased sampler has it.
    """
    return int(trace[16:], 16) < round(share * 2**64)
