"""Random numbers that depend on a choice's seed and position alone, never on its company.

SplitMix64 (Steele, Lea, Flood 2014) used as a counter: output n is a hash of seed + n * gamma, so
that nothing needs to be kept between steps and a preempted sequence goes on where it was.
"""

from hashlib import blake2b

import numpy as np
import numpy.typing as npt

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def choice_seed(seed: int, index: int) -> int:
    """64 bits for one of a request's choices; near seeds give unrelated streams."""
    digest = blake2b(f"{seed}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def uniforms(seeds: list[int], positions: list[int]) -> npt.NDArray[np.float64]:
    """One number in [0, 1) for each (64-bit seed, position)."""
    steps = np.array(positions, dtype=np.uint64) + np.uint64(1)
    z = np.array(seeds, dtype=np.uint64) + steps * _GAMMA  # wraps around, as it should
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    z = z ^ (z >> np.uint64(31))
    fractions: npt.NDArray[np.float64] = (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return fractions
