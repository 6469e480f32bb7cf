"""What a request's headers say of it: attempt, deadline, tenant, priority, id. Pure functions.

One rule for all: a header stands once, or several times with one value. Two values, a case variant
of another value, control characters or a value outside its grammar: the header is ignored and
counted, never guessed at. A client can only worsen its own standing: a claim moves a request into
the retry lane or to a lower class, never out or up.
"""

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TypeVar

import msgspec

from surgetank.admission import refusals
from surgetank.admission.api import Headers
from surgetank.admission.outcome import Refusal
from surgetank.admission.tenants import Caller, Tenants
from surgetank.admission.ticket import Ticket
from surgetank.telemetry.tracecontext import (
    Parent,
    TraceContext,
    parse_traceparent,
    parse_tracestate,
)
from surgetank.telemetry.vocabulary import Lane, Priority

T = TypeVar("T")


class Problem(StrEnum):
    """Why a header was ignored."""

    CONFLICT = "conflict"  # it stood more than once, with different values
    MALFORMED = "malformed"
    OUT_OF_RANGE = "out_of_range"
    RAISED = "raised"  # it asked for more than the client's own class
    UNTRUSTED = "untrusted"  # only a trusted proxy may speak for that tenant


class Arrival(msgspec.Struct, frozen=True):
    """What could be read. `ignored` counts (header, problem)."""

    id: str
    parent: Parent | None  # the caller's span
    attempt: int
    detected_by: str  # the header that claimed the attempt; "none" on a first try
    lane: Lane
    priority: Priority
    lowest: Priority  # that the client may still lower it to
    tenant: str
    barred: str  # why it may not ask; empty: it may
    deadline: float | None  # seconds from now for the whole request
    patience: float | None  # seconds from now until the first byte
    ignored: Mapping[tuple[str, Problem], int]

    def ticket(self, door: str, now: float, trace: TraceContext | None = None) -> Ticket:
        """The request as the gate will know it, arrived now."""
        return Ticket(
            id=self.id,
            arrived=now,
            door=door,
            trace=trace,
            lane=self.lane,
            attempt=self.attempt,
            detected_by=self.detected_by,
            priority=self.priority,
            lowest=self.lowest,
            tenant=self.tenant,
            barred=refusals.barred(self.barred) if self.barred else None,
            deadline=None if self.deadline is None else now + self.deadline,
            patience=self.patience,
            events=[(now, "arrived")],
        )


class HeaderError(Exception):
    """A header that is there and cannot be used."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


MAX_ATTEMPT = 999
MAX_SECONDS = 86_400.0  # a longer timeout is none
_DIGITS = re.compile(r"[0-9]{1,9}", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,12})?", re.ASCII)
_GRPC_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])", re.ASCII)
_GRPC_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_AMZ_ATTEMPT = re.compile(r"(?:^|;)\s*attempt=([0-9]{1,9})\s*(?:;|$)", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9._:@/+=-]{1,128}", re.ASCII)


def _attempt(text: str, first: int = 0) -> int:
    if not _DIGITS.fullmatch(text):
        raise HeaderError(Problem.MALFORMED)
    attempt = int(text) - first
    if not 0 <= attempt <= MAX_ATTEMPT:
        raise HeaderError(Problem.OUT_OF_RANGE)
    return attempt


def _amz_attempt(text: str) -> int:
    """`attempt=1; max=3`, counted from 1."""
    match = _AMZ_ATTEMPT.search(text)
    if match is None:
        raise HeaderError(Problem.MALFORMED)
    return _attempt(match[1], first=1)


def _seconds(text: str) -> float:
    if not _SECONDS.fullmatch(text):
        raise HeaderError(Problem.MALFORMED)
    seconds = float(text)
    if not 0 < seconds <= MAX_SECONDS:
        raise HeaderError(Problem.OUT_OF_RANGE)
    return seconds


def _truncated_seconds(text: str) -> float:
    """Whole seconds, rounded down by the client: 0 stands for anything below one."""
    return _seconds("1" if text == "0" else text)


def _grpc_timeout(text: str) -> float:
    """gRPC over HTTP/2: up to eight digits and a unit; 0 is a deadline that has passed."""
    match = _GRPC_TIMEOUT.fullmatch(text)
    if match is None:
        raise HeaderError(Problem.MALFORMED)
    seconds = int(match[1]) * _GRPC_UNITS[match[2]]
    if seconds > MAX_SECONDS:
        raise HeaderError(Problem.OUT_OF_RANGE)
    return seconds


def _priority(text: str) -> Priority:
    """A class by its label, or by its number (0 is the highest)."""
    for priority in Priority:
        if text in (priority.label, str(int(priority))):
            return priority
    raise HeaderError(Problem.MALFORMED)


def _name(text: str) -> str:
    if not _ID.fullmatch(text):
        raise HeaderError(Problem.MALFORMED)
    return text


def _parent(text: str) -> Parent:
    parent = parse_traceparent(text)
    if parent is None:
        raise HeaderError(Problem.MALFORMED)
    return parent


def _state(text: str) -> str:
    state = parse_tracestate(text)
    if state is None:
        raise HeaderError(Problem.MALFORMED)
    return state


ATTEMPT: dict[str, Callable[[str], int]] = {
    "grpc-previous-rpc-attempts": _attempt,
    "x-stainless-retry-count": _attempt,
    "x-envoy-attempt-count": lambda text: _attempt(text, first=1),
    "amz-sdk-request": _amz_attempt,
    "x-surgetank-attempt": _attempt,
}
DEADLINE: dict[str, Callable[[str], float]] = {
    "grpc-timeout": _grpc_timeout,
    "x-surgetank-timeout": _seconds,
}
PATIENCE: dict[str, Callable[[str], float]] = {
    "x-stainless-read-timeout": _seconds,  # openai for Python
    "x-stainless-timeout": _truncated_seconds,  # openai for JavaScript
}
PRIORITY: dict[str, Callable[[str], Priority]] = {
    "x-surgetank-priority": _priority,
    "x-gateway-inference-objective": _priority,
    "x-smg-priority": _priority,
}
TENANT: dict[str, Callable[[str], str]] = {
    "x-surgetank-tenant": _name,
    "x-gateway-inference-fairness-id": _name,
    "x-smg-tenant-id": _name,
}
_OTHERS = ("authorization", "x-api-key", "x-request-id", "traceparent", "tracestate")
_READ = frozenset((*ATTEMPT, *DEADLINE, *PATIENCE, *PRIORITY, *TENANT, *_OTHERS))


class _Reader:
    """The headers that matter, one value each, and what was ignored on the way."""

    def __init__(self, headers: Headers) -> None:
        self.ignored: defaultdict[tuple[str, Problem], int] = defaultdict(int)
        self._values: dict[str, str | None] = {}
        for raw_name, raw_value in headers:
            name = raw_name.lower()
            if name not in _READ:
                continue
            value = raw_value.strip(" \t")
            if self._values.setdefault(name, value) != value:
                self._values[name] = None
        for name, text in self._values.items():
            if text is None:
                self.ignored[name, Problem.CONFLICT] += 1

    def read(self, name: str, parse: Callable[[str], T]) -> T | None:
        """One header's value; None when it is absent or had to be ignored."""
        text = self._values.get(name)
        if text is None:
            return None
        try:
            return parse(text)
        except HeaderError as error:
            self.ignored[name, error.problem] += 1
            return None

    def read_all(self, parsers: dict[str, Callable[[str], T]]) -> dict[str, T]:
        """Every usable header of a group."""
        if self._values.keys().isdisjoint(parsers):
            return {}
        values = ((name, self.read(name, parse)) for name, parse in parsers.items())
        return {name: value for name, value in values if value is not None}

    def ignore(self, names: Iterable[str], problem: Problem) -> None:
        """Count headers that were readable and may not be followed."""
        for name in names:
            self.ignored[name, problem] += 1


def read_arrival(
    headers: Headers, *, rng: random.Random, tenants: Tenants, peer: str = ""
) -> Arrival:
    """Read one request's headers; `peer` is the address that they came from."""
    reader = _Reader(headers)
    attempt, detected_by = _read_attempt(reader)
    caller = tenants.caller(_authorization(reader), peer)
    tenant = _read_tenant(reader, caller)
    highest, lowest = tenants.classes(tenant)
    parent = _read_parent(reader)
    return Arrival(
        id=_request_id(reader, parent, rng),
        parent=parent,
        attempt=attempt,
        detected_by=detected_by,
        lane=Lane.RETRY if attempt else Lane.FIRST,
        priority=_read_priority(reader, highest, lowest),
        lowest=lowest,
        tenant=tenant,
        barred=caller.barred,
        deadline=_read_seconds(reader, DEADLINE),
        patience=_read_seconds(reader, PATIENCE),
        ignored=reader.ignored,
    )


def read_barred(headers: Headers, tenants: Tenants, peer: str) -> Refusal | None:
    """Why whoever sends these headers may not ask; None: it may."""
    why = tenants.caller(_authorization(_Reader(headers)), peer).barred
    return refusals.barred(why) if why else None


def _authorization(reader: _Reader) -> str | None:
    """As it stands; else made of the header in which Anthropic's clients send their key."""
    key = reader.read("x-api-key", str)
    return reader.read("authorization", str) or (None if key is None else f"Bearer {key}")


def _read_attempt(reader: _Reader) -> tuple[int, str]:
    """The highest that is claimed, and by which header."""
    attempts = reader.read_all(ATTEMPT)
    if not any(attempts.values()):
        return 0, "none"
    detected_by = max(attempts, key=attempts.__getitem__)
    return attempts[detected_by], detected_by


def _read_parent(reader: _Reader) -> Parent | None:
    """Without a usable traceparent the tracestate means nothing."""
    parent = reader.read("traceparent", _parent)
    if parent is None:
        return None
    return replace(parent, state=reader.read("tracestate", _state) or "")


def _read_seconds(reader: _Reader, parsers: dict[str, Callable[[str], float]]) -> float | None:
    """The shortest time that one of these headers leaves; None: there is none."""
    seconds = reader.read_all(parsers)
    return min(seconds.values()) if seconds else None


def _request_id(reader: _Reader, parent: Parent | None, rng: random.Random) -> str:
    given = reader.read("x-request-id", _name)
    if given is None and parent is not None:
        return parent.id.trace
    return given or rng.randbytes(16).hex()  # some engines take only UUIDs


def _read_priority(reader: _Reader, highest: Priority, lowest: Priority) -> Priority:
    """The lowest class asked for, within what the tenant's requests may have."""
    asked = reader.read_all(PRIORITY)
    if not asked:
        return highest
    reader.ignore((name for name, priority in asked.items() if priority < highest), Problem.RAISED)
    too_low = (name for name, priority in asked.items() if priority > lowest)
    reader.ignore(too_low, Problem.OUT_OF_RANGE)
    return min(lowest, max(highest, *asked.values()))


def _read_tenant(reader: _Reader, caller: Caller) -> str:
    """Whom a trusted proxy names; else whoever the caller proved to be."""
    named = reader.read_all(TENANT)
    if not named:
        return caller.tenant
    if caller.trusted and len(set(named.values())) == 1:
        return next(iter(named.values()))
    if caller.trusted:
        reader.ignore(named, Problem.CONFLICT)
    else:
        others = (name for name, tenant in named.items() if tenant != caller.tenant)
        reader.ignore(others, Problem.UNTRUSTED)
    return caller.tenant
