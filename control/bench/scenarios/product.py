"""The real product under test: its facts, its steps, its stall, and the cores that it runs on."""

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from surgetank.control.bench.document import BenchError
from surgetank.control.bench.load.words import WORDS
from surgetank.control.bench.scenarios.cores import own
from surgetank.control.config import Config
from surgetank.control.demo.service import Service
from surgetank.control.lab.fit import Row as StepRow
from surgetank.control.lab.steptime import StepModel
from surgetank.control.sources import from_assignment, load

# Slots, chunks and targets that suit a small model on few cores.
SETTINGS = (
    "engine.max_num_seqs=16",
    "engine.max_batch_tokens=128",
    "engine.tpot_target=0.15",
    "engine.policy=priority",
    "slo.ttft=1.5",
    "slo.tpot=0.15",
)
_CALM_WITHIN = 25.0  # seconds after a cell
_GRPC_ATTEMPTS = "grpc-previous-rpc-attempts"
_STEPS_KEPT = 4096
_ODD = 8.0  # times the median: a step that stood still


def settings(more: Sequence[str]) -> list[str]:
    """The bench's settings and the user's; one core is left to sidecar and clients."""
    return [f"engine.threads={max(1, len(own()) - 1)}", *SETTINGS, *more]


def config_of(assignments: Sequence[str]) -> Config:
    """What the product makes of these settings. Raises ConfigError."""
    flags = [from_assignment(Config, text) for text in assignments]
    return load(Config, env=os.environ, flags=flags)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the product says of itself."""

    openai_url: str
    grpc: str
    admin: str
    http: str
    engine_pid: int
    max_num_seqs: int
    kv_blocks: int
    block_size: int
    context_length: int


class Product:
    """A running product."""

    def __init__(self, service: Service, client: httpx.AsyncClient) -> None:
        self._service = service
        self._client = client
        status = service.status()
        engine, listeners = service.engine(), status["listeners"]
        self.facts = Facts(
            openai_url=service.openai_url,
            grpc=listeners["grpc"],
            admin=listeners["admin"],
            http=listeners["http"],
            engine_pid=engine["pid"],
            max_num_seqs=engine["max_num_seqs"],
            kv_blocks=engine["kv_blocks"],
            block_size=engine["kv_block_size"],
            context_length=engine["context_length"],
        )

    async def tokens_per_word(self) -> float:
        """Of the words that prompts are made of."""
        ask = {"model": "default", "prompt": "".join(f" {w}" for w in WORDS), "max_tokens": 1}
        answer = await self._client.post(f"{self.facts.openai_url}/completions", json=ask)
        answer.raise_for_status()
        return float(answer.json()["usage"]["prompt_tokens"]) / len(WORDS)

    async def newest_step(self) -> int:
        """Its number; 0 before the first."""
        return int((await self._steps(1))["engine"]["newest"])

    async def steps_since(self, number: int) -> list[StepRow]:
        """The steps after that one as the lab's fit wants them: prompt tokens, decoding sequences,
        context, and all seconds from the step before, but for those without work."""
        count = await self.newest_step() - number
        return rows_of((await self._steps(min(max(1, count), _STEPS_KEPT)))["steps"])

    async def grpc_retries(self) -> float:
        """Retries by gRPC clients that the doors have seen so far."""
        answer = await self._client.get(f"{self.facts.http}/metrics")
        answer.raise_for_status()
        return retries_in(answer.text)

    async def calm(self) -> None:
        """Wait until nothing is in flight and the gate is as it was at first, for some time at
        most: what is left of an overload should not be measured with the next cell."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + _CALM_WITHIN
        while loop.time() < give_up:
            status = await asyncio.to_thread(self._service.status)
            if is_calm(status):
                return
            await asyncio.sleep(0.25)

    async def stall(self, origin: float, begin: float, end: float) -> None:
        """Stop the engine's process from `begin` to `end`, seconds after `origin`."""
        now = asyncio.get_running_loop().time
        await asyncio.sleep(origin + begin - now())
        os.kill(self.facts.engine_pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(origin + end - now())
        finally:
            os.kill(self.facts.engine_pid, signal.SIGCONT)

    async def _steps(self, last: int) -> dict[str, Any]:
        answer = await self._client.get(f"{self.facts.admin}/steps", params={"last": last})
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found


def rows_of(steps: Sequence[dict[str, Any]]) -> list[StepRow]:
    """From the admin API's steps. A step's time is counted from the end of the one before, so that
    the loop's own share is in it."""
    return [
        (
            float(step["prefill_tokens"]),
            float(step["decode_tokens"]),
            float(step["context_tokens"]),
            step["at"] - before["at"] - step["stages"]["idle"],
        )
        for before, step in pairwise(steps)
        if step["prefill_tokens"] + step["decode_tokens"]
        and step["at"] - before["at"] > step["stages"]["idle"]
        and step["step"] == before["step"] + 1
    ]


def moving(rows: Sequence[StepRow]) -> list[StepRow]:
    """Without the steps in which the engine stood still."""
    if not rows:
        return []
    usual = sorted(row[3] for row in rows)[len(rows) // 2]
    return [row for row in rows if row[3] <= _ODD * usual]


def drift(rows: Sequence[StepRow], model: StepModel) -> float:
    """What the steps took, of what the model says: 1 is as fast as it was; nan without steps."""
    steps = moving(rows)
    expected = sum(model.seconds(int(p), int(b), int(k)) for p, b, k, _ in steps)
    return sum(row[3] for row in steps) / expected if expected else float("nan")


def retries_in(scrape: str) -> float:
    """Of gRPC clients, from the text of /metrics. Raises BenchError when it is not told there."""
    for family in text_string_to_metric_families(scrape):
        if family.name == "surgetank_retry_arrivals":
            return sum(
                sample.value
                for sample in family.samples
                if sample.labels.get("detected_by") == _GRPC_ATTEMPTS
                and sample.labels.get("attempt") != "0"
            )
    raise BenchError("the sidecar's /metrics has no surgetank_retry_arrivals_total")


def is_calm(status: dict[str, Any]) -> bool:
    """Whether nothing is left of an overload."""
    limits = {each["name"]: each["value"] for each in status["limits"]}
    held_back = limits.get("brownout_level", 0.0) > 0 or limits.get("admission_share", 1.0) < 1
    return status["requests"]["in_flight"] == 0 and not held_back
