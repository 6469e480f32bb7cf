"""What every act over the admin API carries: who, why, whether to do it at all; what it answers."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MAX_TTL = 7 * 86400.0  # seconds; what shall last longer belongs into the configuration
DRY_RUN: Any = Field(default=False, description="check and answer; change nothing")
FLEET: Any = Field(default=False, description="at every sidecar that shares our Redis")
FORCE: Any = Field(default=False, description="although it would make things worse now")


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("allowed: one line without control characters")
    return text


class Reason(BaseModel):
    """Who acts, and why; both stand in the journal, and on the terminals of those who read it."""

    model_config = ConfigDict(extra="forbid")
    who: Annotated[str, AfterValidator(_printable)] = Field(min_length=1, max_length=100)
    why: Annotated[str, AfterValidator(_printable)] = Field(min_length=1, max_length=500)


class Ending(Reason):
    """The end of what an earlier act began."""

    dry_run: bool = DRY_RUN


class FleetEnding(Ending):
    """The end of what may have begun everywhere."""

    fleet: bool = FLEET


class ChangeOut(BaseModel):
    """What an act changed."""

    what: str
    before: float | bool
    after: float | bool
    ttl: float | None
    dry_run: bool
    fleet: bool = Field(description="whether every sidecar that shares our Redis is told")
