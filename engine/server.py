"""The engine process: from its settings to its exit code, one sidecar after the other."""

import logging
import os
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING

from surgetank.engine.api import PROTOCOL, Hello
from surgetank.engine.config import BuildError, EngineConfig
from surgetank.engine.device.nvml import library
from surgetank.engine.device.sampler import DeviceWatch
from surgetank.engine.intake import ProtocolError
from surgetank.engine.link import Arrived, Link, LinkError
from surgetank.engine.model.errors import ModelError
from surgetank.engine.report import Stopwatch, Times
from surgetank.engine.ring import RingError, RingWriter, ring_path, writer_of
from surgetank.engine.scrape import ScrapeError, ScrapeServer
from surgetank.engine.stacks import StackFile, StacksError, stacks_path
from surgetank.engine.wire import encode
from surgetank.telemetry.clock import Clock, SystemClock
from surgetank.telemetry.engine_recorder import EngineRecorder
from surgetank.telemetry.exporter import Exporter
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.registry import Registry

if TYPE_CHECKING:
    from surgetank.engine.build import Built
    from surgetank.engine.loop import StepLoop
    from surgetank.engine.observer import Observer

logger = logging.getLogger(__name__)
PARENT_VARIABLE = "SURGETANK_PARENT_PID"
SPINS = "2000"  # some microseconds
LOOK_UP = 1.0  # seconds between looks at parent and sidecar while idle, which is told as often


class Server:
    """Turns the loop: wait and drain, step, send. stop() ends it after the step it is in."""

    def __init__(self, loop: "StepLoop", link: Link, observer: "Observer", clock: Clock) -> None:
        self._loop = loop
        self._link = link
        self._observer = observer
        self._clock = clock
        self._stopping = False
        self._checked = 0  # steps run when the KV cache was last found idle and examined

    def stop(self) -> None:
        """From any thread, or a signal handler."""
        self._stopping = True
        self._link.wake()

    def run(self, parent: int | None = None) -> None:
        """Until stop(), or until `parent` is not this process's parent any more."""
        watch, times = Stopwatch(self._clock), Times()
        while not self._stopping:
            if parent is not None and os.getppid() != parent:
                logger.warning("process %d, which started this engine, is gone", parent)
                return
            if self._loop.busy and not self._link.congested:
                arrived = self._link.receive(0)
            else:
                arrived = self._rest()
                rested = watch.lap()
                times.idle += rested
                self._observer.rested(rested)
            self._drain(arrived)
            times.drain += watch.lap()
            self._observer.before_step()
            output = None if self._link.congested else self._loop.step(times)
            watch.lap()
            if output is not None:
                if output.record is not None:
                    output = self._observer.after_step(output)
                    times = Times()
                self._link.send(encode(output))
                times.emit += watch.lap()

    def _rest(self) -> Arrived:
        """Sleep until something arrives, or it is time for a look at everything else. After the
        first second of quiet the KV cache's integrity is checked."""
        unchecked = self._checked != self._loop.steps
        begun = self._clock.monotonic()
        arrived = self._link.receive(LOOK_UP)
        if unchecked and not self._loop.busy and self._clock.monotonic() - begun >= LOOK_UP:
            self._checked = self._loop.steps
            for fault in self._loop.faults():
                logger.error("the KV cache is inconsistent: %s", fault)
        return arrived

    def _drain(self, arrived: Arrived) -> None:
        if arrived.lost:
            dropped = self._loop.abandon()
            logger.warning("%d choices dropped with the connection", dropped)
        for commands in arrived.commands:
            try:
                self._loop.take(commands)
            except ProtocolError as error:
                self._link.drop(str(error))
                return


def serve(config: EngineConfig) -> int:
    """Run an engine in this process's main thread. Returns its exit code: 0 after SIGTERM, SIGINT
    or the parent's end; 2 for a user's mistake, told in one sentence on stderr."""
    clock = SystemClock()
    stopping = StopFlag()
    try:
        built = _build(config, clock)
        registry = Registry(Process.ENGINE)
        recorder = EngineRecorder(registry, built.sizes)
        recorder.show_fit(built.loop.fit)
        _show_memory(registry, built)
        scrape = ScrapeServer(Exporter(registry, clock), config.metrics_host, config.metrics_port)
        with (
            scrape,
            _device_watch(registry, built, clock),
            _link(config, built, clock) as link,  # first: an engine that lives there keeps its ring
            RingWriter(
                ring_path(config.socket), config.ring_steps, writer_of(built.card, clock)
            ) as ring,
            StackFile(stacks_path(config.socket, "engine"), "engine"),
        ):
            server = Server(built.loop, link, _observer(built, recorder, ring), clock)
            stopping.tell(server)
            logger.info(
                "serving %s on %s; metrics at %s", built.card.name, config.socket, scrape.url
            )
            parent = os.environ.get(PARENT_VARIABLE)
            server.run(int(parent) if parent else None)
    except (ModelError, BuildError, LinkError, RingError, ScrapeError, StacksError) as error:
        sys.stderr.write(f"surgetank engine: {error}\n")
        return 2
    return 0


def _build(config: EngineConfig, clock: Clock) -> "Built":
    """Loads torch, and tells its threads how to wait for each other after every operation: by
    default they spin for long, and where others want the cores too, a step takes many times as
    long. Torch reads this once, when it is imported."""
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    try:
        from surgetank.engine.build import build
    except ModuleNotFoundError as error:
        raise BuildError(
            f"{error.name} is not installed; the engine needs: pip install 'surgetank[engine]'"
        ) from error
    return build(config, clock)


def _show_memory(registry: Registry, built: "Built") -> None:
    from surgetank.engine.memory import memory_samples, retry_samples  # need torch, as build does

    registry.source("memory_device_bytes", lambda: memory_samples(built.device))
    registry.source("memory_alloc_retries_total", lambda: retry_samples(built.device))


def _device_watch(
    registry: Registry, built: "Built", clock: Clock
) -> AbstractContextManager[object]:
    """Looks at the GPU, where the engine has one and its library is installed."""
    from surgetank.engine.memory import gpu_uuids  # needs torch, as build does

    devices = gpu_uuids(built.device)
    nvml = library() if devices else None
    return nullcontext() if nvml is None else DeviceWatch(nvml, devices, registry, clock)


def _observer(built: "Built", recorder: EngineRecorder, ring: RingWriter) -> "Observer":
    from surgetank.engine.observer import Observer  # needs torch, as build does

    return Observer(built.meter, recorder, ring)


def _link(config: EngineConfig, built: "Built", clock: Clock) -> Link:
    greeting = encode(Hello(PROTOCOL, built.card))
    return Link(config.socket, greeting, config.max_unsent_bytes, config.unread_timeout, clock)


class StopFlag:
    """A signal ends the server after its step; while the model is loading, at once."""

    def __init__(self) -> None:
        self._server: Server | None = None
        self._raised = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def tell(self, server: Server) -> None:
        """The model is loaded: what a signal ends from now on."""
        self._server = server
        if self._raised:
            server.stop()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._raised = True  # remembered too: what is being imported may swallow the exit
        if self._server is None:
            raise SystemExit(0)
        self._server.stop()
