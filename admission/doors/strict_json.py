"""JSON in which no key stands twice: two readers would disagree about which of them counts."""

import json
from collections import Counter
from typing import Any


def check_keys(text: str) -> None:
    """ValueError when a key stands twice in one object; RecursionError when nested too deeply."""
    _DECODER.decode(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice[:40]} stands twice in one object")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)
