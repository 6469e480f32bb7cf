"""docs/tracing.md shows spans as they are, and every name that they may carry."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.admission.traced import Traced
from tests.fakes_collector import Collector, attributes

from surgetank.admission.gate import GateConfig
from surgetank.engine.api import Started
from surgetank.telemetry import conventions
from surgetank.telemetry.vocabulary import FinishReason, Move

PAGE = Path(__file__).parents[2] / "docs" / "tracing.md"
BEGIN, END = "<!-- spans: generated -->", "<!-- /spans -->"
PARENT = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")


def story() -> list[Span]:
    """A streamed request that is preempted once; one that is shed, and comes back."""
    with Collector() as collector:
        it = Traced(collector, GateConfig(in_flight_seqs=1, queue_requests=1), sample=0)
        rig = it.rig
        it.ask()
        it.ask([PARENT, ("x-request-id", "checkout-7")], stream=True)
        again = ("x-request-id", "search-1")
        assert it.ask([again], prompt=6).refusal is not None
        rig.clock.advance(0.25)
        rig.backend.finish(1)
        rig.clock.advance(0.125)
        sink = rig.backend.open[2][1]
        sink.on_started(Started(2, 0))
        rig.backend.emit(2, "he")
        rig.clock.advance(0.25)
        sink.on_moved(Move.PREEMPTED)
        rig.clock.advance(0.5)
        sink.on_moved(Move.RESUMED)
        rig.clock.advance(0.125)
        rig.backend.emit(2, "y", finish=FinishReason.STOP)
        it.ask([again], prompt=6)
        rig.clock.advance(0.0625)
        rig.backend.finish(3)
        return it.end()


def listing(spans: Sequence[Span]) -> str:
    """One span a line, its attributes and events below it; ids numbered by their first sight."""
    numbers: dict[bytes, int] = {}
    lines = []
    for span in spans:
        begun = span.start_time_unix_nano
        trace = numbers.setdefault(span.trace_id, len(numbers) + 1)
        seconds = (span.end_time_unix_nano - begun) / 1e9
        indent = "" if span.kind == Span.SPAN_KIND_SERVER else "  "
        error = f"  ERROR {span.status.message}" if span.status.code == 2 else ""
        lines.append(f"{indent}{span.name}  {seconds:.4f} s  trace {trace}{error}")
        for link in span.links:
            (what,) = attributes(link.attributes).values()
            lines.append(f"{indent}    link: {what} in trace {numbers[link.trace_id]}")
        for name, value in attributes(span.attributes).items():
            shown = f"{value:.4g}" if isinstance(value, float) else value
            lines.append(f"{indent}    {name} = {shown}")
        for event in span.events:
            at = (event.time_unix_nano - begun) / 1e9
            lines.append(f"{indent}    event {event.name} at {at:.4f} s")
    return "\n".join(lines)


def test_the_page_shows_what_a_collector_gets() -> None:
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    told = f"{before}{BEGIN}\n\n```text\n{listing(story())}\n```\n\n{END}{after}"
    if os.environ.get("SURGETANK_WRITE_DOCS"):
        PAGE.write_text(told, "utf-8")
    assert page == told, "run this test with SURGETANK_WRITE_DOCS=1 to write the page anew"


@pytest.mark.parametrize("name", sorted(vars(conventions)))
def test_the_page_has_every_name(name: str) -> None:
    value = vars(conventions)[name]
    if name.isupper() and isinstance(value, str) and name not in ("PREFIX", "SCHEMA_URL"):
        assert value in PAGE.read_text("utf-8")


def test_the_page_has_every_metric() -> None:
    page = PAGE.read_text("utf-8")
    for theirs, ours in conventions.METRICS.items():
        assert f"| `{theirs}` | `{ours}` |" in page
