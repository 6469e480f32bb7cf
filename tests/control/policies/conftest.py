"""A desk's snapshot with what a policy looks at set at will."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.admission.rig import Rig

from surgetank.admission.flow import Flow
from surgetank.admission.laws import LawsView
from surgetank.admission.queue import QueueLevel
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.admission.wait import Wait
from surgetank.telemetry.vocabulary import Lane, Priority

Look = Callable[..., DeskSnapshot]


@pytest.fixture
def look() -> Look:
    """look(at, pressure=W/(kappa*T), kv=, tpot=, queued=, drain=, flow=, age=, known=)."""
    base = Rig().desk.snapshot()

    def make(
        at: float,
        *,
        pressure: float = 0.0,
        kv: float = 0.0,
        tpot: float = 0.0,
        queued: int = 1,
        drain: float = 1.0,
        flow: Flow | None = None,
        age: float = 0.0,
        known: bool = True,
        **changes: Any,
    ) -> DeskSnapshot:
        laws: LawsView = replace(
            base.laws,
            wait=Wait(pressure * base.laws.threshold, 0.0, age) if known else None,
            kv_used=kv,
            tpot=tpot,
            drain=drain,
        )
        requests = {Lane.FIRST: queued, Lane.RETRY: 0}
        level = QueueLevel(Priority.DEFAULT, requests, 10 * queued, 0.1 if queued else None)
        return replace(base, at=at, laws=laws, queue=(level,), flow=flow or Flow(), **changes)

    return make
