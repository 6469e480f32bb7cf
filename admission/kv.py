"""KV memory at the gate: how much a request is promised, and whom a full pool keeps out.

A request is promised its prompt and a high quantile of the output expected of it, not its
max_tokens: one that asks for the whole context and then says ten words would otherwise hold back
everybody else. A promise grows when the output outgrows it; the engine's preemption covers that.

The pool is what the engine lets sequences hold: its kv_watermark holds the rest back.

The pool has two thresholds. Promises to batch and sheddable requests stop at the lower (.80), all
others at the higher (.92). When what is promised or really used reaches the higher one, the lower
classes are refused at the door as well, until it is back under the lower: one threshold alone would
open and close with every request that ends.
"""

from surgetank.engine.api import ModelCard
from surgetank.telemetry.vocabulary import Priority

LOW_CLASSES = (Priority.BATCH, Priority.SHEDDABLE)


def blocks_for(prompt: int, output: int, n: int, block_size: int) -> int:
    """KV blocks of n choices: whole prompt blocks once, the rest for each choice."""
    shared = prompt // block_size
    total = -(-(prompt + output) // block_size)
    return shared + n * (total - shared)


def usable(card: ModelCard) -> int:
    """KV blocks that sequences may hold, as the engine was started; 0: not known."""
    return max(1, int(card.kv_blocks * card.kv_watermark)) if card.kv_blocks else 0


class Pressure:
    """Closed from `high` on, open again below `low`."""

    def __init__(self) -> None:
        self.closed = False

    def update(self, used: float, *, low: float, high: float) -> bool:
        """Whether it is closed at this use; all three are shares of the pool."""
        self.closed = used >= high or (self.closed and used >= low)
        return self.closed
