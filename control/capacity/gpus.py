"""Memory of common devices, as the driver reports it to the engine: less than the sticker says."""

from collections.abc import Mapping
from types import MappingProxyType

from surgetank.control.capacity.units import GIB, unknown

# GiB of `torch.cuda.get_device_properties().total_memory`; drivers and ECC move it by up to 1 %.
# From public out-of-memory reports and measurements, except these, which nobody confirmed yet:
# L4, L40S (taken from an L40), A100-40GB, A100-80GB, H200, B200.
_GIB = {
    "T4": 14.75,
    "V100-16GB": 15.77,
    "V100-32GB": 31.75,
    "A10G": 21.98,
    "L4": 22.03,
    "RTX-3090": 23.68,
    "RTX-4090": 23.52,
    "A100-40GB": 39.39,
    "L40": 44.40,
    "L40S": 44.40,
    "A100-80GB": 79.15,
    "H100-80GB": 79.18,
    "H100-NVL": 93.00,
    "H200": 139.81,
    "B200": 178.36,
    "MI300X": 191.98,
}
GPUS: Mapping[str, int] = MappingProxyType({name: int(size * GIB) for name, size in _GIB.items()})


def gpu_memory(name: str) -> int:
    """Bytes of a device of the table; CapacityError with near names for others."""
    wanted = name.strip().lower().replace(" ", "-")
    for known, size in GPUS.items():
        if known.lower() == wanted:
            return size
    raise unknown("gpu", name, GPUS)


def holding(need: int, share: float) -> list[str]:
    """Devices of the table that hold a need within a share of their memory, smallest first."""
    fitting = [(size, name) for name, size in GPUS.items() if need <= share * size]
    return [name for _, name in sorted(fitting)]
