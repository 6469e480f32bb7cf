"""Sizes in bytes as people write them: GiB and GB never mixed up, element widths by dtype name."""

import difflib
import re
from collections.abc import Iterable
from fractions import Fraction

GIB = 2**30
_UNITS = {"B": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("KMGT", start=1)
    for suffix, base in (("iB", 1024), ("B", 1000))
}
_SIZE = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_LONGEST_SHOWN = 80
_LARGEST = 2**50  # one PiB: beyond any machine, so a slip of the keyboard

WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1, "int8": 1}


class CapacityError(ValueError):
    """An input that cannot be planned with; its text is one sentence for the user."""


def parse_size(text: str, what: str) -> int:
    """Bytes meant by "24GiB" or "80GB"; CapacityError without a unit, or out of range."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise CapacityError(f"{what} is {text!r}; allowed: a size such as 24GiB or 80GB")
    number, unit = match.groups()
    if not unit:
        raise CapacityError(
            f"{what} is {text!r} without a unit; write {number}GiB (2^30 bytes) "
            f"or {number}GB (10^9 bytes)"
        )
    factor = {name.lower(): value for name, value in _UNITS.items()}.get(unit.lower())
    if factor is None:
        raise CapacityError(f"{what} is {text!r}; allowed units: {', '.join(_UNITS)}")
    size = int(Fraction(number) * factor)
    if not 0 < size <= _LARGEST:
        raise CapacityError(f"{what} is {text!r}; allowed: more than 0 and at most 1024TiB")
    return size


def gib(size: float) -> str:
    """A size as engines print it: "3.81 GiB"."""
    return f"{size / GIB:,.2f} GiB"


def both(size: float) -> str:
    """A size in binary and decimal units, each said as such: "14.96 GiB (16.06 GB)"."""
    return f"{gib(size)} ({size / 1e9:,.2f} GB)"


def width(dtype: str, what: str) -> int:
    """Bytes of one element; CapacityError for a dtype that is not known."""
    if dtype not in WIDTHS:
        raise unknown(what, dtype, WIDTHS)
    return WIDTHS[dtype]


def unknown(what: str, given: str, known: Iterable[str]) -> CapacityError:
    """One sentence for a name that is not in a table: the near ones, or all when none is near."""
    names = sorted(known)
    given = given if len(given) <= _LONGEST_SHOWN else f"{given[:_LONGEST_SHOWN]}..."
    lowered = {name.lower(): name for name in names}
    near = difflib.get_close_matches(given.lower(), lowered, n=3, cutoff=0.5)
    if near:
        return CapacityError(
            f"{what} {given!r} is not known; did you mean {' or '.join(lowered[n] for n in near)}?"
        )
    return CapacityError(f"{what} {given!r} is not known; known: {', '.join(names)}")
