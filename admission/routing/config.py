"""Settings of the choice among several engines; with one engine none of them matters."""

from pydantic import BaseModel, ConfigDict, Field


class RoutingConfig(BaseModel):
    """Which engine gets a request, and which gets none for a while."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    affinity_characters: int = Field(
        default=2048,
        ge=0,
        le=1_000_000,
        description="Requests whose prompts begin with the same so many characters go to the same "
        "engine, for its prefix cache; 0: off.",
    )
    affinity_gain: float = Field(
        default=1.0,
        ge=0,
        le=10,
        description="How much longer than elsewhere they may wait for that, as a multiple of the "
        "time that reading those characters takes.",
    )
    slow_start: float = Field(
        default=30.0,
        ge=0,
        le=3600,
        description="Seconds in which an engine that came up or back gets from a tenth to all of "
        "its slots, while others are warm; 0: at once.",
    )
    eject_after: int = Field(
        default=5,
        ge=0,
        le=1000,
        description="Faults in a row after which an engine gets no requests for a while: answers "
        "of 5xx, lost connections, requests given up while it hangs; never 429, 503 or 529, which "
        "say that it is full. 0: never.",
    )
    eject_for: float = Field(
        default=30.0,
        ge=1,
        le=3600,
        description="Seconds for which it gets none; twice that the second time, and so on.",
    )
    eject_at_most: float = Field(
        default=300.0, ge=1, le=86_400, description="Seconds that this may become."
    )
    eject_share: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Of the engines, how many may be out so at once; of two or more, one always "
        "may.",
    )
    moves: int = Field(
        default=2,
        ge=0,
        le=16,
        description="How often a request goes to another engine when one was lost or turned it "
        "away before the first byte of its answer.",
    )
