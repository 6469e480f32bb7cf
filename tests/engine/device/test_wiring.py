"""The engine process watches its GPU where it has one and can ask, and else does without."""

import threading
import time
from typing import Any

import pytest
import torch
from tests.engine.device.fake_nvml import Board, FakeNvml
from tests.engine.tiny_engine import tiny_config, tiny_model

from surgetank.engine import server
from surgetank.engine.build import assemble
from surgetank.telemetry.clock import ManualClock, SystemClock
from surgetank.telemetry.exporter import Exporter
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.registry import Registry


@pytest.fixture
def built() -> Any:
    return assemble(tiny_config(), tiny_model(), ManualClock())


def page(registry: Registry) -> str:
    return Exporter(registry, SystemClock()).render()[1].decode()


def test_a_gpu_is_in_the_page_and_so_is_its_loss(
    built: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml = FakeNvml(ManualClock(), Board("GPU-aa"))
    nvml.events = False
    monkeypatch.setattr("surgetank.engine.memory.gpu_uuids", lambda device: {"cuda:0": "aa"})
    monkeypatch.setattr(server, "library", lambda: nvml)
    registry = Registry(Process.ENGINE)
    exporter = Exporter(registry, SystemClock())

    def until(line: str) -> str:
        give_up, pause = time.monotonic() + 20, threading.Event()
        while line not in (text := exporter.render()[1].decode()):
            assert time.monotonic() < give_up, line
            pause.wait(0.01)
        return text

    with server._device_watch(registry, built, SystemClock()):
        text = until('surgetank_compute_gpu_up{device="cuda:0"} 1.0')
        assert 'surgetank_compute_gpu_ratio{device="cuda:0",signal="util"} 0.4' in text
        nvml.lost = FakeNvml.NVML_ERROR_GPU_IS_LOST
        text = until('surgetank_compute_gpu_up{device="cuda:0"} 0.0')
        assert "surgetank_compute_gpu_ratio" not in text
        assert "surgetank_batch_steps_total" in text
        assert "surgetank_compute_gpu_driver_losses_total 1.0" in text


@pytest.mark.parametrize("has_gpu", [True, False])
def test_without_a_gpu_or_its_library_nothing_is_said(
    built: Any, monkeypatch: pytest.MonkeyPatch, has_gpu: bool
) -> None:
    monkeypatch.setattr(server, "library", lambda: None)
    if has_gpu:
        monkeypatch.setattr("surgetank.engine.memory.gpu_uuids", lambda device: {"cuda:0": "aa"})
    assert built.device == torch.device("cpu")
    registry = Registry(Process.ENGINE)
    with server._device_watch(registry, built, SystemClock()):
        text = page(registry)
    assert "surgetank_compute_gpu" not in text
    assert "surgetank_compute_xid" not in text
