"""What simulated sidecars share: admission/leases/script.py's rules, in Python instead of Lua.

A test puts random questions to this and to a redis-server, and compares answers and memory.
"""

import math
from collections.abc import Sequence

from surgetank.admission.leases.link import Script
from surgetank.admission.leases.script import LEAVE, RENEW
from surgetank.telemetry.clock import Clock

Rows = dict[str, tuple[int, ...]]
BORN = "@born"
_MICRO, _MILLI = 1_000_000, 1000


class SharedStore:
    """Redis, as far as the leases know it. Whole numbers throughout, times in microseconds.

    `memory` is by key: rows of the sidecars (seen, question) and of each limit (seen, want, bound,
    earned).
    """

    def __init__(self, clock: Clock) -> None:
        self.memory: dict[str, Rows] = {}
        self.lasts_until: dict[str, int] = {}  # by key, milliseconds
        self._clock = clock

    def forget(self) -> None:
        """It was restarted, and keeps nothing on disk."""
        self.memory.clear()
        self.lasts_until.clear()

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> list[int]:
        """What the script answers; KeyError when it is none of the leases'."""
        return {RENEW: self._renew, LEAVE: self._leave}[script.text](keys, args)

    def _leave(self, keys: Sequence[str], args: Sequence[str | int]) -> list[int]:
        for key in keys:
            self._rows(key, self._now()).pop(str(args[0]), None)
        return []

    def _renew(self, keys: Sequence[str], args: Sequence[str | int]) -> list[int]:
        now, me = self._now(), str(args[0])
        number, known, hold, forget = (int(arg) for arg in args[1:5])
        sidecars = self._rows(keys[0], now)
        silent = {}
        for name, (seen, *last) in list(sidecars.items()):
            if name == me and number <= last[0]:
                return []
            if name in (me, BORN):
                continue
            if now - seen > forget:
                del sidecars[name]
            else:
                silent[name] = now - seen
        met = 1 + len(silent)
        born = sidecars.get(BORN, (now,))[0]
        n = max(met, known) if now - born < hold else met
        sidecars |= {BORN: (born,), me: (now, number)}
        self._keep(keys[0], now, forget)
        answer = [n]
        for place, key in enumerate(keys[1:], 1):
            wishes = [int(arg) for arg in args[5 * place : 5 * place + 5]]
            rows = self._rows(key, now)
            for name in [name for name in rows if name != me]:
                if name not in silent or now - rows[name][0] > hold:
                    del rows[name]
            share, total = _shared_out(wishes, me, rows, silent, n, hold)
            _, want, held, earned, _ = wishes
            if want + held + earned == 0:
                rows.pop(me, None)
            else:
                rows[me] = (now, want, max(held, share), earned)
                self._keep(key, now, forget)
            answer += [share, total]
        return answer

    def _now(self) -> int:
        return math.floor(self._clock.wall() * _MICRO)

    def _rows(self, key: str, now: int) -> Rows:
        """A key's rows; none when it has expired."""
        if key in self.lasts_until and now // _MILLI > self.lasts_until[key]:
            del self.lasts_until[key], self.memory[key]
        return self.memory.setdefault(key, {})

    def _keep(self, key: str, now: int, forget: int) -> None:
        self.lasts_until[key] = now // _MILLI + 2 * forget // _MILLI


def _shared_out(
    wishes: Sequence[int], me: str, rows: Rows, silent: dict[str, int], n: int, hold: int
) -> tuple[int, int]:
    """One limit's share for `me`, and its total with what all have earned."""
    base, want, held, earned, spare = wishes
    others = {name: row for name, row in rows.items() if name != me}
    total = base + earned + sum(row[3] for row in others.values())
    fair = total / (1 + sum(row[1] > 0 for row in others.values()))
    if total < n * spare:
        spare = 0
    free = float(total)
    for name, silence in silent.items():
        if silence > hold:
            free -= total / n
        elif name in others:
            _, wants, bound, _ = others[name]
            free -= max(bound, min(wants, fair))
        else:
            free -= spare
    met = 1 + len(silent)
    if n > met:
        free = max(held, free - (n - met) * total / n)
    return math.floor(max(0, min(want, free))), total
