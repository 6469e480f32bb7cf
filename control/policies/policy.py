"""What a policy is: a pure function from its own state and one snapshot to values for limits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from surgetank.admission.gate import GateConfig
from surgetank.admission.limits import Limit
from surgetank.admission.snapshot import DeskSnapshot

Wanted = Mapping[Limit, float]


@dataclass(frozen=True, slots=True)
class Policy:
    """`step(state, config, snapshot)` returns the next state and the base values that limits should
    have; time is `snapshot.at`. It changes nothing by itself, so it may run in the shadow as well.
    """

    start: Any
    step: Callable[[Any, GateConfig, DeskSnapshot], tuple[Any, Wanted]]
    help: str = ""


def stateless(wanted: Callable[[GateConfig, DeskSnapshot], Wanted], help: str = "") -> Policy:
    """A policy that remembers nothing."""
    return Policy(None, lambda _, config, snapshot: (None, wanted(config, snapshot)), help)
