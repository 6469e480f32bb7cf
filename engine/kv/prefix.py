"""Names for full blocks: a chained hash, so that equal names mean equal prefixes."""

from array import array
from hashlib import blake2b

DIGEST_BYTES = 16  # collisions must be out of reach: one would mix up two callers' prompts


def extend_digests(
    digests: list[bytes], tokens: list[int], block_size: int, blocks: int
) -> list[bytes]:
    """Append to `digests` until it names the first `blocks` full blocks of `tokens`.

    Each name covers its block and, through the name before it, everything to its left.
    """
    for index in range(len(digests), blocks):
        before = digests[-1] if digests else b""
        content = array("I", tokens[index * block_size : (index + 1) * block_size])
        digests.append(blake2b(before + content.tobytes(), digest_size=DIGEST_BYTES).digest())
    return digests
