"""What the embedded engine should have, by what it was sent and what it has told.

Both processes work at once, so that our count now and the engine's of some steps ago differ in any
traffic. But each output says how many of our messages the engine had taken in before it: its record
is compared with what these messages alone have left there, less what it has told as ended. Both
sides are then of the same moment, however many messages are on their way, and equal at every record
but for a fault.
"""

from collections import deque

from surgetank.engine.api import Commands, StepOutput
from surgetank.engine.wire import WireError

EVERY_CHOICE = -1


class Books:
    """Of one connection."""

    def __init__(self) -> None:
        self.drift: int | None = None  # choices too few in the newest record; None: there is none
        self._unheard: deque[tuple[dict[int, int], list[tuple[int, int]]]] = deque()
        self._heard = 0  # messages
        self._there: dict[int, set[int]] = {}  # choices of each request that has some there
        self._choices = 0  # of all

    def sent(self, message: Commands) -> None:
        """A message leaves for the engine."""
        submitted = {request.request_id: request.n for request in message.submit}
        self._unheard.append((submitted, message.cancel))

    def told(self, output: StepOutput) -> None:
        """An output came. Raises WireError when it answers to messages that were never sent."""
        messages = self._take(output.heard)
        for submitted, _ in messages:
            for request_id, n in submitted.items():
                self._there[request_id] = set(range(n))
                self._choices += n
        for tokens in output.tokens:
            if tokens.finish is not None:
                self._out(tokens.request_id, tokens.index)
        for _, cancelled in messages:
            for request_id, index in cancelled:
                self._out(request_id, index)
        if (step := output.record) is not None:
            self.drift = self._choices - sum(step.running) - sum(step.waiting)

    def _take(self, heard: int) -> list[tuple[dict[int, int], list[tuple[int, int]]]]:
        """The messages that the engine has taken in since its output before."""
        new, self._heard = heard - self._heard, heard
        if not 0 <= new <= len(self._unheard):
            raise WireError(f"the engine has heard {heard} messages, {new} of them of late")
        return [self._unheard.popleft() for _ in range(new)]

    def _out(self, request_id: int, index: int) -> None:
        """One choice has ended or was cancelled, or every one; what is out stays so."""
        choices = self._there.get(request_id, set())
        gone = set(choices) if index == EVERY_CHOICE else choices & {index}
        choices -= gone
        self._choices -= len(gone)
        if not choices:
            self._there.pop(request_id, None)
