"""How hard a load process works itself: its measurements are worth no more than this allows."""

import asyncio
import resource

import msgspec

from surgetank.control.bench.load.numbers import quantile

_BRIEF = 1.0  # seconds: of less, a share of CPU time says nothing
_TICK = 0.05  # seconds between two looks at the loop's lateness


class Strain(msgspec.Struct, frozen=True):
    """How hard the load process had to work itself."""

    lag_p99: float  # seconds that its loop woke up late
    late_p99: float  # seconds that calls left late
    cpu: float  # of one core


class Watch:
    """Looks at the loop while it works."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lags: list[float | None] = []
        self._late: list[float | None] = []
        self._begun, self._cpu = self._loop.time(), _cpu_seconds()
        self._task = self._loop.create_task(self._tick())

    def left(self, late: float) -> None:
        """A call left so many seconds after its time."""
        self._late.append(late)

    async def stop(self) -> Strain:
        """What was seen."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        elapsed = max(self._loop.time() - self._begun, _BRIEF)
        return Strain(
            lag_p99=quantile(self._lags or [0.0], 0.99),
            late_p99=quantile(self._late or [0.0], 0.99),
            cpu=(_cpu_seconds() - self._cpu) / elapsed,
        )

    async def _tick(self) -> None:
        while True:
            due = self._loop.time() + _TICK
            await asyncio.sleep(_TICK)
            self._lags.append(self._loop.time() - due)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
