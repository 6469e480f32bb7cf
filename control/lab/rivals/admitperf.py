"""Policies of the optional package admitperf, asked in vLLM's metric names."""

from importlib import import_module
from typing import Any

from surgetank.admission.policies.rule import Seen


class RivalMissing(Exception):
    """A policy needs a package that is not installed; str() says which."""


class AdmitPerf:
    """One of admitperf.policies by its class name, with its parameters. Raises RivalMissing."""

    def __init__(self, policy: str, **parameters: float) -> None:
        try:
            module: Any = import_module("admitperf.policies")
        except ModuleNotFoundError as error:
            raise RivalMissing("admitperf is not installed; pip install admitperf") from error
        self._policy = getattr(module, policy)(**parameters)

    def admits(self, now: float, prompt: int, seen: Seen) -> bool:
        """Whatever it decides on the engine's metrics; a deferral is a refusal here."""
        metrics = {
            "vllm:kv_cache_usage_perc": seen.kv_usage,
            "vllm:num_requests_waiting": float(seen.waiting),
            "vllm:num_requests_running": float(seen.in_flight - seen.waiting),
        }
        return bool(self._policy.decide(metrics).admitted)

    def ended(self, began: float, now: float, ok: bool, seen: Seen) -> None:
        """Nothing to learn."""
