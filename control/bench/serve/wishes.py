"""What a run is asked to do, and the part of it that makes two runs comparable."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surgetank.control.bench.document import BenchError
from surgetank.control.lab.behaviour import BEHAVIOURS

# Real libraries; the other kinds are the lab's behaviours, played by a plain HTTP client.
OPENAI, HASTY, HTTPX, GRPC, GRPC_STREAM = "openai", "openai-hasty", "httpx", "grpc", "grpc-stream"
LIBRARIES = (OPENAI, HASTY, HTTPX, GRPC, GRPC_STREAM)
KINDS = (*LIBRARIES, *(name for name in BEHAVIOURS if name not in LIBRARIES))
DEFAULT_REQUESTS, DEFAULT_CONCURRENCY = 100, 8


@dataclass(frozen=True, slots=True)
class Slo:
    """What makes a request good; seconds, None: whatever it is."""

    ttft: float | None = None
    tpot: float | None = None
    e2el: float | None = None

    @classmethod
    def parse(cls, text: str) -> "Slo":
        """From `ttft=1,tpot=.1`. Raises BenchError."""
        found: dict[str, float] = {}
        for part in filter(None, text.split(",")):
            name, _, value = part.strip().partition("=")
            try:
                found[name] = float(value)
            except ValueError:
                found[name] = 0.0
            if name not in cls.__slots__ or not found[name] > 0:
                raise BenchError(
                    f"slo is {part!r}; allowed: ttft, tpot, e2el = seconds above 0, with commas"
                )
        return cls(**found)


@dataclass(frozen=True, slots=True)
class Wishes:
    """A run's settings. Times in seconds."""

    url: str
    input: str
    clients: tuple[tuple[str, float], ...] = ((OPENAI, 1.0),)  # kind, weight
    slo: Slo = Slo()
    grpc: str | None = None
    model: str | None = None
    api_key: str = "unused"
    chat: bool = False
    rate: float | None = None
    concurrency: int | None = None
    requests: int | None = None
    duration: float | None = None
    speed: float = 1.0  # of a trace's own times
    scale: float = 1.0  # of a trace's prompts and outputs
    tokenizer: Path | None = None
    timeout: float = 60.0
    seed: int = 1

    def settings(self, model: str) -> dict[str, Any]:
        """What was played. The address is left out: the same load on another one is compared."""
        return {
            "model": model,
            "input": self.input_name(),
            "api": "chat" if self.chat else "completions",
            "clients": dict(self.clients),
            "rate": self.rate,
            "concurrency": self.concurrency,
            "requests": self.requests,
            "duration": self.duration,
            "speed": self.speed,
            "scale": self.scale,
            "timeout": self.timeout,
            "slo": {"ttft": self.slo.ttft, "tpot": self.slo.tpot, "e2el": self.slo.e2el},
            "seed": self.seed,
        }

    def input_name(self) -> str:
        """A spec as it is; a trace by its name and what is in it, wherever it lies."""
        path = Path(self.input)
        if not path.is_file():
            return self.input
        return f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"


def parse_clients(text: str) -> tuple[tuple[str, float], ...]:
    """Kinds with their weights from `openai` or `openai=3,no-retry=1`. Raises BenchError."""
    found = []
    for part in filter(None, text.split(",")):
        kind, _, weight = part.strip().partition("=")
        try:
            value = float(weight or 1)
        except ValueError:
            value = 0.0
        if kind not in KINDS or not value > 0:
            raise BenchError(
                f"client is {part!r}; allowed: KIND or KIND=WEIGHT, of {', '.join(KINDS)}"
            )
        found.append((kind, value))
    if not found:
        raise BenchError(f"no client is given; allowed: {', '.join(KINDS)}")
    return tuple(found)


def hash_of(settings: dict[str, Any]) -> str:
    """Equal for equal settings."""
    text = json.dumps(settings, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
