"""The doors for proxies that carry requests to the engine themselves and ask here first."""

import random
from collections.abc import Callable

from surgetank.admission.desk import AnyDesk
from surgetank.admission.doors.carried import Carriage
from surgetank.admission.doors.envoy.server import EnvoyDoor
from surgetank.admission.doors.http.admit import AdmitRoutes
from surgetank.admission.doors.http.exchange import TellLoad, tell_no_load
from surgetank.admission.doors.http.routes import HealthCheck, RenderMetrics
from surgetank.admission.doors.http.server import HttpServer
from surgetank.admission.prompt_size import PromptSizes
from surgetank.control.config import Config
from surgetank.control.listeners import in_url, named
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.vocabulary import Reason


class ProxiedDoors:
    """Those that are configured. start() and stop() once each, on one event loop."""

    def __init__(
        self,
        config: Config,
        desk: AnyDesk,
        sizes: PromptSizes | None,
        *,
        health: HealthCheck,
        metrics: RenderMetrics,
        clock: Clock,
        rng: random.Random,
        unread: Callable[[Reason], None],
        load: TellLoad,
    ) -> None:
        """`sizes` of prompts for that engine; None: nothing can be carried to it."""
        self._config = config
        self._envoy: EnvoyDoor | None = None
        self._admit: HttpServer | None = None
        if sizes is None:
            return
        carriage = Carriage(desk, sizes, config.http.default_max_tokens)
        if config.envoy.port is not None:
            told = load if config.envoy.load_header else tell_no_load
            self._envoy = EnvoyDoor(config.envoy, carriage, told)
        if config.admit.port is not None:
            place = {"host": config.admit.host, "port": config.admit.port}
            self._admit = HttpServer(
                config.http.model_copy(update=place),
                desk,
                AdmitRoutes(carriage, config.admit.lease, clock, rng),
                health=health,
                metrics=metrics,
                clock=clock,
                rng=rng,
                unread=unread,
            )

    async def start(self) -> dict[str, str]:
        """Listen; where each does. Raises ListenError."""
        listeners: dict[str, str] = {}
        if self._envoy is not None:
            host = self._config.envoy.host
            with named("envoy", host, self._config.envoy.port or 0):
                listeners["envoy"] = f"{in_url(host)}:{await self._envoy.start()}"
        if self._admit is not None:
            host = self._config.admit.host
            with named("admit", host, self._config.admit.port or 0):
                await self._admit.start()
            listeners["admit"] = f"http://{in_url(host)}:{self._admit.port}"
        return listeners

    async def stop(self, grace: float) -> None:
        """What is still open has its end already; up to `grace` seconds to tell it."""
        if self._envoy is not None:
            await self._envoy.stop(grace)
        if self._admit is not None:
            await self._admit.stop()
