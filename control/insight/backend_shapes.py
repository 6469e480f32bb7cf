"""The shapes of what is told of the engines behind the gate."""

from pydantic import BaseModel, Field


class SignalOut(BaseModel):
    """Something that an engine may tell of itself."""

    signal: str
    available: bool
    value: float | None = Field(description="null: it does not tell, or is not there")


class LawOut(BaseModel):
    """A law of the gate, and the evidence that it has."""

    law: str
    runs_on: str


class HeldOut(BaseModel):
    """Who drains it, and why."""

    who: str
    why: str
    expires_in: float | None = Field(description="seconds; null: until it is undrained")


class RoutedOut(BaseModel):
    """Requests that went there since the start, by why there."""

    only: int = Field(description="no other engine had room")
    wait: int = Field(description="the least predicted wait")
    affinity: int = Field(description="prompts that begin alike went there before")
    moved_away: int = Field(description="of them, those that another engine got in the end")


class BackendOut(BaseModel):
    """One engine; null: not known."""

    name: str
    maker: str = Field(description="embedded, or the kind that was found: vllm, llama.cpp, ...")
    role: str = Field(description="both, prefill or decode")
    state: str = Field(
        description="up, slow_start, draining, ejected, down, other_model or prefill_only"
    )
    since: float = Field(description="seconds in that state")
    back_in: float | None = Field(description="seconds until an ejected one gets requests again")
    drain: HeldOut | None
    url: str = Field(description="empty for the embedded engine")
    version: str = Field(description="empty when it does not say")
    up: bool
    model: str | None
    models: list[str] = Field(description="every name that it answers to")
    device: str | None
    pid: int | None
    slots: int | None = Field(description="sequences that it runs at once")
    slots_now: int | None = Field(description="that it may have, by the limits and slow start")
    slots_learned: float | None = Field(description="as its queue and refusals taught")
    requests: int = Field(description="in it")
    running: int = Field(description="sequences in it")
    unread: int = Field(description="prompt tokens in it that are not read yet")
    kv_used: float | None = Field(description="share of its KV pool, as it tells or as promised")
    wait: float | None = Field(description="seconds to read an average prompt, sent there now")
    routed: RoutedOut
    faults: int = Field(description="in a row")
    ejections: int = Field(description="since the start")
    restarts: int = Field(description="times that it came back or was seen to be another process")
    stalled_for: float | None = Field(description="seconds without a step while it has work")
    step: int | None
    step_seconds: float | None
    speed: float | None = Field(description="1 while steps take what they took; .5: twice as long")
    step_model: dict[str, float] | None = Field(description="seconds: t0, a, b, c")
    step_model_error: float | None
    ledger_drift: int | None = Field(description="sequences that we count, less those it reports")
    pushbacks: int = Field(description="requests that it turned away (429, 503, 529)")
    metrics_age: float | None = Field(description="seconds; null: it has no metrics to read")
    signals: list[SignalOut] = Field(description="empty for the embedded engine: it reports steps")
    notes: list[str]
    laws: list[LawOut] = Field(description="empty for the embedded engine: all run on its steps")


class BackendsOut(BaseModel):
    """Every engine."""

    backends: list[BackendOut]
