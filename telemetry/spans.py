"""A part of a request's life as OpenTelemetry's SDK has it: a span that has already ended."""

from collections.abc import Iterable, Mapping

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from surgetank import __version__
from surgetank.telemetry.conventions import LINK, SCHEMA_URL
from surgetank.telemetry.tracecontext import SpanId

Attributes = Mapping[str, str | bool | int | float | None]  # None: not known, left out
_SCOPE = InstrumentationScope("surgetank", __version__, SCHEMA_URL)


def context(id: SpanId, *, remote: bool = False, state: str = "") -> SpanContext:
    """A span that is kept; `remote`: another process's; `state`: a valid tracestate."""
    return SpanContext(
        int(id.trace, 16),
        int(id.span, 16),
        remote,
        TraceFlags(TraceFlags.SAMPLED),
        TraceState.from_header([state]) if state else None,
    )


def ended_span(
    resource: Resource,
    name: str,
    of: SpanContext,
    parent: SpanContext | None,
    start: float,
    end: float,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    attributes: Attributes,
    events: Iterable[tuple[float, str]] = (),
    links: Iterable[tuple[SpanId, str]] = (),
    error: str | None = None,
) -> ReadableSpan:
    """Times are seconds on the wall clock; `links` lead to other traces, and say what they are to
    this one; `error`: why it failed, None: it did not."""
    return ReadableSpan(
        name,
        of,
        parent,
        resource,
        attributes={key: value for key, value in attributes.items() if value is not None},
        events=[Event(what, timestamp=_nanoseconds(at)) for at, what in events],
        links=[Link(context(to), {LINK: what}) for to, what in links],
        kind=kind,
        status=Status() if error is None else Status(StatusCode.ERROR, error),
        start_time=_nanoseconds(start),
        end_time=_nanoseconds(max(start, end)),
        instrumentation_scope=_SCOPE,
    )


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
