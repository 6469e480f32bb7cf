"""What became of each call: times, counts, and the attempts that it took."""

from dataclasses import dataclass, field

from surgetank.control.bench.load.attempts import Attempt
from surgetank.control.bench.serve.inputs import Call


@dataclass(slots=True)
class Answer:
    """A call's answer as it comes. Times by the loop's clock."""

    times: list[float] = field(default_factory=list)  # of its pieces with text
    prompt_tokens: int | None = None  # as the server counts them
    output_tokens: int | None = None
    whole: bool = False  # it came as one piece: there is no first token
    error: str = ""  # the caller's last word
    refusal: str = ""  # a reason that no HTTP attempt carries
    attempts: list[Attempt] = field(default_factory=list)  # none where the library hides them


@dataclass(frozen=True, slots=True)
class Row:
    """One call's fate. Times by the loop's clock; latencies, in seconds, count from `due`, when the
    call was meant to leave, whenever it did."""

    call: Call
    due: float
    left: float  # when the generator let it go
    ended: float
    answer: Answer

    @property
    def ok(self) -> bool:
        """Answered to its end."""
        return not self.answer.error

    @property
    def output(self) -> int:
        """Tokens that came: as the server says, else the pieces."""
        said = self.answer.output_tokens
        return len(self.answer.times) if said is None else said

    @property
    def prompt(self) -> int:
        """Tokens of the prompt: as the server says, else as intended."""
        said = self.answer.prompt_tokens
        return self.call.prompt if said is None else said

    @property
    def e2el(self) -> float:
        """Until the answer's end."""
        return self.ended - self.due

    @property
    def ttft(self) -> float | None:
        """Until the first piece with text, refusals and waits included."""
        times = self.answer.times
        return times[0] - self.due if times and not self.answer.whole else None

    @property
    def served_ttft(self) -> float | None:
        """The same from the last attempt on: what the server itself did."""
        attempts, times = self.answer.attempts, self.answer.times
        return times[0] - attempts[-1].at if attempts and times else None

    @property
    def tpot(self) -> float | None:
        """Per token after the first one."""
        times = self.answer.times
        if self.answer.whole or len(times) < 2 or self.output < 2:
            return None
        return (times[-1] - times[0]) / (self.output - 1)
