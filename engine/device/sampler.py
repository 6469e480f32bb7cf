"""Watches the engine's GPU in a thread of its own, and keeps what a scrape will ask for.

Neither the step loop nor a scrape calls the driver: it may take long, and hang when it is lost.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from surgetank.engine.device.nvml import DriverLost, Look, Session
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.registry import Registry, Sample
from surgetank.telemetry.vocabulary import GpuThrottle

logger = logging.getLogger(__name__)

PERIOD = 1.0  # seconds between two looks
STALE = 10.0  # seconds after which a look says nothing of now: the driver hangs, or we do
FIRST_RETRY, LAST_RETRY = 1.0, 60.0  # seconds before a lost driver is opened again


class DeviceSampler:
    """Looks at the devices every PERIOD. When the driver is lost, what it said is absent and what
    was counted stays; it is opened again, ever more seldom.

    Scrapes read while it works: tables are replaced, and never grow.
    """

    def __init__(
        self,
        nvml: Any,
        devices: Mapping[str, str],
        clock: Clock,
        wait: Callable[[float], object],
    ) -> None:
        """`devices`: UUIDs by name. `wait` sleeps so many seconds, or until it is time to stop."""
        self._nvml = nvml
        self._devices = devices
        self._clock = clock
        self._wait = wait
        self._looks: dict[str, Look] = {}
        self._looked = clock.monotonic()
        self._throttled: dict[tuple[str, GpuThrottle], float] = {}
        self._xids: dict[str, int] = {}
        self._losses = 0
        self._retry = FIRST_RETRY

    def show(self, registry: Registry) -> None:
        """From now on the registry reads from here."""
        registry.source("compute_gpu_up", self._read_up)
        registry.source("compute_gpu_ratio", self._read_ratios)
        registry.source("compute_gpu_throttle_seconds_total", self._read_throttled)
        registry.source("compute_xid_total", self._read_xids)
        registry.source("compute_gpu_driver_losses_total", lambda: [({}, self._losses)])

    def run(self, stopping: Callable[[], bool]) -> None:
        """Until `stopping()`; the driver is opened, watched, lost and opened again."""
        while not stopping():
            try:
                with Session(self._nvml, self._devices) as session:
                    self._watch(session, stopping)
            except DriverLost as error:
                self._lose(error)
                self._wait(self._retry)
                self._retry = min(2 * self._retry, LAST_RETRY)

    def _watch(self, session: Session, stopping: Callable[[], bool]) -> None:
        self._xids = dict.fromkeys(session.reporting, 0) | self._xids
        before = self._clock.monotonic()
        while not stopping():
            looks = session.look()
            now = self._clock.monotonic()
            self._keep(looks, now - before)
            before, self._retry = now, FIRST_RETRY
            self._pass_period(session, now + PERIOD)

    def _keep(self, looks: dict[str, Look], passed: float) -> None:
        """A reason that holds now is taken to have held since the look before."""
        now = {
            (device, reason): self._throttled.get((device, reason), 0.0) + passed * active
            for device, look in looks.items()
            for reason, active in look.throttled.items()
        }
        self._throttled = self._throttled | now
        self._looks, self._looked = looks, self._clock.monotonic()

    def _pass_period(self, session: Session, until: float) -> None:
        """Listen for faults as long as the period lasts."""
        while (left := until - self._clock.monotonic()) > 0:
            faults = session.wait(left)
            if faults is None:
                break
            for fault in faults:
                self._xids[fault.device] += 1
                logger.error("%s reports XID %d", fault.device, fault.xid)
        if (left := until - self._clock.monotonic()) > 0:
            self._wait(left)

    def _lose(self, error: DriverLost) -> None:
        self._looks = {}
        self._losses += 1
        logger.warning("GPU metrics are absent: %s; next try in %g s", error, self._retry)

    def _fresh(self) -> dict[str, Look]:
        """The last looks, unless a call of the driver's has kept the next ones away."""
        return self._looks if self._clock.monotonic() - self._looked < STALE else {}

    def _read_up(self) -> Iterator[Sample]:
        looks = self._fresh()
        for device in self._devices:
            yield {"device": device}, device in looks

    def _read_ratios(self) -> Iterator[Sample]:
        for device, look in self._fresh().items():
            for signal, ratio in look.ratios.items():
                yield {"device": device, "signal": signal}, ratio

    def _read_throttled(self) -> Iterator[Sample]:
        for (device, reason), seconds in self._throttled.items():
            yield {"device": device, "reason": reason}, seconds

    def _read_xids(self) -> Iterator[Sample]:
        for device, count in self._xids.items():
            yield {"device": device}, count


class DeviceWatch:
    """The sampler's thread, from entering to leaving the context."""

    def __init__(
        self, nvml: Any, devices: Mapping[str, str], registry: Registry, clock: Clock
    ) -> None:
        self._stop = threading.Event()
        self._sampler = DeviceSampler(nvml, devices, clock, self._stop.wait)
        self._sampler.show(registry)
        self._thread = threading.Thread(target=self._work, name="device", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(2 * PERIOD)  # a driver that hangs must not keep the engine from ending

    def _work(self) -> None:
        try:
            self._sampler.run(self._stop.is_set)
        except Exception:  # a fault in our own code: the engine goes on without GPU metrics
            logger.exception("GPU metrics have stopped")
