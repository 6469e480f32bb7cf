"""A desk whose spans go to a collector, and how tests read them."""

import random
from collections.abc import Sequence

from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.admission.rig import Door, Rig
from tests.fakes_collector import Collector, attributes

from surgetank.admission.api import Ask
from surgetank.admission.gate import GateConfig
from surgetank.admission.outcome import Refused
from surgetank.admission.tracing import Tracer, open_tracer
from surgetank.engine.api import SamplingParams
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.tracing_config import TracingConfig

CHAT = "/v1/chat/completions"
INFER = "inference.GRPCInferenceService/ModelInfer"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
OPEN = "application/openmetrics-text"
ONE = GateConfig(in_flight_seqs=1, queue_requests=1)


class Traced:
    """A desk whose spans go to a collector."""

    def __init__(self, collector: Collector, config: GateConfig | None, **settings: object) -> None:
        tracing = TracingConfig.model_validate({"endpoint": collector.url, **settings})
        tracers: list[Tracer] = []

        def make(recorder: Recorder, clock: Clock) -> Tracer:
            tracers.append(open_tracer(tracing, {}, recorder, clock, random.Random(5)))
            return tracers[0]

        self.rig = Rig(config, make_tracer=make)
        self.tracer = tracers[0]
        self._collector = collector

    def ask(
        self,
        headers: Sequence[tuple[str, str]] = (),
        *,
        door: str = "http",
        route: str = CHAT,
        prompt: int = 4,
        stream: bool = False,
    ) -> Door:
        """A request through the gate."""
        ear = Door()
        ticket = self.rig.desk.arrive(door, headers)
        ticket.route, ticket.stream = route, stream
        ask = Ask([1] * prompt, SamplingParams(max_tokens=8))
        try:
            ear.call = self.rig.desk.submit(ticket, self.rig.desk.find("default"), ask, ear)
        except Refused as refused:
            ear.refusal = refused.refusal
        return ear

    def serve(self, *headers: tuple[str, str], seconds: float = 0.1) -> None:
        """One request, from its arrival to its end."""
        self.ask(headers)
        self.rig.clock.advance(seconds)
        self.rig.backend.finish(len(self.rig.backend.started))

    def end(self) -> list[Span]:
        """Everything that was kept."""
        self.tracer.close(20.0)
        return self._collector.spans


def named(spans: Sequence[Span], name: str) -> Span:
    (found,) = (span for span in spans if span.name == name)
    return found


def seconds(span: Span) -> float:
    return (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9


def says(span: Span) -> dict[str, object]:
    return {**attributes(span.attributes)}


def parent(trace: str = TRACE, flags: str = "01") -> tuple[str, str]:
    return ("traceparent", f"00-{trace}-{SPAN}-{flags}")
