"""Asks NVIDIA's management library about some devices: the only place that calls it.

What a device, a MIG slice or a driver does not support is left out of the answer. Any other error
means that the driver has to be opened again: DriverLost.
"""

import importlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from surgetank.telemetry.vocabulary import GpuSignal, GpuThrottle

logger = logging.getLogger(__name__)

# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h, "Clocks event reasons").
_THROTTLES = {
    GpuThrottle.SW_POWER_CAP: 0x04,
    GpuThrottle.HW_SLOWDOWN: 0x08,
    GpuThrottle.SYNC_BOOST: 0x10,
    GpuThrottle.SW_THERMAL: 0x20,
    GpuThrottle.HW_THERMAL: 0x40,
    GpuThrottle.HW_POWER_BRAKE: 0x80,
}
# Metric ids of GPM (nvml.h, nvmlGpmMetricId_t); their values are percentages.
_GPM_METRICS = {
    GpuSignal.SM_ACTIVE: 2,
    GpuSignal.SM_OCCUPANCY: 3,
    GpuSignal.TENSOR_ACTIVE: 5,
    GpuSignal.DRAM_ACTIVE: 10,
}
_XID = 0x08  # nvmlEventTypeXidCriticalError
_WHOLE_BOARD = 0xFFFFFFFF  # an event's GPU instance where it is of none


class DriverLost(Exception):
    """The driver does not answer for the devices; says why."""


@dataclass(frozen=True, slots=True)
class Look:
    """One device at one moment; what it does not support is not in it."""

    ratios: dict[GpuSignal, float]  # 0 to 1, since the look before
    throttled: dict[GpuThrottle, bool]


@dataclass(frozen=True, slots=True)
class Fault:
    """An error that the device reported: its XID number."""

    device: str
    xid: int


@dataclass(slots=True)
class _Gpu:
    """A device, or a slice of one (MIG): then `board` is the whole."""

    name: str
    handle: Any
    board: Any
    board_uuid: str
    slice: int | None  # GPU instance id
    gpm: list[Any] = field(default_factory=list)  # two samples, the newest first
    seen: bool = False  # there is a sample to compare with


def library() -> Any | None:
    """nvidia-ml-py's module; None where it is not installed."""
    try:
        return importlib.import_module("pynvml")
    except ModuleNotFoundError:
        logger.info("GPU metrics are off; they need: pip install 'surgetank[gpu]'")
        return None


class Session:
    """An open driver, from entering to leaving the context. One thread's."""

    def __init__(self, nvml: Any, devices: Mapping[str, str]) -> None:
        """`devices`: UUIDs without their prefix, as CUDA tells them, by the name to use."""
        self._nvml = nvml
        self._devices = devices
        self._absent = {
            *(nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INVALID_ARGUMENT),
            *(nvml.NVML_ERROR_NO_PERMISSION, nvml.NVML_ERROR_FUNCTION_NOT_FOUND),
            *(nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH),
        }
        self._gpus: list[_Gpu] = []
        self._events: Any = None
        self._reports: list[_Gpu] = []  # those whose faults the event set tells

    def __enter__(self) -> Self:
        """Raises DriverLost."""
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise DriverLost(str(error)) from error
        try:
            self._gpus = self._find()
            for gpu in self._gpus:
                gpu.gpm = self._gpm_samples(gpu)
            self._listen()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for gpu in self._gpus:
            for sample in gpu.gpm:
                self._release(self._nvml.nvmlGpmSampleFree, sample)
        if self._events is not None:
            self._release(self._nvml.nvmlEventSetFree, self._events)
        self._release(self._nvml.nvmlShutdown)

    def look(self) -> dict[str, Look]:
        """All devices now. Raises DriverLost."""
        return {gpu.name: Look(self._ratios(gpu), self._throttled(gpu)) for gpu in self._gpus}

    @property
    def reporting(self) -> list[str]:
        """The devices whose faults wait() can tell."""
        return [gpu.name for gpu in self._reports]

    def wait(self, seconds: float) -> list[Fault] | None:
        """The next event's faults, which may be no device's of ours; None after so many seconds
        without one, or at once where the driver tells none. Raises DriverLost."""
        if not self._reports:
            return None
        try:
            event = self._nvml.nvmlEventSetWait_v2(self._events, max(1, round(seconds * 1000)))
        except self._nvml.NVMLError as error:
            if error.value == self._nvml.NVML_ERROR_TIMEOUT:
                return None
            raise DriverLost(str(error)) from error
        xid = int(event.eventData)
        return [Fault(gpu.name, xid) for gpu in self._reports if self._concerns(event, gpu)]

    def _concerns(self, event: Any, gpu: _Gpu) -> bool:
        """Of a slice, by its id or all ones for the whole board. A board that fell off the bus
        cannot even tell its UUID: then it may be any."""
        try:
            board = self._nvml.nvmlDeviceGetUUID(event.device)
        except self._nvml.NVMLError as error:
            logger.warning("a GPU reports a fault and does not answer: %s", error)
            return True
        if board != gpu.board_uuid:
            return False
        return gpu.slice is None or event.gpuInstanceId in (gpu.slice, _WHOLE_BOARD)

    def _find(self) -> list[_Gpu]:
        found = {}
        for gpu, uuid in self._all():
            for name, wanted in self._devices.items():
                if uuid.partition("-")[2] == wanted:
                    gpu.name = name
                    found[name] = gpu
        missing = [f"{name} ({uuid})" for name, uuid in self._devices.items() if name not in found]
        if missing:
            raise DriverLost(f"the driver lists no {', '.join(missing)}")
        return list(found.values())

    def _all(self) -> Iterator[tuple[_Gpu, str]]:
        """Every board, and every slice of those that are cut, with its UUID. A board that is in
        trouble and not ours is passed over."""
        nvml = self._nvml
        for number in range(self._must(nvml.nvmlDeviceGetCount)):
            try:
                board = nvml.nvmlDeviceGetHandleByIndex(number)
                uuid = nvml.nvmlDeviceGetUUID(board)
            except nvml.NVMLError as error:
                logger.warning("GPU %d does not answer: %s", number, error)
                continue
            yield _Gpu("", board, board, uuid, None), uuid
            for index in range(self._ask(nvml.nvmlDeviceGetMaxMigDeviceCount, board) or 0):
                part = self._ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, board, index)
                if part is not None:
                    instance = self._ask(nvml.nvmlDeviceGetGpuInstanceId, part)
                    own = self._must(nvml.nvmlDeviceGetUUID, part)
                    yield _Gpu("", part, board, uuid, instance), own

    def _gpm_samples(self, gpu: _Gpu) -> list[Any]:
        support = self._ask(self._nvml.nvmlGpmQueryDeviceSupport, gpu.board)
        if support is None or not support.isSupportedDevice:
            return []
        return [self._must(self._nvml.nvmlGpmSampleAlloc) for _ in range(2)]

    def _listen(self) -> None:
        nvml = self._nvml
        self._events = self._ask(nvml.nvmlEventSetCreate)
        if self._events is None:
            return
        registered: dict[str, bool] = {}
        for gpu in self._gpus:
            if gpu.board_uuid not in registered:
                supported = self._ask(nvml.nvmlDeviceGetSupportedEventTypes, gpu.board) or 0
                registered[gpu.board_uuid] = bool(supported & _XID) and self._register(gpu.board)
        self._reports = [gpu for gpu in self._gpus if registered[gpu.board_uuid]]

    def _register(self, board: Any) -> bool:
        def register() -> bool:
            self._nvml.nvmlDeviceRegisterEvents(board, _XID, self._events)
            return True

        return self._ask(register) or False

    def _ratios(self, gpu: _Gpu) -> dict[GpuSignal, float]:
        rates = self._ask(self._nvml.nvmlDeviceGetUtilizationRates, gpu.handle)
        found = {} if rates is None else {GpuSignal.UTIL: rates.gpu / 100}
        return found | self._gpm(gpu)

    def _gpm(self, gpu: _Gpu) -> dict[GpuSignal, float]:
        if not gpu.gpm or self._take_sample(gpu) is None:
            return {}
        gpu.gpm.reverse()
        first, gpu.seen = not gpu.seen, True
        if first:
            return {}
        nvml = self._nvml
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(_GPM_METRICS)
        asked.sample2, asked.sample1 = gpu.gpm
        for place, number in enumerate(_GPM_METRICS.values()):
            asked.metrics[place].metricId = number
        if self._ask(nvml.nvmlGpmMetricsGet, asked) is None:
            return {}
        return {
            signal: asked.metrics[place].value / 100
            for place, signal in enumerate(_GPM_METRICS)
            if asked.metrics[place].nvmlReturn == nvml.NVML_SUCCESS
        }

    def _take_sample(self, gpu: _Gpu) -> Any | None:
        oldest = gpu.gpm[1]
        if gpu.slice is None:
            return self._ask(self._nvml.nvmlGpmSampleGet, gpu.board, oldest)
        return self._ask(self._nvml.nvmlGpmMigSampleGet, gpu.board, gpu.slice, oldest)

    def _throttled(self, gpu: _Gpu) -> dict[GpuThrottle, bool]:
        nvml = self._nvml
        supported = self._ask(nvml.nvmlDeviceGetSupportedClocksEventReasons, gpu.board)
        now = self._ask(nvml.nvmlDeviceGetCurrentClocksEventReasons, gpu.board)
        if supported is None or now is None:
            return {}
        return {reason: bool(now & bit) for reason, bit in _THROTTLES.items() if supported & bit}

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any | None:
        """What the driver says; None where it cannot. Raises DriverLost."""
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            if error.value in self._absent:
                return None
            raise DriverLost(str(error)) from error

    def _must(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The same where there is no doing without. Raises DriverLost."""
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            raise DriverLost(str(error)) from error

    def _release(self, function: Callable[..., Any], *arguments: Any) -> None:
        """A driver that is lost may not take back what it gave."""
        try:
            function(*arguments)
        except self._nvml.NVMLError as error:
            logger.debug("%s: %s", function.__name__, error)
