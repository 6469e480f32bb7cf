"""Room in the engine: a ledger of sequences and KV blocks, handed out as permits."""

from enum import StrEnum


class Return(StrEnum):
    """How a permit came back: the evidence that it is to whoever estimates."""

    SUCCESS = "success"  # served to its end
    IGNORED = "ignored"  # ended for the client's own reasons: says nothing of the engine
    DROPPED = "dropped"  # the engine did not make it: overload, loss or fault


class PermitError(RuntimeError):
    """A permit was given back twice: a fault in our own accounting."""


class Ledger:
    """What has been promised of the engine. `room` and `take` keep slots and blocks inside bounds,
    except for what a request's output outgrows its estimate by: that the engine has to find."""

    def __init__(self, whole: "Ledger | None" = None) -> None:
        """`whole`: the ledger of all engines together, in which this one's counts as well."""
        self._whole = whole
        self.seqs = 0
        self.kv_blocks = 0
        self.permits = 0
        self.seconds = 0.0  # engine-seconds of all that is out
        self.prompt = 0.0  # prompt tokens
        self.output = 0.0  # expected output tokens, of all choices
        self.returned = dict.fromkeys(Return, 0)

    def room(self, n: int, kv_blocks: int, *, max_seqs: float, max_kv_blocks: float) -> bool:
        """Whether n sequences with that many blocks may go in. A request wider than the bounds
        goes in alone: the gate has made sure that the engine itself can hold it."""
        if self.permits == 0:
            return True
        return self.seqs + n <= max_seqs and self.kv_blocks + kv_blocks <= max_kv_blocks

    def take(
        self, n: int, kv_blocks: int, *, seconds: float = 0.0, prompt: float = 0, output: float = 0
    ) -> "Permit":
        """Promise it; must be given back exactly once. `output` tokens of each choice."""
        permit = Permit(self, n, kv_blocks, seconds, prompt, n * output)
        self._add(permit, +1)
        return permit

    def give_back(self, permit: "Permit", how: Return) -> None:
        """For the permit: what it held is free again."""
        self.returned[how] += 1
        self._add(permit, -1)

    def grow(self, kv_blocks: int) -> None:
        """For the permit: more blocks than it was promised."""
        self.kv_blocks += kv_blocks
        if self._whole is not None:
            self._whole.grow(kv_blocks)

    def _add(self, permit: "Permit", sign: int) -> None:
        self.permits += sign
        self.seqs += sign * permit.n
        self.kv_blocks += sign * permit.kv_blocks
        self.seconds += sign * permit.seconds
        self.prompt += sign * permit.prompt
        self.output += sign * permit.output
        if not self.permits:
            self.seconds = self.prompt = self.output = 0.0  # no rounding error outlives them
        if self._whole is not None:
            self._whole._add(permit, sign)


class Permit:
    """One request's room, with exactly three ways back; a second one raises PermitError."""

    __slots__ = ("_ledger", "kv_blocks", "n", "output", "prompt", "seconds")

    def __init__(
        self, ledger: Ledger, n: int, kv_blocks: int, seconds: float, prompt: float, output: float
    ) -> None:
        self._ledger: Ledger | None = ledger
        self.n = n
        self.kv_blocks = kv_blocks
        self.seconds = seconds
        self.prompt = prompt
        self.output = output

    def grow(self, kv_blocks: int) -> None:
        """Its output took more blocks than it was promised; nothing happens once it is back."""
        if self._ledger is not None:
            self._ledger.grow(kv_blocks)
            self.kv_blocks += kv_blocks

    def success(self) -> None:
        """Served to its end."""
        self._give_back(Return.SUCCESS)

    def ignored(self) -> None:
        """Ended for reasons that say nothing of the engine."""
        self._give_back(Return.IGNORED)

    def dropped(self) -> None:
        """The engine did not make it."""
        self._give_back(Return.DROPPED)

    def _give_back(self, how: Return) -> None:
        ledger = self._ledger
        if ledger is None:
            raise PermitError(f"permit of {self.n} sequences given back again, as {how}")
        self._ledger = None
        ledger.give_back(self, how)
