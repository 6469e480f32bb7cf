"""Which engine a prompt belongs to: those that begin alike go to the same prefix cache.

Rendezvous hashing (highest random weight; Thaler and Ravishankar, 1998): every engine has a weight
for every key, h(key, name), and the key belongs to the engine with the highest. When an engine
comes or goes, only the keys that belong to it move. The order by weight gives each key a second and
third engine as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b


@dataclass(frozen=True, slots=True)
class Prefix:
    """How a prompt begins."""

    key: bytes  # the same for prompts that begin alike
    tokens: int  # that an engine which has read them need not read again


def prefix_key(text: str) -> bytes:
    """The key of a prompt's first characters."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def preference(key: bytes, names: Sequence[str]) -> list[int]:
    """Where a key belongs: positions in `names`, the first choice first."""
    return sorted(range(len(names)), key=lambda at: _weight(key, names[at]), reverse=True)


def _weight(key: bytes, name: str) -> bytes:
    return blake2b(name.encode(), key=key, digest_size=8).digest()
