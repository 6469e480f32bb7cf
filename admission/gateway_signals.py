"""What a gateway schedules by, under the names that it knows: vLLM's three metrics, ORCA's header.

The Gateway API's endpoint picker reads the metrics page of each candidate, and Envoy's load
balancers a header of its answers. A gate holds requests back that the engine would else let wait,
so that both queues are told as one.

Sources: gateway-api-inference-extension, model server protocol; cncf/xds, orca_load_report.proto;
Envoy's orca_parser.cc, which reads `TEXT name=value,...` and `JSON {...}` out of the header.
"""

from dataclasses import dataclass

import orjson

from surgetank.admission.snapshot import DeskSnapshot

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
    """How busy a served model is. `kv_used` None: nobody tells."""

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
    told, step = desk.vitals.signals, desk.last_step
    waiting_there = round(told.waiting or 0.0)
    kv_used = told.kv_used
    if (
        kv_used is None
        and step is not None
        and (pool := step.kv_used + step.kv_cached + step.kv_free)
    ):
        kv_used = step.kv_used / pool
    return GatewaySignals(
        model=desk.model,
        waiting=desk.queue_requests + waiting_there,
        running=max(0, desk.dispatched_seqs - waiting_there),
        kv_used=kv_used,
    )


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
    named = {name: round(value, 6) for name, value in signals.named().items()}
    if wanted.strip().upper() == "JSON":
        return ((LOAD_HEADER, "JSON " + orjson.dumps({"named_metrics": named}).decode()),)
    text = ",".join(f"named_metrics.{name}={value:g}" for name, value in named.items())
    return ((LOAD_HEADER, f"TEXT {text}"),)
