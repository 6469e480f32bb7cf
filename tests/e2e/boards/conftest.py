"""The product under a mixed load, watched by a real Prometheus: one run for all these tests."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from tests.e2e.boards.crowd import INTO_A_STORM, THROUGH_A_STORM, Crowd
from tests.e2e.boards.pages import Growing, Twin, served
from tests.e2e.prometheus_server import Prometheus
from tests.e2e.running import Running, until

# Where pictures for the documentation go. They show the product alone, up to the worst of a storm.
PICTURES = os.environ.get("SURGETANK_BOARDS_PICTURES", "")
SECONDS, PHASES = (330, INTO_A_STORM) if PICTURES else (75, THROUGH_A_STORM)
OURS, TWIN = "surgetank-0", "surgetank-1"
OTHERS = {
    "vllm-old": "vllm_0_6",
    "vllm-new": "vllm_0_19",
    "sglang-old": "sglang_0_4",
    "sglang-new": "sglang_0_5",
}
# Panels that only a remote engine fills.
OF_REMOTE = {
    "Time to first token inside the engine (p99)",
    "Gaps between tokens inside the engine (p99)",
    "Wait inside the engine (p99)",
    "Request duration inside the engine (p99)",
}
# A pool that is too small, so that memory has something to show.
SETTINGS = {
    "engine.kv_blocks": 220,
    "engine.swap_bytes": 16_000_000,
    "engine.policy": "priority",
    "engine.max_num_seqs": 12,
    "engine.operator_sampling": 8,
    "gate.queue_requests": 24,
}


@dataclass(frozen=True, slots=True)
class Watched:
    """What was seen, and when the load began and ended (Unix time)."""

    prometheus: Prometheus
    start: float
    end: float


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """After the load of the product, its twin and other engines; only Prometheus still runs."""
    folder = tmp_path_factory.mktemp("boards")
    settings = [f"--set={key}={value}" for key, value in SETTINGS.items()]
    with ExitStack() as after:
        with ExitStack() as stack:
            running = stack.enter_context(Running(_made(folder / "run"), *settings))
            running.wait_for("ready")
            engine = f"http://127.0.0.1:{running.metrics_port}"
            targets = {"surgetank": {OURS: running.http}, "surgetank-engine": {OURS: engine}}
            if not PICTURES:
                _add_others(stack, targets)
            prometheus = after.enter_context(Prometheus(folder / "prometheus", targets))
            start = time.time()
            _limit_changed(running)
            asyncio.run(Crowd(running.http, SECONDS, PHASES).run())
            end = start + SECONDS
            until(lambda: bool(prometheus.query("up", end + 1)), "the last scrape")
        yield Watched(prometheus, start, end)


def _add_others(stack: ExitStack, targets: dict[str, dict[str, str]]) -> None:
    """A second replica, and engines of other makes."""
    for ours in targets.values():
        ours[TWIN] = stack.enter_context(served(Twin(ours[OURS])))
    targets["surgetank-backend"] = {
        name: stack.enter_context(served(Growing(page))) for name, page in OTHERS.items()
    }


def _limit_changed(running: Running) -> None:
    """By an operator, so that there is an override to see."""
    change = {"value": 2048, "ttl": 3600, "who": "ada", "why": "shorter prompts for an hour"}
    admin = running.listeners["admin"]
    httpx.put(f"{admin}/limits/queue_tokens", json=change, timeout=60).raise_for_status()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
