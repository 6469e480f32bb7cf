"""The HTTP door as a whole: start, sweep deadlines, drain, stop."""

import asyncio
import random
from collections.abc import Callable

from surgetank.admission.doors.http.config import HttpConfig
from surgetank.admission.doors.http.connection import Connection
from surgetank.admission.doors.http.exchange import TellLoad, tell_no_load
from surgetank.admission.doors.http.inference import InferenceRoutes
from surgetank.admission.doors.http.routes import Front, HealthCheck, RenderMetrics, Router
from surgetank.admission.doors.http.shared import Shared
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.vocabulary import Reason

_SWEEP_SECONDS = 0.25
_LAST_WORDS_SECONDS = 1.0


class HttpServer:
    """Listens, and answers for all connections together. Lives on one event loop.

    Shutting down: `drain()` (new requests are the desk's to refuse; every answer closes its
    connection), `wait_idle()`, `stop()`.
    """

    def __init__(
        self,
        config: HttpConfig,
        desk: Front,
        inference: InferenceRoutes,
        *,
        health: HealthCheck,
        metrics: RenderMetrics,
        clock: Clock,
        rng: random.Random,
        unread: Callable[[Reason], None] = lambda reason: None,
        load: TellLoad = tell_no_load,
    ) -> None:
        """`unread` hears of requests that end before their headers are read: no ticket tells.
        `load`: headers that answers of the inference routes carry too."""
        self._config = config
        self._router = Router(
            desk, inference, health=health, metrics=metrics, clock=clock, load=load
        )
        self._shared = Shared(config, clock, rng, self._router.open)
        self._shared.on_closed = self._on_closed
        self._shared.on_unread = unread
        self._closed = asyncio.Event()  # set again at each connection's end
        self._listener: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Bind and listen. OSError when the address cannot be had."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: Connection(self._shared), self._config.host, self._config.port, backlog=1024
        )
        self._sweeper = loop.call_later(_SWEEP_SECONDS, self._tick)

    @property
    def port(self) -> int:
        """The port bound, also when the configuration left the choice open."""
        if self._listener is None:
            raise RuntimeError("the HTTP door has not been started")
        return int(self._listener.sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._shared.connections)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of unfinished requests that are held."""
        return self._shared.buffered

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that clients have not taken yet."""
        return sum(connection.unsent for connection in self._shared.connections)

    def drain(self) -> None:
        """From now on no connection is kept for a second request."""
        self._shared.draining = True

    def undrain(self) -> None:
        """Back to normal service."""
        self._shared.draining = False

    def sweep(self) -> None:
        """Act on every deadline that has passed: slow headers, bodies, readers; idle clients."""
        now = self._shared.clock.monotonic()
        for connection in list(self._shared.connections):
            connection.sweep(now)

    async def wait_idle(self) -> None:
        """Until no connection is left; idle ones are closed. Bound it with asyncio.timeout()."""
        self.drain()
        while self._shared.connections:
            self._closed.clear()
            for connection in list(self._shared.connections):
                connection.drain()
            await self._closed.wait()

    async def stop(self) -> None:
        """Stop listening; end what is still being answered (outcome `draining`), and close."""
        self.drain()
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._shared.connections):
            connection.shut()
        try:
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                await self.wait_idle()
        except TimeoutError:  # clients that do not read: they lose the rest
            for connection in list(self._shared.connections):
                connection.abort()
            await self.wait_idle()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._router.close()

    def _tick(self) -> None:
        self.sweep()
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._tick)

    def _on_closed(self) -> None:
        self._closed.set()
