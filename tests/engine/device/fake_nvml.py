"""A made-up NVIDIA driver, named as nvidia-ml-py names it: boards, slices, faults, its loss."""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from surgetank.telemetry.clock import ManualClock


class NVMLError(Exception):
    """As nvidia-ml-py's: the number is `value`."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class Board:
    """One GPU, or one slice of it; `broken` maps a function's name to the error it raises."""

    def __init__(self, uuid: str, *slices: "Board", instance: int = 0) -> None:
        self.uuid = uuid
        self.slices = slices
        self.instance = instance
        self.util = 40
        self.reasons = 0
        self.supported_reasons = 0xFC
        self.gpm = True
        self.work = 0.0  # what the GPM counters have summed up, in percent times looks
        self.broken: dict[str, int] = {}


class _Function:
    """One of the driver's, which may fail."""

    def __init__(self, driver: "FakeNvml", name: str, works: Callable[..., Any]) -> None:
        self.__name__ = name
        self._driver = driver
        self._works = works

    def __call__(self, *arguments: Any) -> Any:
        board = arguments[0] if arguments and isinstance(arguments[0], Board) else None
        broken = self._driver.lost
        if board is not None and broken is None:
            broken = board.broken.get(self.__name__)
        result = self._works(*arguments)  # counts what is opened and given back all the same
        if broken is not None:
            raise NVMLError(broken)
        return result


class FakeNvml:
    """The module; time passes only while somebody waits for its events."""

    NVML_SUCCESS = 0
    NVML_ERROR_UNINITIALIZED = 1
    NVML_ERROR_INVALID_ARGUMENT = 2
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_NOT_FOUND = 6
    NVML_ERROR_TIMEOUT = 10
    NVML_ERROR_FUNCTION_NOT_FOUND = 13
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25
    NVML_ERROR_UNKNOWN = 999
    NVML_GPM_METRICS_GET_VERSION = 1
    NVMLError = NVMLError

    def __init__(self, clock: ManualClock, *boards: Board) -> None:
        self.boards = boards
        self.open = 0  # how often it was opened, and not closed
        self.opened = 0
        self.samples = 0  # allocated and not freed
        self.lost: int | None = None  # the error that every call raises
        self.events = True
        self.faults: deque[SimpleNamespace] = deque()
        self._clock = clock
        self._registered: list[Board] = []

    def __getattribute__(self, name: str) -> Any:
        """A function of the driver's fails where it is broken."""
        found = super().__getattribute__(name)
        return _Function(self, name, found) if name.startswith("nvml") else found

    def fault(self, board: Board, xid: int, instance: int = 0xFFFFFFFF) -> None:
        """The next to wait hears of it."""
        event = SimpleNamespace(device=board, eventData=xid, gpuInstanceId=instance)
        self.faults.append(event)

    def nvmlInit(self) -> None:
        self.open += self.lost is None
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Board:
        return self.boards[index]

    def nvmlDeviceGetUUID(self, board: Board) -> str:
        return board.uuid

    def nvmlDeviceGetMaxMigDeviceCount(self, board: Board) -> int:
        return 7 if board.slices else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, board: Board, index: int) -> Board:
        if index >= len(board.slices):
            raise NVMLError(self.NVML_ERROR_NOT_FOUND)
        return board.slices[index]

    def nvmlDeviceGetGpuInstanceId(self, part: Board) -> int:
        return part.instance

    def nvmlDeviceGetUtilizationRates(self, board: Board) -> SimpleNamespace:
        return SimpleNamespace(gpu=board.util)

    def nvmlDeviceGetSupportedClocksEventReasons(self, board: Board) -> int:
        return board.supported_reasons

    def nvmlDeviceGetCurrentClocksEventReasons(self, board: Board) -> int:
        return board.reasons

    def nvmlGpmQueryDeviceSupport(self, board: Board) -> SimpleNamespace:
        return SimpleNamespace(isSupportedDevice=int(board.gpm))

    def nvmlGpmSampleAlloc(self) -> SimpleNamespace:
        self.samples += 1
        return SimpleNamespace(work=None)

    def nvmlGpmSampleFree(self, sample: SimpleNamespace) -> None:
        self.samples -= 1

    def nvmlGpmSampleGet(self, board: Board, sample: SimpleNamespace) -> SimpleNamespace:
        sample.work = board.work
        return sample

    def nvmlGpmMigSampleGet(
        self, board: Board, instance: int, sample: SimpleNamespace
    ) -> SimpleNamespace:
        (part,) = (each for each in board.slices if each.instance == instance)
        sample.work = part.work
        return sample

    def c_nvmlGpmMetricsGet_t(self) -> SimpleNamespace:
        return SimpleNamespace(metrics=[SimpleNamespace() for _ in range(10)])

    def nvmlGpmMetricsGet(self, asked: SimpleNamespace) -> SimpleNamespace:
        """The metric of id N is N percent of the work between the samples, but 10 is unknown."""
        done = asked.sample2.work - asked.sample1.work
        for metric in asked.metrics[: asked.numMetrics]:
            metric.nvmlReturn = self.NVML_ERROR_NOT_SUPPORTED if metric.metricId == 10 else 0
            metric.value = done * metric.metricId
        return asked

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlEventSetFree(self, events: object) -> None:
        """Nothing to give back."""

    def nvmlDeviceGetSupportedEventTypes(self, board: Board) -> int:
        return 0x1F if self.events else 0

    def nvmlDeviceRegisterEvents(self, board: Board, kinds: int, events: object) -> None:
        self._registered.append(board)

    def nvmlEventSetWait_v2(self, events: object, milliseconds: int) -> SimpleNamespace:
        if self.faults:
            self._clock.advance(0.001)
            return self.faults.popleft()
        self._clock.advance(milliseconds / 1000)
        raise NVMLError(self.NVML_ERROR_TIMEOUT)
