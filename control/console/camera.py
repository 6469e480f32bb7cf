"""Takes the console's frames: looks once, works every number out from that one look."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from surgetank import __version__
from surgetank.admission.snapshot import Ended
from surgetank.control.backend_drains import BackendDrains
from surgetank.control.console import picture
from surgetank.control.console.feed import Feed
from surgetank.control.console.frame import Frame
from surgetank.control.console.meter import StepMeter
from surgetank.control.console.tally import Rates, Tally
from surgetank.control.diagnose.look import Look
from surgetank.control.drain import Drain
from surgetank.control.journal import Journal
from surgetank.telemetry.clock import Clock

logger = logging.getLogger(__name__)
PERIOD = 1.0  # seconds between two frames
SMOOTH = 5  # periods that the shown rates are taken over; the charts' are over one
ENTRIES = 6  # of the journal


class Camera:
    """take() once a period, on the event loop's thread; `meter` must watch the backend."""

    def __init__(
        self,
        *,
        clock: Clock,
        looks: Callable[[], tuple[Look, ...]],
        recent: Callable[[], tuple[Ended, ...]],
        journal: Journal,
        drain: Drain,
        drains: BackendDrains,
    ) -> None:
        """`looks`: the last minute's, the newest taken now; `recent`: who ended, oldest first."""
        self.feed = Feed()
        self.meter = StepMeter(clock)
        self._clock = clock
        self._looks = looks
        self._recent = recent
        self._journal = journal
        self._drain = drain
        self._drains = drains
        self._born = clock.monotonic()
        self._arrived = self._born  # when something was last seen to arrive
        self._tallies: deque[Tally] = deque(maxlen=SMOOTH + 1)
        self._number = 0

    async def run(self) -> None:
        """Take frames for ever; cancel it to stop."""
        while True:
            try:
                self.take()
            except Exception:
                logger.exception("console: no frame could be taken; the next one is tried")
            await asyncio.sleep(PERIOD)

    def take(self) -> Frame:
        """One frame, published to the readers."""
        looks = self._looks()
        tally = self._count(looks[-1])
        frame = self._frame(
            looks,
            rates=Rates.between(self._tallies[0], tally),
            latest=Rates.between(self._tallies[-1], tally),
        )
        self._tallies.append(tally)
        self.feed.publish(frame)
        return frame

    def _count(self, look: Look) -> Tally:
        tally = Tally(look.desk.at, look.counts, look.desk.flow, self.meter.counts())
        if not self._tallies:
            self._tallies.append(tally)
        if tally.counts.received != self._tallies[-1].counts.received:
            self._arrived = tally.at
        self._number += 1
        return tally

    def _frame(self, looks: tuple[Look, ...], *, rates: Rates, latest: Rates) -> Frame:
        look, desk, wall = looks[-1], looks[-1].desk, self._clock.wall()
        idle_for = desk.at - self._arrived
        took = picture.steps(self.meter.seconds, desk.tpot_target)
        waiting, pool = picture.queue(desk), picture.kv(desk)
        return Frame(
            at=wall,
            number=self._number,
            state=picture.state(looks, idle_for),
            idle_for=idle_for,
            uptime=desk.at - self._born,
            version=__version__,
            model=desk.model,
            device=None if desk.card is None else desk.card.device,
            in_flight=desk.in_flight,
            verdict=picture.verdict(looks),
            drain=picture.hold(self._drain.hold, desk.at),
            arrivals=picture.arrivals(rates),
            gate=picture.gate(rates),
            queue=waiting,
            engine=picture.engine(look, rates, took) if desk.backend_up else None,
            engines=picture.engines(desk, self._drains.holds),
            kv=pool,
            outcomes=picture.outcomes(rates),
            output_tokens=rates.per_second(rates.counts.output_tokens),
            limits=picture.limits(desk),
            journal=tuple(reversed(self._journal.recent(ENTRIES))),
            refusals=picture.refusals(reversed(self._recent()), wall, desk.at),
            point=picture.point(wall, latest, waiting, took, pool),
        )
