"""Which engines stand behind the gate, and what of the sidecar depends on that."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from surgetank.admission.desk import AnyDesk
from surgetank.admission.doors.grpc.no_text import NoTextTongue
from surgetank.admission.doors.grpc.relay_tongue import RelayTongue
from surgetank.admission.doors.grpc.server import MakeSpeaker
from surgetank.admission.doors.grpc.tongue import TextTongue, Tongue
from surgetank.admission.doors.http.config import HttpConfig
from surgetank.admission.doors.http.inference import InferenceRoutes
from surgetank.admission.doors.http.no_text import NoTextRoutes
from surgetank.admission.doors.http.relay_routes import RelayRoutes
from surgetank.admission.doors.http.text_routes import TextRoutes
from surgetank.admission.doors.vllm.own import OwnEngine
from surgetank.admission.doors.vllm.relayed import RelayedEngine
from surgetank.admission.prompt_size import PromptSizes
from surgetank.admission.relay import RelayAdapter, RelayEngine
from surgetank.admission.text_adapter import TextAdapter
from surgetank.admission.work import Adapter
from surgetank.control.config import Config
from surgetank.engine.api import Engine, Watcher
from surgetank.engine.backends.embedded import EmbeddedBackend
from surgetank.engine.backends.remote.backend import RemoteBackend
from surgetank.engine.backends.remote.discovery import Discovery
from surgetank.engine.backends.remote.grpc_engine import GrpcEngine
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
    """One kind of engines, wired."""

    engines: tuple[Connected, ...]  # in the order of the adapter's
    adapter: Adapter[Any, Any, Any]
    routes: Callable[[HttpConfig, AnyDesk], InferenceRoutes]
    tongue: Tongue  # how the gRPC door speaks with them
    sizes: PromptSizes | None = None  # what proxies may carry to them is sized by; None: nothing
    speaker: MakeSpeaker = None  # of vLLM's engine protocol before them; None: it is not spoken


def behind(config: Config, clock: Clock, rng: random.Random) -> Behind:
    """The engines that the configuration names."""
    if not config.backends:
        return _embedded(config, clock, rng)
    return _grpc(config, clock) if config.backends[0].speaks_grpc else _remote(config, clock)


def _embedded(config: Config, clock: Clock, rng: random.Random) -> Behind:
    engine = EmbeddedBackend(config.engine.socket, clock, rng)
    return Behind(
        engines=(engine,),
        adapter=TextAdapter(engine),
        routes=lambda http, desk: TextRoutes(http, desk, clock),
        tongue=TextTongue(),
        speaker=OwnEngine,
    )


def _remote(config: Config, clock: Clock) -> Behind:
    remotes = [RemoteBackend(each, clock, Discovery(each, clock)) for each in config.backends]
    adapter = _relaying(config, remotes)
    return Behind(
        engines=tuple(remotes),
        adapter=adapter,
        routes=lambda http, desk: RelayRoutes(http, desk, adapter.sizes, clock),
        tongue=RelayTongue(adapter.sizes),
        sizes=adapter.sizes,
    )


def _grpc(config: Config, clock: Clock) -> Behind:
    """Those that speak vLLM's engine protocol: they are asked in it, and by its door alone."""
    engines = [GrpcEngine(each, clock) for each in config.backends]
    remotes = [
        RemoteBackend(each, clock, engine, engine) for each, engine in zip(config.backends, engines)
    ]
    adapter = _relaying(config, remotes)
    return Behind(
        engines=tuple(remotes),
        adapter=adapter,
        routes=lambda http, desk: NoTextRoutes(http, desk, clock),
        tongue=NoTextTongue(),
        speaker=lambda shared, look: RelayedEngine(shared, look, engines, adapter.sizes),
    )


def _relaying(config: Config, remotes: Sequence[RemoteBackend]) -> RelayAdapter:
    return RelayAdapter(
        *(
            RelayEngine(remote, each.name, each.role, each.pass_priority)
            for remote, each in zip(remotes, config.backends, strict=True)
        ),
        affinity_characters=config.routing.affinity_characters,
    )
