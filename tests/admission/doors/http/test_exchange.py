"""An exchange that is over lets go of its request, so that nothing is left to collect."""

import gc
import weakref
from collections.abc import Callable

import pytest

from surgetank.admission.doors.http.exchange import Exchange
from surgetank.admission.doors.http.head import parse_head

GET = parse_head(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")


class Wire:
    """A connection that goes nowhere."""

    def send(self, data: bytes) -> None:
        pass

    def free_body(self) -> None:
        pass

    def answered(self, keep_alive: bool) -> None:
        pass

    def cut(self) -> None:
        pass

    def direct(self) -> None:
        """Never."""

    def will_close(self) -> bool:
        return False


class Call:
    """What an exchange tells of slow reading, and what writes to it: a ring of two."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        exchange.on_behind = self.hold

    def hold(self, held: bool) -> None:
        pass


@pytest.mark.parametrize(
    "end",
    [
        lambda each: each.respond(200, b""),
        Exchange.end_splice,
        Exchange.cut,
        Exchange.leave,
    ],
    ids=["answered", "spliced", "cut", "left"],
)
def test_no_ring_outlives_the_answer(end: Callable[[Exchange], None]) -> None:
    exchange = Exchange(Wire(), GET, lambda: "an-id")
    gone = weakref.ref(Call(exchange))
    gc.disable()
    try:
        assert gone() is not None
        end(exchange)
        assert gone() is None
    finally:
        gc.enable()
