"""A request's identity and life in the sidecar, from its headers to its one outcome."""

from dataclasses import dataclass, field

from surgetank.telemetry.vocabulary import Lane, Outcome, Priority, Reason


@dataclass(eq=False, slots=True)
class Ticket:
    """What the gate knows of a request. The desk alone changes it after the door filled it in.

    Times are seconds on the injected monotonic clock. A ticket ends exactly once.
    """

    id: str  # client's x-request-id or ours; for logs and traces, never a metric label
    arrived: float
    door: str  # http or grpc
    lane: Lane = Lane.FIRST
    attempt: int = 0  # 0 = first try
    priority: Priority = Priority.DEFAULT
    tenant: str = ""
    deadline: float | None = None
    model: str = ""  # as the catalogue labels it; "" until the body was read
    prompt_tokens: int = 0
    max_tokens: int = 0
    n: int = 1
    stream: bool = False
    # life
    queued_at: float | None = None
    dispatched_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    ended_at: float | None = None
    cached_tokens: int = 0
    output_tokens: int = 0
    outcome: Outcome | None = None
    reason: Reason = Reason.NONE
    events: list[tuple[float, str]] = field(default_factory=list)  # for explain and tracing

    @property
    def cost_tokens(self) -> int:
        """Tokens this request may occupy: prompt once, output for each choice."""
        return self.prompt_tokens + self.n * self.max_tokens

    def time_left(self, now: float) -> float | None:
        """Seconds to the deadline; None when there is none."""
        return None if self.deadline is None else self.deadline - now
