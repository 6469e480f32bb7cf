"""Counts the engine's steps as they come: how long they took, and what their slots were."""

from dataclasses import dataclass

from surgetank.engine.api import ModelCard, StepOutput
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.engine_recorder import slots_of
from surgetank.telemetry.stepmodel import step_seconds
from surgetank.telemetry.vocabulary import SlotState
from surgetank.telemetry.window import QuantileWindow

SPAN = 10.0  # seconds of steps that quantiles are taken over
MOST = 1024  # of them, the newest: sorting more would cost what it tells


@dataclass(frozen=True, slots=True)
class StepCounts:
    """Totals since the engine came up; since() tells a span's."""

    slots: tuple[int, ...] = (0,) * len(SlotState)  # slot-steps, in SlotState's order
    prefill: int = 0  # tokens
    decode: int = 0

    def since(self, earlier: "StepCounts") -> "StepCounts":
        """What came in between."""
        return StepCounts(
            tuple(now - then for now, then in zip(self.slots, earlier.slots)),
            self.prefill - earlier.prefill,
            self.decode - earlier.decode,
        )


class StepMeter:
    """Watches a backend (engine.api.Watcher)."""

    def __init__(self, clock: Clock) -> None:
        self.seconds = QuantileWindow(clock, SPAN, MOST)
        self._slots = [0] * len(SlotState)
        self._prefill = 0
        self._decode = 0

    def counts(self) -> StepCounts:
        """The totals now."""
        return StepCounts(tuple(self._slots), self._prefill, self._decode)

    def on_step(self, output: StepOutput) -> None:
        """Count one step; those that computed nothing have no duration worth telling."""
        record = output.record
        if record is None:
            return
        for place, count in enumerate(slots_of(record).values()):
            self._slots[place] += count
        self._prefill += record.prefill_tokens
        self._decode += record.decode_tokens
        if record.prefill_tokens or record.decode_tokens:
            self.seconds.add(step_seconds(record))

    def on_up(self, card: ModelCard) -> None:
        """Another engine: its steps count on."""

    def on_down(self, detail: str) -> None:
        """Nothing to count."""
