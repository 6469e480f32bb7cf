"""The admin API's routes that act on one of the engines."""

from dataclasses import asdict
from typing import Protocol

from fastapi import FastAPI
from pydantic import Field

from surgetank.control.acts import DRY_RUN, FORCE, MAX_TTL, ChangeOut, Ending, Reason
from surgetank.control.backend_drains import BackendDrains


class Backed(Protocol):
    """What these routes act upon."""

    @property
    def backend_drains(self) -> BackendDrains:
        """A drain for each engine."""


class BeginBackendDrain(Reason):
    """An engine that gets no more requests; without a ttl until it is undrained."""

    ttl: float | None = Field(default=None, gt=0, le=MAX_TTL, description="seconds")
    dry_run: bool = DRY_RUN
    force: bool = FORCE


def add_backends(app: FastAPI, service: Backed) -> None:
    """Add the routes to the admin API."""

    @app.post("/backends/{name}/drain")
    async def drain_backend(name: str, body: BeginBackendDrain) -> ChangeOut:
        """Give one engine no more requests; those that it has complete."""
        return ChangeOut(**asdict(service.backend_drains.begin(name, **body.model_dump())))

    @app.post("/backends/{name}/undrain")
    async def undrain_backend(name: str, body: Ending) -> ChangeOut:
        """Give it requests again."""
        return ChangeOut(**asdict(service.backend_drains.end(name, **body.model_dump())))
