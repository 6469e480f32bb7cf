"""A gRPC service config: retries that grpcio itself makes, for clients that take no interceptor.

Pass it as the channel option `grpc.service_config` (a JSON string). RESOURCE_EXHAUSTED must be
among the retried codes, else a pushback on it is not looked at. Throttling: each failure costs a
token, each success gives `token_ratio` back, and below half of `max_tokens` nothing is retried.
Source: gRPC proposal A6.
"""

from typing import Any

SERVICE = "inference.GRPCInferenceService"
MAX_ATTEMPTS = 5  # grpc cuts more to this
MIN_BACKOFF = 0.05  # seconds


def service_config(
    *,
    service: str = SERVICE,
    attempts: int = 3,
    initial_backoff: float = 0.2,
    max_backoff: float = 10.0,
    max_tokens: int = 10,
    token_ratio: float = 0.1,
) -> dict[str, Any]:
    """The config as a JSON object; backoffs in seconds. ValueError when a value is out of range."""
    for name, value, least, most in (
        ("attempts", attempts, 2, MAX_ATTEMPTS),
        ("initial_backoff", initial_backoff, MIN_BACKOFF, 60.0),
        ("max_backoff", max_backoff, initial_backoff, 600.0),
        ("max_tokens", max_tokens, 1, 1000),
        ("token_ratio", token_ratio, 0.001, 1.0),
    ):
        if not least <= value <= most:
            raise ValueError(f"{name} is {value:g}; allowed: {least:g} to {most:g}")
    retry = {
        "maxAttempts": attempts,
        "initialBackoff": f"{initial_backoff:.9g}s",
        "maxBackoff": f"{max_backoff:.9g}s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
    }
    return {
        "methodConfig": [{"name": [{"service": service}], "retryPolicy": retry}],
        "retryThrottling": {"maxTokens": max_tokens, "tokenRatio": token_ratio},
    }
