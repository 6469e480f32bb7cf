"""Whether the process that answers at an address is still the one that was found there.

One may be started anew between two looks, and miss none of them. It shows by

    when it began           it is not when it was
    its uptime              it fell
    counters since then     one fell

What of these an engine tells is compared at each look. Behind one address there may be several
processes, of which now this one answers and now that one: they would seem to restart at every look.
Engines take seconds to start, so a second change within TOO_SOON looks shows that there are, and
from then on nothing is concluded.
"""

from surgetank.engine.backends.remote.found import Look

TOO_SOON = 10  # looks

_COUNTERS = ("prompt_tokens", "output_tokens", "preemptions")


class Identity:
    """Of one engine, since it was found."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._grown: dict[str, float] = {}  # what only a restart brings down, as last told
        self._looks = 0
        self._changed_at = -TOO_SOON  # the look that showed the last change
        self._several = False

    def changed(self, look: Look) -> str:
        """What shows that this is another process than at the look before; empty: nothing does."""
        self._looks += 1
        why = self._shown(look)
        if not why or self._several:
            return ""
        self._several = self._looks - self._changed_at < TOO_SOON
        self._changed_at = self._looks
        return "" if self._several else why

    def _shown(self, look: Look) -> str:
        grown = {name: getattr(look.signals, name) for name in _COUNTERS} | {"uptime": look.uptime}
        told = {name: value for name, value in grown.items() if value is not None}
        fell = [name for name, value in told.items() if value < self._grown.get(name, 0.0)]
        self._grown |= told
        began, self._began = self._began, self._began if look.began is None else look.began
        if began is not None and began != self._began:
            return "its process began at another time"
        return f"its {fell[0]} fell" if fell else ""
