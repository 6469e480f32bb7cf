"""What a gateway schedules by, under the names that it knows: vLLM's three metrics, ORCA's header.

The Gateway API's endpoint picker reads the metrics page of each candidate, and Envoy's load
balancers a header of its answers. A gate holds requests back that the engine would else let wait,
so that both queues are told as one.

Sources: gateway-api-inference-extension, model server protocol; cncf/xds, orca_load_report.proto;
Envoy's orca_parser.cc, which reads `TEXT name=value,...` and `JSON {...}` out of the header; gRPC
proposal A51, whose clients read the report in trailers that end in -bin.
"""

from dataclasses import dataclass

import orjson

from surgetank.admission.snapshot import DeskSnapshot, EngineLook
from surgetank.engine.protocols.orca_pb2 import OrcaLoadReport

LOAD_HEADER = "endpoint-load-metrics"
FORMAT_HEADER = "endpoint-load-metrics-format"
_WAITING, _RUNNING, _KV = "num_requests_waiting", "num_requests_running", "kv_cache_usage_perc"
_END = b"# EOF\n"  # OpenMetrics alone has it
_HELP = {
    _WAITING: "Requests that wait, at the gate and in the engine.",
    _RUNNING: "Requests in the engine's batch.",
    _KV: "Share of the KV memory in use, 0 to 1.",
}


@dataclass(frozen=True, slots=True)
class GatewaySignals:
    """How busy a served model is. `kv_used`: the mean of the engines that tell; None: none does."""

    model: str
    waiting: int
    running: int
    kv_used: float | None

    def named(self) -> dict[str, float]:
        """Those that are known, under vLLM's names without its prefix."""
        known: dict[str, float] = {_WAITING: self.waiting, _RUNNING: self.running}
        if self.kv_used is not None:
            known[_KV] = self.kv_used
        return known


def read_signals(desk: DeskSnapshot) -> GatewaySignals | None:
    """None while there is no engine: an absent metric is no idle candidate."""
    if desk.model is None:
        return None
    waiting_there = round(sum(engine.vitals.signals.waiting or 0.0 for engine in desk.there))
    told = [share for engine in desk.there if (share := _kv_used(engine)) is not None]
    return GatewaySignals(
        model=desk.model,
        waiting=desk.queue_requests + waiting_there,
        running=max(0, desk.dispatched_seqs - waiting_there),
        kv_used=sum(told) / len(told) if told else None,
    )


def _kv_used(engine: EngineLook) -> float | None:
    """The share that it tells, in its metrics or in its newest step."""
    step, told = engine.last_step, engine.vitals.signals.kv_used
    if told is not None or step is None:
        return told
    pool = step.kv_used + step.kv_cached + step.kv_free
    return step.kv_used / pool if pool else None


def metrics_text(signals: GatewaySignals | None) -> bytes:
    """Lines for a metrics page, of either format but for its end mark."""
    if signals is None:
        return b""
    model = signals.model.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    lines: list[str] = []
    for name, value in signals.named().items():
        lines.append(f"# HELP vllm:{name} {_HELP[name]}")
        lines.append(f"# TYPE vllm:{name} gauge")
        lines.append(f'vllm:{name}{{model_name="{model}"}} {value:.6g}')
    return "\n".join([*lines, ""]).encode()


def appended(page: bytes, lines: bytes) -> bytes:
    """A metrics page and further lines, before its end mark where it has one."""
    return page.removesuffix(_END) + lines + (_END if page.endswith(_END) else b"")


def load_header(signals: GatewaySignals | None, wanted: str) -> tuple[tuple[str, str], ...]:
    """The header in the format that the request wants, TEXT unless it says JSON; none while there
    is nothing to tell."""
    if signals is None:
        return ()
    named = _named(signals)
    if wanted.strip().upper() == "JSON":
        return ((LOAD_HEADER, "JSON " + orjson.dumps({"named_metrics": named}).decode()),)
    text = ",".join(f"named_metrics.{name}={value:g}" for name, value in named.items())
    return ((LOAD_HEADER, f"TEXT {text}"),)


def load_trailers(
    signals: GatewaySignals | None, wanted: str
) -> tuple[tuple[str, str | bytes], ...]:
    """The same for gRPC: for proxies that read the header, and for gRPC's own load balancers."""
    if signals is None:
        return ()
    report = OrcaLoadReport(named_metrics=_named(signals)).SerializeToString()
    return (*load_header(signals, wanted), (f"{LOAD_HEADER}-bin", report))


def _named(signals: GatewaySignals) -> dict[str, float]:
    return {name: round(value, 6) for name, value in signals.named().items()}
