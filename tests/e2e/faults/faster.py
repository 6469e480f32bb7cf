"""The shipped rules, with every duration shortened alike: what takes minutes happens in seconds.

Nothing but durations changes: ranges in brackets and their offsets, `for` and `interval`.
"""

import re
from typing import Any

_DURATION = re.compile(r"(\d+)([smhd])")
_RANGE = re.compile(r"(?P<before>\[|offset )(?P<span>\d+[smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def hurry(rules: dict[str, Any], times: int) -> None:
    """Let the time of a rule file's content pass so many times faster."""
    for group in rules["groups"]:
        _shorten(group, "interval", times)
        for rule in group["rules"]:
            _shorten(rule, "for", times)
            rule["expr"] = _RANGE.sub(
                lambda found: found["before"] + shorter(found["span"], times), rule["expr"]
            )


def shorter(duration: str, times: int) -> str:
    """3m, twenty times faster, is 9s."""
    match = _DURATION.fullmatch(duration)
    if match is None:
        raise ValueError(f"{duration!r} is none of Prometheus' plain durations")
    milliseconds = int(match[1]) * _SECONDS[match[2]] * 1000 // times
    return duration if times == 1 else f"{milliseconds}ms"


def _shorten(entry: dict[str, Any], key: str, times: int) -> None:
    if key in entry:
        entry[key] = shorter(entry[key], times)
