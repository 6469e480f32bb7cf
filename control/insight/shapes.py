"""The shapes of what is told of a running service."""

from pydantic import BaseModel, Field


class DiagnosisOut(BaseModel):
    """One verdict, the numbers behind it, and a command to go on with."""

    verdict: str = Field(
        description="healthy, compute, memory, scheduling, limit, clients or backend"
    )
    evidence: list[str]
    next: str


class LevelOut(BaseModel):
    """What waits in one class; n choices count n."""

    priority: str
    first: int
    retries: int
    tokens: int
    oldest_age: float | None = Field(description="seconds; null: nobody waits")


class WaitingOut(BaseModel):
    """One request at the gate or in the engine."""

    id: str
    state: str
    priority: str
    lane: str
    attempt: int
    tenant: str
    door: str
    prompt_tokens: int
    output_tokens: int
    cost: float = Field(description="engine-seconds, as estimated")
    age: float = Field(description="seconds since it arrived")
    left: float | None = Field(description="seconds until its client gives up; null: never")


class QueueOut(BaseModel):
    """The queue, longest waiting first."""

    total: int = Field(description="requests, those that are not listed included")
    levels: list[LevelOut]
    requests: list[WaitingOut]


class MemoryOut(BaseModel):
    """The KV pool; null: not known (no engine, or no step yet)."""

    blocks: int | None
    block_tokens: int | None = None
    bytes: int | None = None
    used: int | None = Field(default=None, description="blocks of live sequences")
    cached: int | None = Field(default=None, description="blocks that only the prefix cache holds")
    free: int | None = None
    usable: int | None = Field(description="blocks that sequences may hold (limit kv_watermark)")
    promised: int = Field(description="blocks that the gate has promised")
    share: float | None = Field(description="the larger of promised and used, of the usable")
    reserve: float = Field(description="share that may be promised (limit kv_reserve)")
    reserve_low: float = Field(description="the same for batch and sheddable")
    closed: bool = Field(description="batch and sheddable are refused until it falls")
    fragmentation: float | None = Field(
        default=None, description="1 - stored tokens / (used blocks * size)"
    )
    held: dict[str, int] = Field(default_factory=dict, description="blocks by class")
    preempted_tokens: int | None = Field(
        description="of the last half minute, to be computed again"
    )
    waste: float | None = Field(description="the same, of the tokens that were computed")
    preemptions: int | None = Field(
        default=None, description="of another maker's engine, since it began"
    )
    note: str = Field(default="", description="what another maker's engine tells, in a sentence")


class RetrierOut(BaseModel):
    """The retries of one fingerprint (tenant, model, prompt and sampling, hashed with a secret)."""

    fingerprint: str
    tenant: str
    priority: str
    retries: int
    highest_attempt: int
    detected_by: str
    outcomes: dict[str, int] = Field(description="how its attempts ended")


class RetriesOut(BaseModel):
    """Retries of the last half minute, and who they come from among the requests remembered."""

    seconds: float
    first: int
    retries: int
    amplification: float | None = Field(description="arrivals per first attempt; null: no first")
    returned: dict[str, int] = Field(description="obeyed, ignored, none: no advice was given")
    budget: float = Field(description="engine-seconds that retries may spend now")
    rate: float = Field(description="retries per first attempts (limit retry_share)")
    by_attempt: dict[str, int] = Field(description="since the start")
    by_header: dict[str, int] = Field(description="since the start: what told of the attempt")
    top: list[RetrierOut]


class ReasonOut(BaseModel):
    """So many requests ended so."""

    outcome: str
    reason: str
    total: int
    by_class: dict[str, int]


class ReasonsOut(BaseModel):
    """Of the requests that ended last."""

    requests: int
    seconds: float = Field(description="since the oldest of them ended")
    reasons: list[ReasonOut]


class TopOut(BaseModel):
    """Everything that moves. Rates are per second, over `seconds`."""

    uptime: float
    model: str | None
    draining: bool
    diagnosis: DiagnosisOut
    seconds: float
    first: float
    retries: float
    served: float
    dropped: float = Field(description="refused, expired or evicted for load")
    output_tokens: float
    levels: list[LevelOut]
    oldest_age: float | None
    wait: float | None = Field(description="predicted for an average request, seconds")
    threshold: float
    running: int
    slots: int
    kv: float | None
    step_seconds: float | None
    tpot_target: float
    speed: float | None
    brownout: int
    overrides: dict[str, float]
    outcomes: dict[str, int] = Field(description="since the start")
