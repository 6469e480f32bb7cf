"""One connection to Redis that is ours alone: an answer in time, or an error at once.

redis-py retries by itself for seconds, and a command that is cancelled can leave its answer for
whoever asks next. So nothing is retried here, and a connection on which anything went wrong is
dropped with everything that may still come out of it.
"""

import asyncio
import hashlib
import logging
from dataclasses import dataclass, field
from typing import Any, Protocol

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError
from redis.maint_notifications import MaintNotificationsConfig

logger = logging.getLogger(__name__)


class LinkError(Exception):
    """Redis did not answer in time, or with an error; whether it did what was asked is unknown."""


@dataclass(frozen=True)
class Script:
    """A Lua script, known to Redis by its SHA-1."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.text.encode(), usedforsecurity=False)
        object.__setattr__(self, "sha", digest.hexdigest())


class Runner(Protocol):
    """Runs scripts on what the sidecars share: a Link, or a likeness of Redis in virtual time."""

    async def run(self, script: Script, keys: list[str], args: list[str | int]) -> Any:
        """A script's answer; LinkError."""

    async def close(self) -> None:
        """Nothing more will be asked."""


class Link:
    """One question at a time; ValueError when the address is none."""

    def __init__(self, url: str, timeout: float) -> None:
        """`timeout` in seconds is for connecting and answering together."""
        self._timeout = timeout
        self._factory = ConnectionPool.from_url(
            url,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            protocol=2,
            driver_info=None,
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
        )
        self._connection: AbstractConnection | None = None
        self._turn = asyncio.Lock()

    async def run(self, script: Script, keys: list[str], args: list[str | int]) -> Any:
        """A script's answer; its text is sent only when Redis does not know it. LinkError."""
        operands = (len(keys), *keys, *args)
        async with self._turn:
            try:
                return await self._evaluate(script, operands)
            except (RedisError, OSError, TimeoutError) as error:
                raise LinkError(f"{type(error).__name__}: {error}") from error

    async def _evaluate(self, script: Script, operands: tuple[str | int, ...]) -> Any:
        try:
            return await self._ask("EVALSHA", script.sha, *operands)
        except NoScriptError:
            logger.info("redis does not know the script %s: sending it", script.sha[:8])
            return await self._ask("EVAL", script.text, *operands)

    async def close(self) -> None:
        """Drop the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def _ask(self, *command: str | int) -> Any:
        healthy = False
        try:
            async with asyncio.timeout(self._timeout):
                if self._connection is None:
                    made = self._factory.make_connection()  # type: ignore[no-untyped-call]
                    self._connection = made
                    await made.connect()
                await self._connection.send_command(*command)
                answer = await self._connection.read_response(disconnect_on_error=False)
            healthy = True
            return answer
        except NoScriptError:
            healthy = True  # a whole answer, though not the one wanted
            raise
        finally:
            if not healthy:
                await self.close()
