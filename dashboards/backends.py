"""Records what any engine says of itself under one name, whichever name the engine uses for it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from surgetank.dashboards.promql import ratio
from surgetank.dashboards.recordings import now
from surgetank.dashboards.rules import Group, Record
from surgetank.telemetry.catalog import ALIASES, ENGINES, REPEATED, TOTAL, Alias

NEUTRAL = "surgetank_engine_"  # begins every recorded name; no metric of the product begins so
EMBEDDED = "embedded"


def _whole(counter: str, **match: str) -> str:
    """A counter of our own, summed over its labels; one process' counters start anew together."""
    return f"sum by (instance) ({now.select(counter, **match)})"


# The embedded engine's side of each signal that it tells; its latencies are the sidecar's.
_EMBEDDED = {
    "running_requests": now.gauge("sum", "batch_running_requests", "instance"),
    "waiting_requests": now.gauge("sum", "batch_waiting_requests", "instance"),
    "kv_used_ratio": ratio(
        now.gauge("sum", "memory_kv_blocks", "instance", state="used"),
        now.gauge("sum", "memory_kv_blocks", "instance"),
    ),
    "preemptions_total": _whole("batch_preemptions_total"),
    "prompt_tokens_total": _whole("batch_scheduled_tokens_total", phase="prefill"),
    "generation_tokens_total": _whole("batch_scheduled_tokens_total", phase="decode"),
    "prefix_hit_tokens_total": _whole("memory_prefix_tokens_total", result="hit"),
    "prefix_query_tokens_total": _whole("memory_prefix_tokens_total"),
}


def _records() -> Iterable[Record]:
    for alias in ALIASES:
        if alias.name in _EMBEDDED:
            yield Record(NEUTRAL + alias.name, _EMBEDDED[alias.name], {"backend": EMBEDDED})
        for engine in ENGINES:
            for suffix in alias.suffixes:
                expr = _taken(alias, engine, suffix)
                yield Record(NEUTRAL + alias.name + suffix, expr, {"backend": engine})


def _taken(alias: Alias, engine: str, suffix: str) -> str:
    """The first candidate that exists, one series per instance and model."""
    total = ",".join(f'{label}="{value}"' for label, value in TOTAL[engine].items())
    matchers = f"{{{total}}}" if alias.split and total else ""
    first = " or ".join(name + suffix + matchers for name in alias.candidates(engine))
    repeated = ", ".join(REPEATED[engine])
    once = f"max without ({repeated}) ({first})" if repeated else first
    named = f'label_replace({once}, "model", "$1", "model_name", "(.+)")'
    keep = "instance, model, le" if suffix == "_bucket" else "instance, model"
    return f"{alias.combine} by ({keep}) ({named})"


BACKENDS = Group("surgetank_backends", tuple(_records()))


@dataclass(frozen=True, slots=True)
class Missing:
    """A signal that an engine's metrics do not carry, under any name that we know."""

    signal: str
    looked_for: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.signal}: none of {', '.join(self.looked_for)} is exported"


def missing(engine: str, text: str) -> tuple[Missing, ...]:
    """What boards will lack, told from an engine's /metrics page in the text format."""
    exported = set(re.findall(r"^([a-zA-Z_:][\w:]*)", text, re.MULTILINE))
    return tuple(
        Missing(alias.name, alias.candidates(engine))
        for alias in ALIASES
        if alias.found(engine, exported) is None
    )
