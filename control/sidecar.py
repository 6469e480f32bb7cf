"""The sidecar process: puts doors, desk, backend, control loop and admin API together, and ends.

clients -> HTTP and gRPC doors -> desk (gate, queue) -> backend -> engine process
operators -> admin API -> actions -> limits, drain, journal      control loop -> limits
"""

import asyncio
import contextlib
import gc
import json
import logging
import os
import random
import signal
import socket
import sys

import uvloop

from surgetank.admission.desk import AnyDesk, FrontDesk
from surgetank.admission.doors.grpc.server import GrpcDoor
from surgetank.admission.doors.http.exchange import Pairs, tell_no_load
from surgetank.admission.doors.http.head import Head
from surgetank.admission.doors.http.routes import Health, RenderPage
from surgetank.admission.doors.http.server import HttpServer
from surgetank.admission.gateway_signals import (
    FORMAT_HEADER,
    appended,
    load_header,
    metrics_text,
    read_signals,
)
from surgetank.admission.leases.quotas import Quotas
from surgetank.admission.tenants import Tenants, TenantsError
from surgetank.admission.tracing import open_tracer
from surgetank.control import engines
from surgetank.control.actions import Actions
from surgetank.control.api import create_app
from surgetank.control.backend_drains import BackendDrains
from surgetank.control.child import PARENT_VARIABLE
from surgetank.control.config import Config
from surgetank.control.console.camera import Camera
from surgetank.control.drain import Drain
from surgetank.control.fleet.directed import Directed
from surgetank.control.fleet.membership import Membership
from surgetank.control.health import judge
from surgetank.control.insight.service import Insight
from surgetank.control.inspection import Inspection
from surgetank.control.journal import Entry, Journal
from surgetank.control.lint import lint
from surgetank.control.listeners import AdminListener, ListenError, in_url, named
from surgetank.control.loop import OURSELVES, ControlLoop
from surgetank.control.openfiles import raise_limit
from surgetank.control.policies import concurrency
from surgetank.control.policies.plugins import control_policies
from surgetank.control.proxied import ProxiedDoors
from surgetank.control.standing import Standing, standing_path
from surgetank.control.trials import Trials
from surgetank.control.views import ControlOut, StatusOut, status_out
from surgetank.engine.api import Settings
from surgetank.engine.stacks import StackFile, StacksError, stacks_path
from surgetank.telemetry.clock import Clock, SystemClock
from surgetank.telemetry.exporter import Exporter
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.registry import Registry

logger = logging.getLogger(__name__)
LOOK_UP = 1.0  # seconds between two looks at the parent
FLUSH = 5.0  # seconds for clients to read the last bytes of what is complete
LAST_TRACES = 2.0  # seconds for the collector to take what is left
# A request leaves no rings of objects behind, so there is little to collect, and each collection is
# a pause that every request feels. 10,000 new objects are looked at in about a millisecond.
SELDOM = (10_000, 5, 100)
LAST_WORDS = 1.0  # seconds for what is cut off to tell its clients so


class Sidecar:
    """Every part of the process, wired. start() and stop() once each, on one event loop."""

    def __init__(self, config: Config, clock: Clock, rng: random.Random) -> None:
        self._config = config
        self._clock = clock
        self._born = clock.monotonic()
        registry = Registry(Process.SIDECAR, config.slo)
        self._exporter = Exporter(registry, clock)
        self._recorder = Recorder(registry)
        behind = engines.behind(config, clock, rng)
        self._engines = behind.engines
        self._tracer = open_tracer(
            config.tracing, os.environ, self._recorder, clock, random.Random(rng.random())
        )
        quotas = Quotas(config.leases, clock)
        self._desk: AnyDesk = FrontDesk(
            adapter=behind.adapter,
            recorder=self._recorder,
            clock=clock,
            rng=rng,
            call_later=asyncio.get_running_loop().call_later,
            config=config.gate,
            tenants=Tenants(config.tenants, rng),
            quotas=quotas,
            tracer=self._tracer,
            routing=config.routing,
        )
        for engine, watcher in zip(self._engines, self._desk.engines.watchers, strict=True):
            engine.watch(watcher)
        self._http = HttpServer(
            config.http,
            self._desk,
            behind.routes(config.http, self._desk),
            health=self._health,
            metrics=self._metrics,
            clock=clock,
            rng=rng,
            unread=self._recorder.unread,
            load=self._load if config.http.load_header else tell_no_load,
        )
        self._grpc = GrpcDoor(
            config.grpc, self._desk, clock, behind.tongue, self._desk.snapshot, behind.speaker
        )
        self._proxied = ProxiedDoors(
            config,
            self._desk,
            behind.sizes,
            health=self._health,
            metrics=self._metrics,
            clock=clock,
            rng=rng,
            unread=self._recorder.unread,
            load=self._load,
        )
        self._journal = Journal(
            clock,
            config.control.journal_path(),
            failures=registry.counter("journal_write_failures_total").at(),
        )
        self._policy_errors = registry.counter("control_policy_errors_total").at()
        self._drain = Drain(clock, self._journal, self._turn_drain)
        self.inspection = Inspection(
            config.engine.socket, [backend.url for backend in config.backends]
        )
        self.backend_drains = BackendDrains(
            clock,
            self._journal,
            self._desk.engines.names,
            lambda: self._desk.snapshot().engines,
            self._turn_backend,
        )
        self.insight = Insight(
            desk=self._desk,
            drains=self.backend_drains,
            recorder=self._recorder,
            clock=clock,
        )
        self._loop = ControlLoop(
            clock=clock,
            config=config.gate,
            policies=control_policies(config.control.policies),
            limits=self._desk.limits,
            journal=self._journal,
            drain=self._drain,
            read=self.insight.history.read,
            apply=self._apply,
            policy_errors=self._policy_errors,
        )
        self._loop.on_tick(self.backend_drains.expire)
        if concurrency.NAME in config.control.policies:
            hold = self._desk.engines.hold
            self._loop.on_tick(concurrency.EachLearns(config.gate, hold, self._journal))
        self.trials = Trials(
            clock=clock,
            stage=self._desk.policies,
            loop=self._loop,
            journal=self._journal,
            registry=registry,
            config=config.control.canary,
        )
        self._fleet = Membership(
            config.leases,
            config.fleet,
            quotas=quotas,
            clock=clock,
            rng=rng,
            limits=self._desk.limits,
            journal=self._journal,
            drain=self._drain,
            policies=Directed(self.trials),
            registry=registry,
            host=socket.gethostname(),
        )
        self.actions = Actions(
            clock,
            self._desk.limits,
            self._journal,
            self._drain,
            self.insight.object_to,
            self._fleet.others,
        )
        path = standing_path(config.engine.socket)
        self._standing = Standing(
            path,
            clock,
            self._desk.limits,
            self._drain,
            self.backend_drains,
            self._journal,
            self._fleet.life_of,
        )
        self._camera = Camera(
            clock=clock,
            looks=self.insight.history.looks,
            recent=self._desk.recent,
            journal=self._journal,
            drain=self._drain,
            drains=self.backend_drains,
        )
        for engine in self._engines:
            engine.watch(self._camera.meter)
        self.feed = self._camera.feed
        self._admin = AdminListener(create_app(self, config.admin.token.get_secret_value()))
        self._tasks: list[asyncio.Task[None]] = []
        self.listeners: dict[str, str] = {}

    async def start(self) -> None:
        """Listen everywhere, then look for the engine. Raises ListenError."""
        http, grpc, admin = self._config.http, self._config.grpc, self._config.admin
        with named("http", http.host, http.port):
            await self._http.start()
            self.listeners["http"] = f"http://{in_url(http.host)}:{self._http.port}"
        with named("grpc", grpc.host, grpc.port):
            self.listeners["grpc"] = f"{in_url(grpc.host)}:{await self._grpc.start()}"
        self.listeners |= await self._proxied.start()
        with named("admin", admin.host, admin.port):
            admin_port = await self._admin.start(admin.host, admin.port)
        self.listeners["admin"] = f"http://{in_url(admin.host)}:{admin_port}"
        self._fleet.adopt(self._standing.restore(), self._standing.save)
        self._fleet.start()
        for engine in self._engines:
            engine.start()
        self._tasks = [
            asyncio.create_task(self._loop.run(self._config.control.period)),
            asyncio.create_task(self._camera.run()),
        ]

    async def drain(self, why: str, within: float) -> None:
        """Refuse new requests and let the others finish, for up to `within` seconds."""
        self._standing.forget()
        self._drain.begin_final(OURSELVES, why)
        done = asyncio.Event()
        self._desk.drain(done.set)
        try:
            async with asyncio.timeout(within):
                await done.wait()
        except TimeoutError:
            logger.warning("not drained within %g s; the rest is cut off", within)
            return
        with contextlib.suppress(TimeoutError):  # new arrivals may keep a door busy for ever
            async with asyncio.timeout(FLUSH):
                await self._http.wait_idle()

    async def stop(self) -> None:
        """End whatever is left, as draining, and close everything that start() opened."""
        self._desk.draining = True
        self._desk.end_all()
        await self._grpc.stop(LAST_WORDS)
        await self._proxied.stop(LAST_WORDS)
        await self._http.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._fleet.stop()
        self.feed.close()
        await self._admin.stop()
        await asyncio.gather(*(engine.aclose() for engine in self._engines))
        await asyncio.to_thread(self._tracer.close, LAST_TRACES)

    def status(self) -> StatusOut:
        """For the admin API: the service at this moment."""
        return status_out(
            desk=self._desk.snapshot(),
            totals=self._recorder.totals(),
            drain=self._drain,
            control=ControlOut(
                ticks=self._loop.ticks,
                policy_errors=int(self._policy_errors.value),
                journal_failures=self._journal.failures,
            ),
            listeners=self.listeners,
            uptime=self._clock.monotonic() - self._born,
            fleet=self._fleet.view(),
        )

    def entries(self, last: int) -> list[Entry]:
        """For the admin API: the journal's newest entries."""
        return self._journal.recent(last)

    def _metrics(self, accept: str) -> RenderPage:
        write = self._exporter.begin(accept)
        more = b""
        if self._config.http.gateway_metrics:
            more = metrics_text(read_signals(self._desk.snapshot()))

        def page() -> tuple[bytes, str]:
            content_type, body = write()
            return appended(body, more), content_type

        return page

    def _load(self, head: Head) -> Pairs:
        return load_header(read_signals(self._desk.snapshot()), head.header(FORMAT_HEADER))

    def _health(self) -> Health:
        return judge(self._desk.snapshot(), self._config.control.hung_after)

    def _apply(self, settings: Settings) -> None:
        for engine in self._engines:
            engine.apply(settings)

    def _turn_backend(self, name: str, by: str | None) -> None:
        if by is None:
            self._desk.engines.undrain(name)
        else:
            self._desk.engines.drain(name, by)
        self._standing.save()

    def _turn_drain(self, on: bool) -> None:
        if on:
            self._desk.drain()
            self._http.drain()
        else:
            self._desk.undrain()
            self._http.undrain()
        self._standing.save()


def serve(config: Config) -> int:
    """Run a sidecar in this process's main thread; returns its exit code.

    0 after SIGTERM, SIGINT or the parent's end, drained; 1 when a second signal cut that short;
    2 for an address or keys that cannot be had. Says where it listens in one line of JSON on
    stdout.
    """
    raise_limit()
    with contextlib.ExitStack() as resources:
        try:
            resources.enter_context(
                StackFile(stacks_path(config.engine.socket, "sidecar"), "sidecar")
            )
        except StacksError as error:
            logger.warning("stacks cannot be asked for: %s", error)
        try:
            return uvloop.run(_serve(config))
        except (ListenError, TenantsError) as error:
            sys.stderr.write(f"surgetank sidecar: {error}\n")
            return 2


async def _serve(config: Config) -> int:
    first, second = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: (second if first.is_set() else first).set())
    for finding in lint(config):
        logger.warning("%s", finding)
    # Not the Mersenne Twister: who sees its request ids could compute the keys that it made.
    sidecar = Sidecar(config, SystemClock(), random.SystemRandom())
    try:
        await sidecar.start()
        gc.collect()
        gc.freeze()  # what is there now stays: no later collection need stop to look at it
        gc.set_threshold(*SELDOM)
        sys.stdout.write(json.dumps({"listeners": sidecar.listeners}) + "\n")
        sys.stdout.flush()
        why = await _reason_to_stop(first)
        logger.info("stopping: %s", why)
        draining = asyncio.create_task(sidecar.drain(why, config.control.drain_timeout))
        hurry = asyncio.create_task(second.wait())
        await asyncio.wait({draining, hurry}, return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()
        hurry.cancel()
        return 1 if second.is_set() else 0
    finally:
        await sidecar.stop()


async def _reason_to_stop(signalled: asyncio.Event) -> str:
    """Returns as soon as there is a reason."""
    parent = os.environ.get(PARENT_VARIABLE)
    while parent is None or os.getppid() == int(parent):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if parent is None else LOOK_UP):
                await signalled.wait()
                return "a signal"
    return "the process that started this one is gone"
