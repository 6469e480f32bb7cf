"""What memory the engine has and uses: the process on its host, and torch's allocator on a GPU."""

import os
from pathlib import Path

import torch

from surgetank.telemetry.registry import Sample

_STATM = Path("/proc/self/statm")  # proc(5): its second number is the resident set, in pages
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def memory_samples(device: torch.device) -> list[Sample]:
    """Bytes by device and kind; what this machine does not tell is left out."""
    found = [_sample("cpu", kind, value) for kind, value in _host().items()]
    if device.type == "cuda":
        found += [_sample(str(device), kind, value) for kind, value in _gpu(device).items()]
    return found


def gpu_uuids(device: torch.device) -> dict[str, str]:
    """The UUID (without its prefix) of the GPU, or slice of one, that CUDA chose, by its name in
    metrics; nothing for a CPU."""
    if device.type != "cuda":
        return {}
    return {str(device): str(torch.cuda.get_device_properties(device).uuid)}


def retry_samples(device: torch.device) -> list[Sample]:
    """How often torch's allocator had to try again; nothing where it has no such count."""
    if device.type != "cuda":
        return []
    return [({"device": str(device)}, torch.cuda.memory_stats(device)["num_alloc_retries"])]


def _sample(device: str, kind: str, value: float) -> Sample:
    return {"device": device, "kind": kind}, value


def _host() -> dict[str, float]:
    page = os.sysconf("SC_PAGE_SIZE")
    found = {"total": min(page * os.sysconf("SC_PHYS_PAGES"), _cgroup_limit())}
    if _STATM.exists():
        found["resident"] = page * int(_STATM.read_text().split()[1])
    return found


def _cgroup_limit() -> int | float:
    """Bytes that the container may use; infinite without a limit."""
    if not _CGROUP_LIMIT.exists():
        return float("inf")
    text = _CGROUP_LIMIT.read_text().strip()
    return int(text) if text.isdecimal() else float("inf")


def _gpu(device: torch.device) -> dict[str, int]:
    stats = torch.cuda.memory_stats(device)
    return {
        "allocated": stats["allocated_bytes.all.current"],
        "reserved": stats["reserved_bytes.all.current"],
        "inactive_split": stats["inactive_split_bytes.all.current"],
        "total": torch.cuda.get_device_properties(device).total_memory,
    }
