"""Which engine stands behind the gate, and what of the sidecar depends on that."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from surgetank.admission.desk import AnyDesk
from surgetank.admission.doors.grpc.relay_tongue import RelayTongue
from surgetank.admission.doors.grpc.tongue import TextTongue, Tongue
from surgetank.admission.doors.http.config import HttpConfig
from surgetank.admission.doors.http.inference import InferenceRoutes
from surgetank.admission.doors.http.relay_routes import RelayRoutes
from surgetank.admission.doors.http.text_routes import TextRoutes
from surgetank.admission.prompt_size import PromptSizes
from surgetank.admission.relay import RelayAdapter
from surgetank.admission.text_adapter import TextAdapter
from surgetank.admission.work import Adapter
from surgetank.control.config import Config
from surgetank.engine.api import Engine, Watcher
from surgetank.engine.backends.embedded import EmbeddedBackend
from surgetank.engine.backends.remote.backend import RemoteBackend
from surgetank.engine.backends.remote.discovery import Discovery
from surgetank.telemetry.clock import Clock


class Connected(Engine, Protocol):
    """An engine that is kept in touch with."""

    def watch(self, watcher: Watcher) -> None:
        """Tell `watcher` of steps, and of the engine's coming and going; before start()."""

    def start(self) -> None:
        """Begin to look for it, in a task of the running event loop."""

    async def aclose(self) -> None:
        """Let it go; requests that are still open are lost."""


@dataclass(frozen=True, slots=True)
class Behind:
    """One kind of engine, wired."""

    engine: Connected
    adapter: Adapter[Any, Any, Any]
    routes: Callable[[HttpConfig, AnyDesk], InferenceRoutes]
    tongue: Tongue  # how the gRPC door speaks with it
    sizes: PromptSizes | None = None  # what proxies may carry to it is sized by; None: nothing


def behind(config: Config, clock: Clock, rng: random.Random) -> Behind:
    """The engine that the configuration names."""
    if config.backend.url is None:
        return _embedded(config, clock, rng)
    return _remote(config, clock)


def _embedded(config: Config, clock: Clock, rng: random.Random) -> Behind:
    engine = EmbeddedBackend(config.engine.socket, clock, rng)
    return Behind(
        engine=engine,
        adapter=TextAdapter(engine),
        routes=lambda http, desk: TextRoutes(http, desk, clock),
        tongue=TextTongue(),
    )


def _remote(config: Config, clock: Clock) -> Behind:
    engine = RemoteBackend(config.backend, clock, Discovery(config.backend, clock))
    adapter = RelayAdapter(
        engine, lambda: engine.models, pass_priority=config.backend.pass_priority
    )
    return Behind(
        engine=engine,
        adapter=adapter,
        routes=lambda http, desk: RelayRoutes(http, desk, adapter.sizes, clock),
        tongue=RelayTongue(adapter.sizes),
        sizes=adapter.sizes,
    )
