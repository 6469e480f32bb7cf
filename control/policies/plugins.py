"""The one table of policies: ours and those of other distributions, of both kinds."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from surgetank import __version__
from surgetank.admission.policies.plugins import Foreign, PolicyError, foreign
from surgetank.admission.policies.policy import Plugin
from surgetank.admission.policies.table import PLUGINS
from surgetank.control.policies.policy import Policy
from surgetank.control.policies.table import POLICIES

OURS = f"surgetank {__version__}"


class Kind(StrEnum):
    """What a policy decides."""

    ADMISSION = "admission"  # yes or no to one request
    CONTROL = "control"  # values for limits


@dataclass(frozen=True, slots=True)
class Offer:
    """A policy that can be put on stage, or, with a `problem`, that cannot."""

    name: str
    kind: Kind | None  # None: it does not load, or is neither
    help: str
    source: str
    made: Plugin | Policy | None
    problem: str | None = None


def offers() -> dict[str, Offer]:
    """All of them, ours first. Those of others are loaded; one of a name of ours is a problem."""
    found = {name: _ours(name, made) for name, made in (POLICIES | PLUGINS).items()}
    for name, each in foreign().items():
        offer = _theirs(each)
        if name in found:
            taken = f"{name!r} of {each.source} cannot be used: the name is taken by {OURS}"
            offer = Offer(f"{name} ({each.source})", None, "", each.source, None, taken)
        found[offer.name] = offer
    return found


def control_policies(names: Sequence[str]) -> dict[str, Policy]:
    """The control policies of these names, in this order; raises PolicyError."""
    known = POLICIES if set(names) <= set(POLICIES) else None
    return {name: known[name] if known else _control(name) for name in names}


def _control(name: str) -> Policy:
    table = offers()
    offer = table.get(name)
    if offer is None:
        kinds = [each.name for each in table.values() if each.kind is Kind.CONTROL]
        raise PolicyError(f"no policy {name!r}; there are: {', '.join(kinds)}")
    if offer.problem is not None:
        raise PolicyError(offer.problem)
    if not isinstance(offer.made, Policy):
        raise PolicyError(f"policy {name!r} of {offer.source} is no control policy")
    return offer.made


def _ours(name: str, made: Plugin | Policy) -> Offer:
    kind = Kind.CONTROL if isinstance(made, Policy) else Kind.ADMISSION
    return Offer(name, kind, made.help, OURS, made)


def _theirs(each: Foreign) -> Offer:
    try:
        made = each.load()
    except PolicyError as error:
        return Offer(each.name, None, "", each.source, None, str(error))
    if isinstance(made, Policy):
        return Offer(each.name, Kind.CONTROL, made.help, each.source, made)
    if isinstance(made, Plugin):
        return Offer(each.name, Kind.ADMISSION, made.help, each.source, made)
    kind = type(made).__name__
    said = f"policy {each.name!r} of {each.source} is of type {kind}; allowed: Plugin, Policy"
    return Offer(each.name, None, "", each.source, None, said)
