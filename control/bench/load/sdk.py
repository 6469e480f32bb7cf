"""openai's own client, as it is, and the same one in a hurry."""

from typing import Any

import openai

from surgetank.control.bench.load.attempts import HOOKS, retried


class Hasty(openai.AsyncOpenAI):
    """openai's retry loop, deaf to hints and without its backoff: it comes back at once."""

    def _should_retry(self, response: Any) -> bool:
        return retried(response.status_code)

    def _calculate_retry_timeout(self, *args: Any, **kwargs: Any) -> float:
        return 0.0


def sdk(
    kind: type[openai.AsyncOpenAI],
    base_url: str,
    *,
    retries: int,
    timeout: float,
    api_key: str = "unused",
) -> openai.AsyncOpenAI:
    """One client, whose attempts are noted; `timeout` in seconds, of an attempt."""
    return kind(
        base_url=base_url,
        api_key=api_key,
        max_retries=retries,
        timeout=timeout,
        http_client=openai.DefaultAsyncHttpxClient(event_hooks=HOOKS),
    )
