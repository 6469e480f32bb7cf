"""GPU metrics: what is supported is told, the rest is absent, and a lost driver comes back."""

import importlib
import logging
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from tests.engine.device.fake_nvml import Board, FakeNvml

from surgetank.engine.device import nvml as asking
from surgetank.engine.device.sampler import (
    FIRST_RETRY,
    PERIOD,
    STALE,
    DeviceSampler,
    DeviceWatch,
)
from surgetank.telemetry.clock import ManualClock, SystemClock
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.registry import Registry
from surgetank.telemetry.vocabulary import GpuSignal, GpuThrottle

POWER, THERMAL = 0x04, 0x40


class Watched:
    """A sampler over a made-up driver, turned by hand."""

    def __init__(self, *boards: Board, **devices: str) -> None:
        self.clock = ManualClock()
        self.nvml = FakeNvml(self.clock, *boards)
        self.registry = Registry(Process.ENGINE)
        self.waits: list[float] = []
        self.before_look: dict[int, Callable[[], object]] = {}
        self.sampler = DeviceSampler(self.nvml, devices, self.clock, self._wait)
        self.sampler.show(self.registry)

    def run(self, looks: int) -> None:
        """So many times around; `before_look` is asked for what happens before each."""
        turns = count()

        def stopping() -> bool:
            turn = next(turns)
            self.before_look.get(turn, lambda: None)()
            return turn > looks

        self.sampler.run(stopping)

    def samples(self, name: str) -> dict[tuple[str, ...], Any]:
        (reading,) = [each for each in self.registry.read() if each.spec.name == name]
        return reading.samples

    def _wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.clock.advance(seconds)


def test_a_gpu_that_tells_everything() -> None:
    board = Board("GPU-aa-11")
    watched = Watched(Board("GPU-zz"), board, cuda="aa-11")

    def work() -> None:
        board.work += 10
        board.reasons = POWER

    watched.before_look = {2: work, 3: work}
    watched.run(3)
    assert watched.samples("compute_gpu_up") == {("cuda",): 1}
    assert watched.samples("compute_gpu_ratio") == {
        ("cuda", "util"): 0.4,
        ("cuda", "sm_active"): pytest.approx(0.2),
        ("cuda", "sm_occupancy"): pytest.approx(0.3),
        ("cuda", "tensor_active"): pytest.approx(0.5),
    }  # and no dram_active, which this hardware does not count
    throttled = watched.samples("compute_gpu_throttle_seconds_total")
    assert throttled["cuda", "sw_power_cap"] == pytest.approx(2 * PERIOD)
    assert throttled["cuda", "hw_thermal"] == 0
    assert len(throttled) == len(GpuThrottle)
    assert watched.samples("compute_xid_total") == {("cuda",): 0}
    assert watched.samples("compute_gpu_driver_losses_total") == {(): 0}
    assert (watched.nvml.open, watched.nvml.samples) == (0, 0)


def test_what_is_not_supported_is_absent_and_the_rest_is_told() -> None:
    board = Board("GPU-aa")
    unsupported = FakeNvml.NVML_ERROR_NOT_SUPPORTED
    board.broken = {
        "nvmlDeviceGetUtilizationRates": unsupported,
        "nvmlGpmQueryDeviceSupport": FakeNvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        "nvmlDeviceRegisterEvents": FakeNvml.NVML_ERROR_NO_PERMISSION,
        "nvmlDeviceGetMaxMigDeviceCount": unsupported,
    }
    board.supported_reasons = THERMAL
    watched = Watched(board, cuda="aa")
    watched.run(2)
    assert watched.samples("compute_gpu_up") == {("cuda",): 1}
    assert watched.samples("compute_gpu_ratio") == {}
    assert watched.samples("compute_xid_total") == {}
    assert watched.samples("compute_gpu_throttle_seconds_total") == {("cuda", "hw_thermal"): 0}
    assert watched.waits == [PERIOD, PERIOD]  # nothing to listen to: it sleeps
    board.broken["nvmlDeviceGetCurrentClocksEventReasons"] = unsupported
    other = Watched(board, cuda="aa")
    other.run(2)
    assert other.samples("compute_gpu_throttle_seconds_total") == {}
    assert other.samples("compute_gpu_driver_losses_total") == {(): 0}


def test_a_slice_is_told_of_its_own_and_of_its_board() -> None:
    ours, other = Board("MIG-11", instance=3), Board("MIG-22", instance=4)
    board = Board("GPU-aa", other, ours)
    ours.broken["nvmlDeviceGetUtilizationRates"] = FakeNvml.NVML_ERROR_NOT_SUPPORTED
    watched = Watched(board, cuda="11")

    def work() -> None:
        ours.work += 10
        board.work += 30
        board.reasons = THERMAL
        watched.nvml.fault(board, 13, instance=4)
        watched.nvml.fault(board, 31, instance=3)
        watched.nvml.fault(board, 79)

    watched.before_look = {3: work}
    watched.run(3)
    assert watched.samples("compute_gpu_ratio")["cuda", "sm_active"] == pytest.approx(0.2)
    assert ("cuda", "util") not in watched.samples("compute_gpu_ratio")
    assert watched.samples("compute_xid_total") == {("cuda",): 2}
    throttled = watched.samples("compute_gpu_throttle_seconds_total")
    assert throttled["cuda", "hw_thermal"] == pytest.approx(PERIOD)


def test_several_devices_are_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    first, second = Board("GPU-aa"), Board("GPU-bb")
    first.util, second.util = 10, 90
    watched = Watched(second, first, one="aa", two="bb")
    watched.before_look = {1: lambda: watched.nvml.fault(second, 48)}
    with caplog.at_level(logging.ERROR):
        watched.run(2)
    ratios = watched.samples("compute_gpu_ratio")
    assert (ratios["one", "util"], ratios["two", "util"]) == (0.1, 0.9)
    assert watched.samples("compute_xid_total") == {("one",): 0, ("two",): 1}
    assert [record.getMessage() for record in caplog.records] == ["two reports XID 48"]


def test_a_board_off_the_bus_counts_although_it_cannot_say_who_it_is() -> None:
    board = Board("GPU-aa")
    watched = Watched(board, cuda="aa")

    def fall() -> None:
        watched.nvml.fault(board, 79)
        board.broken["nvmlDeviceGetUUID"] = FakeNvml.NVML_ERROR_GPU_IS_LOST

    def look() -> None:
        board.broken["nvmlDeviceGetUtilizationRates"] = FakeNvml.NVML_ERROR_GPU_IS_LOST

    watched.before_look = {1: fall, 2: look}
    watched.run(3)
    assert watched.samples("compute_xid_total") == {("cuda",): 1}
    assert watched.samples("compute_gpu_up") == {("cuda",): 0}


@pytest.mark.parametrize(
    "error",
    [
        FakeNvml.NVML_ERROR_GPU_IS_LOST,
        FakeNvml.NVML_ERROR_UNKNOWN,
        FakeNvml.NVML_ERROR_UNINITIALIZED,
    ],
)
def test_a_lost_driver_is_opened_again_ever_more_seldom(error: int) -> None:
    board = Board("GPU-aa")
    board.reasons = POWER
    watched = Watched(board, cuda="aa")
    seen: list[dict[tuple[str, ...], Any]] = []

    def lose() -> None:
        watched.nvml.lost = error

    def look() -> None:
        seen.append(watched.samples("compute_gpu_up"))
        seen.append(watched.samples("compute_gpu_ratio"))
        seen.append(watched.samples("compute_gpu_throttle_seconds_total"))

    def heal() -> None:
        look()
        watched.nvml.lost = None

    watched.before_look = {3: lose, 7: heal}
    watched.run(10)
    up, ratios, throttled = seen
    assert up == {("cuda",): 0}
    assert ratios == {}
    assert throttled["cuda", "sw_power_cap"] == pytest.approx(PERIOD)  # what was counted stays
    retries = [wait for wait in watched.waits if wait >= FIRST_RETRY]
    assert retries == [FIRST_RETRY * factor for factor in (1, 2, 4, 8)]
    assert watched.samples("compute_gpu_up") == {("cuda",): 1}
    assert watched.samples("compute_gpu_driver_losses_total") == {(): 4}
    after = watched.samples("compute_gpu_throttle_seconds_total")["cuda", "sw_power_cap"]
    assert PERIOD < after <= 3 * PERIOD + 0.1  # the time without a driver is nobody's
    assert (watched.nvml.open, watched.nvml.samples) == (0, 0)


def test_a_driver_that_hangs_is_down() -> None:
    watched = Watched(Board("GPU-aa"), cuda="aa")
    watched.run(1)
    watched.clock.advance(STALE - PERIOD - 0.5)
    assert watched.samples("compute_gpu_up") == {("cuda",): 1}
    assert watched.samples("compute_gpu_ratio") == {("cuda", "util"): 0.4}
    watched.clock.advance(1.0)  # and the thread still waits for an answer
    assert watched.samples("compute_gpu_up") == {("cuda",): 0}
    assert watched.samples("compute_gpu_ratio") == {}
    assert len(watched.samples("compute_gpu_throttle_seconds_total")) == len(GpuThrottle)


def test_a_gpu_that_the_driver_does_not_list_is_down() -> None:
    watched = Watched(Board("GPU-aa"), cuda="bb")
    watched.run(2)
    assert watched.samples("compute_gpu_up") == {("cuda",): 0}
    assert watched.samples("compute_gpu_driver_losses_total") == {(): 3}


def test_a_storm_of_faults_does_not_keep_it_from_looking() -> None:
    board = Board("GPU-aa")
    watched = Watched(board, cuda="aa")

    def storm() -> None:
        for _ in range(5000):
            watched.nvml.fault(board, 31)

    watched.before_look = {1: storm}
    watched.run(2)
    assert 900 < watched.samples("compute_xid_total")["cuda",] < 2100
    assert watched.clock.monotonic() == pytest.approx(2 * PERIOD, abs=0.01)


def test_the_thread_ends_with_its_context() -> None:
    registry = Registry(Process.ENGINE)
    nvml = FakeNvml(ManualClock(), Board("GPU-aa"))
    nvml.events = False
    watch = DeviceWatch(nvml, {"cuda": "aa"}, registry, SystemClock())
    with watch:
        pass
    assert not watch._thread.is_alive()
    assert nvml.open == 0


def test_the_librarys_own_names_and_numbers() -> None:
    real = importlib.import_module("pynvml")
    for name in dir(FakeNvml):
        if name.startswith(("nvml", "NVML", "c_nvml")):
            assert hasattr(real, name), name
    for name in dir(FakeNvml):
        if name.startswith("NVML_"):
            assert getattr(real, name) == getattr(FakeNvml, name), name
    assert {
        GpuThrottle.SW_POWER_CAP: real.nvmlClocksEventReasonSwPowerCap,
        GpuThrottle.HW_SLOWDOWN: real.nvmlClocksEventReasonHwSlowdown,
        GpuThrottle.SYNC_BOOST: real.nvmlClocksEventReasonSyncBoost,
        GpuThrottle.SW_THERMAL: real.nvmlClocksEventReasonSwThermalSlowdown,
        GpuThrottle.HW_THERMAL: real.nvmlClocksEventReasonHwThermalSlowdown,
        GpuThrottle.HW_POWER_BRAKE: real.nvmlClocksEventReasonHwPowerBrakeSlowdown,
    } == asking._THROTTLES
    assert asking._GPM_METRICS == {
        GpuSignal.SM_ACTIVE: real.NVML_GPM_METRIC_SM_UTIL,
        GpuSignal.SM_OCCUPANCY: real.NVML_GPM_METRIC_SM_OCCUPANCY,
        GpuSignal.TENSOR_ACTIVE: real.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
        GpuSignal.DRAM_ACTIVE: real.NVML_GPM_METRIC_DRAM_BW_UTIL,
    }
    assert real.nvmlEventTypeXidCriticalError == asking._XID
    fields = {name for name, *_ in real.c_nvmlGpmMetric_t._fields_}
    assert {"metricId", "nvmlReturn", "value"} <= fields
    assert {"gpu"} <= {name for name, *_ in real.c_nvmlUtilization_t._fields_}
    assert {"device", "eventData", "gpuInstanceId"} <= {
        name for name, *_ in real.c_nvmlEventData_t._fields_
    }


def test_without_the_library_nothing_is_asked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with caplog.at_level(logging.INFO):
        assert asking.library() is None
    assert "pip install 'surgetank[gpu]'" in caplog.text
    registry = Registry(Process.ENGINE)
    gpu = {each.spec.name for each in registry.read() if "gpu" in each.spec.name and each.samples}
    assert gpu == set()
