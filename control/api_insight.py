"""The admin API's routes about what is going on: diagnose, explain, queue, memory, retries, slo."""

from typing import Annotated, Any, Protocol

from fastapi import FastAPI, HTTPException, Query
from pydantic import BaseModel

from surgetank.admission.limits import Limit, limit_named
from surgetank.control.diagnose.verdict import Slo
from surgetank.control.explain import ExplainOut, UnknownRequest
from surgetank.control.insight.backend_shapes import BackendsOut
from surgetank.control.insight.service import Insight
from surgetank.control.insight.shapes import (
    DiagnosisOut,
    MemoryOut,
    QueueOut,
    ReasonsOut,
    RetriesOut,
    TopOut,
)
from surgetank.control.journal import Entry
from surgetank.control.slo import SloReport

Most = Annotated[int, Query(ge=1, le=1000, description="rows at most")]
Price = Annotated[float | None, Query(ge=0, le=1e6, allow_inf_nan=False)]


class Insightful(Protocol):
    """What these routes show."""

    @property
    def insight(self) -> Insight:
        """What is going on, and why."""

    def entries(self, last: int) -> list[Entry]:
        """The journal's newest entries, oldest of them first."""


class HistoryOut(BaseModel):
    """Changes of limits, oldest first."""

    entries: list[dict[str, Any]]


def add_insight(app: FastAPI, service: Insightful) -> None:
    """Add the routes to the admin API."""
    _add_verdicts(app, service.insight)
    _add_lists(app, service.insight)

    @app.get("/limits/history")
    async def limits_history(limit: str | None = None, last: Most = 50) -> HistoryOut:
        """The newest changes of all limits, or of one: who or what, why, before, after."""
        names = set(map(str, Limit)) if limit is None else {str(limit_named(limit))}
        found = [entry for entry in service.entries(1000) if entry.what in names][-last:]
        return HistoryOut(
            entries=[
                {name: getattr(each, name) for name in each.__struct_fields__} for each in found
            ]
        )


def _add_verdicts(app: FastAPI, insight: Insight) -> None:
    @app.get("/diagnose")
    async def diagnose(slo: Slo | None = None) -> DiagnosisOut:
        """What stands in the way, in one word, with evidence and the next command."""
        return insight.diagnose(slo)

    @app.get("/explain/{request_id:path}")
    async def explain(request_id: str) -> ExplainOut:
        """One request: its stages, the decision, the queue that it found, and what if now."""
        try:
            return insight.explain(request_id)
        except UnknownRequest as error:
            raise HTTPException(410, str(error)) from error

    @app.get("/top")
    async def top() -> TopOut:
        """Everything that moves."""
        return insight.top()

    @app.get("/slo")
    async def slo(price_per_hour: Price = None) -> SloReport:
        """What is left of each promise's budget, how fast it burns, goodput and cost."""
        return insight.slo(price_per_hour)


def _add_lists(app: FastAPI, insight: Insight) -> None:
    @app.get("/queue")
    async def queue(last: Most = 50, running: bool = False) -> QueueOut:
        """Who waits; with running, who is in the engine too."""
        return insight.queue(last, running=running)

    @app.get("/memory")
    async def memory() -> MemoryOut:
        """The KV pool as gate and engine see it."""
        return insight.memory()

    @app.get("/retries")
    async def retries(last: Most = 20) -> RetriesOut:
        """Who retries, how often, and whether as told."""
        return insight.retries(last)

    @app.get("/backends")
    async def backends() -> BackendsOut:
        """The engines behind the gate."""
        return insight.backends()

    @app.get("/admission/reasons")
    async def admission_reasons() -> ReasonsOut:
        """How the last requests ended, by outcome, reason and class."""
        return insight.reasons()
