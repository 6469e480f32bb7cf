"""A client of a virtual service that gives up and tries again."""

from tests.admission.rig import Door
from tests.admission.virtual_engine import Service

from surgetank.admission.api import Ask
from surgetank.admission.outcome import Refused
from surgetank.engine.api import SamplingParams

_AT_ONCE = 0.05  # seconds until the next try of a client that was refused
_numbers = iter(range(1_000_000))


class Caller:
    """Sends one prompt of its own, up to `tries` times, each for `patience` seconds at most."""

    def __init__(
        self, service: Service, *, patience: float, tries: int, obeys: bool = False
    ) -> None:
        number = next(_numbers)
        self._service = service
        self._patience = patience
        self._left = tries
        self._obeys = obeys
        self._prompt = [2 + number // 10_000 % 100, 2 + number // 100 % 100, 2 + number % 100]
        self._prompt += [1] * 47
        self.door = Door()
        self._try()

    def _try(self) -> None:
        self._left -= 1
        self.door = door = Door()
        ticket = self._service.desk.arrive("http", ())
        ticket.stream = True
        ask = Ask(self._prompt, SamplingParams(max_tokens=20), 1)
        try:
            door.call = self._service.desk.submit(
                ticket, self._service.desk.find("default"), ask, door
            )
        except Refused as refused:
            door.refusal = refused.refusal
            self._again(refused.refusal.retry_after if self._obeys else _AT_ONCE)
            return
        self._service.timer.call_later(self._patience, lambda: self._give_up(door))

    def _give_up(self, door: Door) -> None:
        if not door.ends and door.call is not None:
            door.call.cancel()
            self._again(_AT_ONCE)

    def _again(self, after: float | None) -> None:
        if self._left and after is not None:
            self._service.timer.call_later(after, self._try)
