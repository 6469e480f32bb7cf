"""What an address answers to the questions that tell engines apart."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from surgetank.engine.backends.remote.found import NobodyListens, NotFound

# Each page, and where older versions have it; the first that is answered counts.
MODELS = "/v1/models"  # what is not answered to this is not there
QUESTIONS = (
    (MODELS,),
    ("/version",),
    ("/props",),
    ("/server_info", "/get_server_info"),
    ("/info",),
    ("/api/version",),
    ("/metrics",),
    ("/prometheus/metrics",),
    ("/openapi.json",),
)
_WITHIN = 3.0  # seconds for each, to its last byte
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
        data = self.json(MODELS).get("data")
        listed = data if isinstance(data, list) else []
        return [each for each in listed if isinstance(each, dict) and each.get("id")]

    def exports(self, prefix: str) -> bool:
        """Whether a metric's name begins so."""
        page = "\n" + self.pages.get("/metrics", "")
        return f"\n{prefix}" in page


async def ask(client: httpx.AsyncClient, path: str) -> str | None:
    """The page's text; None unless it is answered with 200. Raises NotFound when it is not
    answered, be it that its redirects lead nowhere or that its text cannot be unpacked, and
    NobodyListens."""
    try:
        async with asyncio.timeout(_WITHIN):
            answer = await client.get(path, timeout=_WITHIN, follow_redirects=True)
    except (httpx.RequestError, TimeoutError) as error:
        refused = _refused(error)
        what = "connection refused" if refused else str(error) or "no answer"  # of a time-out: ""
        kind = NobodyListens if refused else NotFound
        raise kind(f"{str(client.base_url).rstrip('/')}{path}: {what}") from None
    return answer.text if answer.status_code == _OK else None


def _refused(error: BaseException | None) -> bool:
    """Whether connections were refused, as the first cause behind what the client made of it; of a
    name with several addresses, at each."""
    while error is not None:
        if isinstance(error, ConnectionRefusedError):
            return True
        if isinstance(error, BaseExceptionGroup):
            return all(_refused(each) for each in error.exceptions)
        error = error.__cause__ or error.__context__
    return False


async def ask_all(client: httpx.AsyncClient) -> Answers:
    """One question after the other: a small server may have one worker. Raises NotFound when it
    does not answer to MODELS."""
    pages: dict[str, str] = {}
    for paths in QUESTIONS:
        for path in paths:
            text = await ask_or_none(client, path)
            if text is not None:
                pages[paths[0]] = text
                break
    return Answers(pages)


async def ask_or_none(client: httpx.AsyncClient, path: str) -> str | None:
    """A page that gets no answer is like one that is not there, but for MODELS; where nobody
    listens there is none. Raises NotFound."""
    try:
        return await ask(client, path)
    except NobodyListens:
        raise
    except NotFound:
        if path == MODELS:
            raise
        return None
