"""The admin API's routes about policies: list, show, shadow, canary, promote, rollback."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Protocol

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

from surgetank.admission.policies.plugins import PolicyError
from surgetank.control.actions import Actions
from surgetank.control.acts import DRY_RUN, FLEET, MAX_TTL, FleetEnding, Reason
from surgetank.control.policies.shapes import (
    PoliciesOut,
    PolicyDetailOut,
    policies_out,
    policy_out,
)
from surgetank.control.trials import PolicyChange, Trials


class Trying(Protocol):
    """What these routes act upon."""

    @property
    def trials(self) -> Trials:
        """Policies and their parts."""

    @property
    def actions(self) -> Actions:
        """Who can be told of an act."""


class BeginShadow(Reason):
    """A policy that is asked and not obeyed."""

    ttl: float = Field(gt=0, le=MAX_TTL, allow_inf_nan=False, description="seconds")
    dry_run: bool = DRY_RUN


class BeginCanary(BeginShadow):
    """A policy that decides on a share of the calls."""

    share: float = Field(ge=0.01, le=0.5, allow_inf_nan=False, description="of the calls")


class Promote(Reason):
    """A policy that becomes live; without a ttl until the process ends."""

    ttl: float | None = Field(default=None, gt=0, le=MAX_TTL, description="seconds")
    dry_run: bool = DRY_RUN
    force: bool = Field(default=False, description="without a canary that has shown enough")
    fleet: bool = FLEET


class PolicyChangeOut(BaseModel):
    """What an act changed."""

    what: str
    before: str
    after: str
    ttl: float | None
    dry_run: bool


def add_policies(app: FastAPI, service: Trying) -> None:
    """Add the routes to the admin API."""
    trials, others = service.trials, service.actions.others
    _add_reading(app, trials)

    @app.post("/policies/{name}/shadow")
    async def shadow(name: str, body: BeginShadow) -> PolicyChangeOut:
        """Ask it beside the live policy, and obey it never."""
        return _did(lambda: trials.shadow(name, **body.model_dump()))

    @app.post("/policies/{name}/canary")
    async def canary(name: str, body: BeginCanary) -> PolicyChangeOut:
        """Let it decide on a share of the calls; it is rolled back if it does worse."""
        return _did(lambda: trials.canary(name, **body.model_dump()))

    @app.post("/policies/{name}/promote")
    async def promote(name: str, body: Promote) -> PolicyChangeOut:
        """Make it live."""
        did = _did(lambda: trials.promote(name, **body.model_dump(exclude={"fleet"})))
        if body.fleet and not body.dry_run:
            until = None if body.ttl is None else trials.now() + body.ttl
            others.tell_policy(name, until=until, who=body.who, why=body.why)
        return did

    @app.post("/policies/{name}/rollback")
    async def rollback(name: str, body: FleetEnding) -> PolicyChangeOut:
        """End its part."""
        did = _did(lambda: trials.rollback(name, **body.model_dump(exclude={"fleet"})))
        if body.fleet and not body.dry_run:
            others.tell_rollback(name, who=body.who, why=body.why)
        return did


def _add_reading(app: FastAPI, trials: Trials) -> None:
    @app.get("/policies")
    async def policies() -> PoliciesOut:
        """Every policy, its state, and who put it there."""
        return policies_out(trials)

    @app.get("/policies/{name}")
    async def policy(name: str) -> PolicyDetailOut:
        """One policy, and what it has shown in the shadow or as a canary."""
        return policy_out(trials, name)


def _did(act: Callable[[], PolicyChange]) -> PolicyChangeOut:
    try:
        return PolicyChangeOut(**asdict(act()))
    except PolicyError as error:
        raise HTTPException(422, str(error)) from error
