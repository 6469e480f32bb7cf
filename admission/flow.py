"""Running totals that the policies judge by."""

from dataclasses import dataclass

from surgetank.telemetry.steprecord import StepRecord
from surgetank.telemetry.vocabulary import Lane


@dataclass(frozen=True, slots=True)
class Flow:
    """What was counted since the start; since() tells a span's."""

    first: int = 0  # first attempts that arrived
    retries: int = 0
    ended: int = 0  # admitted requests that ended
    good: int = 0  # of them, served
    computed: int = 0  # tokens, by the engine's steps
    preempted: int = 0  # tokens, to be computed again

    def since(self, earlier: "Flow") -> "Flow":
        """What came in between."""
        return Flow(
            self.first - earlier.first,
            self.retries - earlier.retries,
            self.ended - earlier.ended,
            self.good - earlier.good,
            self.computed - earlier.computed,
            self.preempted - earlier.preempted,
        )


class FlowCount:
    """Counts as things happen."""

    def __init__(self) -> None:
        self._arrived = dict.fromkeys(Lane, 0)
        self._ended = 0
        self._good = 0
        self._computed = 0
        self._preempted = 0

    def arrived(self, lane: Lane) -> None:
        """A request whose body is known."""
        self._arrived[lane] += 1

    def ended(self, *, served: bool) -> None:
        """An admitted request ended."""
        self._ended += 1
        self._good += served

    def stepped(self, record: StepRecord) -> None:
        """The engine reported a step."""
        self._computed += record.prefill_tokens + record.decode_tokens
        self._preempted += record.preempted_tokens

    def read(self) -> Flow:
        """The totals now."""
        return Flow(
            self._arrived[Lane.FIRST],
            self._arrived[Lane.RETRY],
            self._ended,
            self._good,
            self._computed,
            self._preempted,
        )
