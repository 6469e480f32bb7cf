"""Taking an address: one sentence when it cannot be had."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import uvicorn
from fastapi import FastAPI


class ListenError(Exception):
    """An address cannot be listened on; str() is the sentence to show, the exit code is 2."""


@contextmanager
def named(door: str, host: str, port: int) -> Iterator[None]:
    """Turns an OSError of taking `host`:`port` into a ListenError that names door and setting."""
    try:
        yield
    except OSError as error:
        # By its number where it has one: event loops put the address into the text once more.
        number = error.errno or 0
        said = os.strerror(number) if number > 0 else error.strerror
        reason = (said or "taken, or not an address of this machine").lower()
        raise ListenError(
            f"{door}: cannot listen on {host}:{port} ({reason}); "
            f"choose another with --set {door}.port=N"
        ) from error


def in_url(host: str) -> str:
    """As it stands in a URL."""
    return f"[{host}]" if ":" in host else host


class AdminListener:
    """The admin API on uvicorn, inside the running event loop; signals stay with the process."""

    def __init__(self, app: FastAPI) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen and serve; returns the port. Raises OSError when it is taken."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=128)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]))
        return int(listener.getsockname()[1])

    async def stop(self) -> None:
        """Answer what is being answered, then close."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task


class _Server(uvicorn.Server):
    def capture_signals(self) -> nullcontext[None]:  # type: ignore[override]
        """The sidecar's own handlers stay in place."""
        return nullcontext()
