"""Renews this sidecar's leases in the background; what it learns, the gate finds in its pools."""

import asyncio
import contextlib
import logging
import random
from typing import Protocol

from surgetank.admission.leases.config import LeasesConfig
from surgetank.admission.leases.link import Link, LinkError, Runner, Script
from surgetank.admission.leases.pools import Claim, Pool
from surgetank.admission.leases.quotas import Quotas
from surgetank.admission.leases.script import LEAVE, RENEW
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.family import Counter

logger = logging.getLogger(__name__)
_MICRO = 1_000_000
_AT_ONCE = 64  # limits in one question, so that no question holds Redis up
_GAP = 0.02  # seconds between two questions, however much is needed
_RENEW, _LEAVE = Script(RENEW), Script(LEAVE)


class Background(Protocol):
    """What keeps the shares current."""

    async def run(self) -> None:
        """For ever; cancel it to stop."""

    async def close(self) -> None:
        """Give back what is held, as far as that is possible now."""


class Alone:
    """There is nobody to share with."""

    async def run(self) -> None:
        """Nothing to do."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Nothing is held."""


class Renewer:
    """Asks three times in a lease's term, at once where a pool needs more, and never in a queue."""

    def __init__(
        self,
        quotas: Quotas,
        config: LeasesConfig,
        link: Runner,
        clock: Clock,
        rng: random.Random,
        failures: Counter | None = None,
    ) -> None:
        """`failures` counts the questions that were not answered in time."""
        self._quotas = quotas
        self._config = config
        self._link = link
        self._clock = clock
        self._rng = rng
        self._prefix = f"{{{config.prefix}}}"  # braces: one slot of a cluster for all keys
        self._asked = 0
        self._needed = asyncio.Event()
        self._down = False
        self.name = f"{rng.getrandbits(64):016x}"  # new at every start, like the questions' numbers
        self._failures = failures or Counter()
        quotas.on_need = self._needed.set

    @property
    def failures(self) -> int:
        """Questions that were not answered in time."""
        return int(self._failures.value)

    async def run(self) -> None:
        """Renew for ever; cancel it to stop."""
        while True:
            soon = await self.renew()
            pause = _GAP if soon else self._config.term / 3 * self._rng.uniform(0.9, 1.1)
            if self._down:
                await asyncio.sleep(pause)
                continue
            await asyncio.sleep(_GAP)
            with contextlib.suppress(TimeoutError):  # nothing was needed: the usual renewal
                async with asyncio.timeout(pause - _GAP):
                    await self._needed.wait()

    async def renew(self) -> bool:
        """Renew once; True when another renewal should follow at once, since a share was cut and
        the others are waiting to hear that we know."""
        self._needed.clear()
        asked_at = self._clock.monotonic()
        claims = [(name, pool, pool.claim(asked_at)) for name, pool in self._quotas.pools()]
        cut = False
        try:
            for first in range(0, len(claims), _AT_ONCE):
                cut |= await self._ask(claims[first : first + _AT_ONCE], asked_at)
        except LinkError as error:
            self._failures.value += 1
            if not self._down:
                logger.warning("shared state: no answer from redis (%s)", error)
            self._down = True
            return False
        self._down = False
        return cut

    async def close(self) -> None:
        """Give up all claims, so that the others need not wait for them to lapse."""
        keys = [f"{self._prefix}:sidecars"]
        keys += [self._key(name) for name, _ in self._quotas.pools()]
        try:
            await self._link.run(_LEAVE, keys, [self.name])
        except LinkError as error:
            logger.warning("shared state: left without saying so (%s)", error)
        await self._link.close()

    async def _ask(self, claims: list[tuple[str, Pool, Claim]], asked_at: float) -> bool:
        self._asked += 1
        keys = [f"{self._prefix}:sidecars", *(self._key(name) for name, _, _ in claims)]
        grace = self._config.term + self._config.hold
        args: list[str | int] = [
            self.name,
            self._asked,
            self._quotas.sidecars,
            _micro(grace),
            _micro(self._config.forget),
        ]
        for _, _, claim in claims:
            wishes = (claim.base, claim.want, claim.held, claim.earned, claim.spare)
            args.extend(_micro(wish) for wish in wishes)
        answer = await self._link.run(_RENEW, keys, args)
        if len(answer) != 1 + 2 * len(claims):
            raise LinkError(f"an answer of {len(answer)} numbers to {len(claims)} claims")
        sidecars, shares = answer[0], answer[1::2]
        cut = False
        for (_, pool, claim), share, total in zip(claims, shares, answer[2::2]):
            cut |= share < _micro(pool.share)
            pool.granted(claim, share / _MICRO, total / _MICRO, sidecars)
        self._quotas.renewed(asked_at, sidecars)
        return cut

    def _key(self, name: str) -> str:
        return f"{self._prefix}:limit:{name}"


def background(
    quotas: Quotas,
    config: LeasesConfig,
    clock: Clock,
    rng: random.Random,
    failures: Counter | None = None,
) -> Background:
    """What keeps these quotas current."""
    if config.url is None:
        return Alone()
    link = Link(config.url.get_secret_value(), config.timeout)
    return Renewer(quotas, config, link, clock, rng, failures)


def _micro(amount: float) -> int:
    return round(amount * _MICRO)
