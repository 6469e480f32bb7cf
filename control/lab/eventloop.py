"""asyncio in virtual time: what production runs as a task, a simulated sidecar runs as the same."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import Any, TypeVarTuple, Unpack

from surgetank.control.lab.timeline import Timeline

Args = TypeVarTuple("Args")
logger = logging.getLogger(__name__)


class VirtualLoop(asyncio.AbstractEventLoop):
    """An event loop whose callbacks are a Timeline's: for tasks that sleep, wait and compute.

    There are no sockets, threads or processes in virtual time, so there is nothing of them here.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run it as a task until close()."""
        self._tasks.append(asyncio.Task(coroutine, loop=self))

    def close(self) -> None:
        """Cancel every task that was started; raises what one of them failed with."""
        for task in self._tasks:
            task.cancel()
        self._timeline.run(self._timeline.monotonic())
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    # For asyncio.

    def time(self) -> float:
        return self._timeline.monotonic()

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def call_soon(
        self,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.Handle:
        return self.call_at(self.time(), callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._timeline.call_at(when, partial(self._run, handle))
        return handle

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        logger.error("%s", context["message"], exc_info=context.get("exception"))

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It stays in the timeline, and does nothing when its time comes."""

    def _run(self, handle: asyncio.TimerHandle) -> None:
        if handle.cancelled():
            return
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            handle._run()
        finally:
            asyncio._set_running_loop(outer)
