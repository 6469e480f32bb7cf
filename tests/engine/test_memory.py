"""Memory as it is told: of the process always, of the allocator where there is a GPU."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from surgetank.engine.memory import gpu_uuids, memory_samples, retry_samples

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")
STATS = {
    "allocated_bytes.all.current": 40,
    "reserved_bytes.all.current": 64,
    "inactive_split_bytes.all.current": 8,
    "num_alloc_retries": 3,
}


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU as torch tells of it."""
    properties = SimpleNamespace(total_memory=100, uuid="aa-11")
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: STATS)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)


def told(device: torch.device) -> dict[tuple[str, str], Any]:
    return {(labels["device"], labels["kind"]): value for labels, value in memory_samples(device)}


def test_a_cpu_tells_of_its_process_and_of_no_allocator() -> None:
    found = told(CPU)
    assert set(found) == {("cpu", "total"), ("cpu", "resident")}
    assert 0 < found["cpu", "resident"] < found["cpu", "total"]
    assert retry_samples(CPU) == []
    assert gpu_uuids(CPU) == {}


@pytest.mark.usefixtures("cuda")
def test_a_gpu_tells_of_its_allocator_too() -> None:
    found = {kind: value for (device, kind), value in told(GPU).items() if device == "cuda:0"}
    assert found == {"allocated": 40, "reserved": 64, "inactive_split": 8, "total": 100}
    assert retry_samples(GPU) == [({"device": "cuda:0"}, 3)]
    assert gpu_uuids(GPU) == {"cuda:0": "aa-11"}
