"""What an address answers to the questions that tell engines apart."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

# Each page, and where older versions have it; the first that is answered counts.
QUESTIONS = (
    ("/v1/models",),
    ("/version",),
    ("/props",),
    ("/server_info", "/get_server_info"),
    ("/info",),
    ("/api/version",),
    ("/metrics",),
    ("/prometheus/metrics",),
    ("/openapi.json",),
)
_WITHIN = 3.0  # seconds for each
_OK = 200


@dataclass(frozen=True, slots=True)
class Answers:
    """The text of each page that was answered with 200, by its first address."""

    pages: Mapping[str, str]

    def json(self, path: str) -> dict[str, Any]:
        """The page's object; empty when there is none."""
        try:
            value = orjson.loads(self.pages.get(path, ""))
        except orjson.JSONDecodeError:
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def models(self) -> list[dict[str, Any]]:
        """What /v1/models lists."""
        data = self.json("/v1/models").get("data")
        listed = data if isinstance(data, list) else []
        return [each for each in listed if isinstance(each, dict) and each.get("id")]

    def exports(self, prefix: str) -> bool:
        """Whether a metric's name begins so."""
        page = "\n" + self.pages.get("/metrics", "")
        return f"\n{prefix}" in page


async def ask(client: httpx.AsyncClient, path: str) -> str | None:
    """The page's text; None unless it is answered with 200. Raises httpx.TransportError."""
    answer = await client.get(path, timeout=_WITHIN, follow_redirects=True)
    return answer.text if answer.status_code == _OK else None


async def ask_all(client: httpx.AsyncClient) -> Answers:
    """One question after the other: a small server may have one worker. Raises
    httpx.TransportError when it does not answer to the first."""
    pages: dict[str, str] = {}
    for paths in QUESTIONS:
        for path in paths:
            text = await _ask_or_none(client, path)
            if text is not None:
                pages[paths[0]] = text
                break
    return Answers(pages)


async def _ask_or_none(client: httpx.AsyncClient, path: str) -> str | None:
    """A page that gets no answer is like one that is not there, but for the first."""
    try:
        return await ask(client, path)
    except httpx.TransportError:
        if path == QUESTIONS[0][0]:
            raise
        return None
