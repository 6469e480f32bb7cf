"""Policies that other distributions bring: looked up by their entry points, loaded when wanted.

A distribution offers one in its pyproject.toml:

    [project.entry-points."surgetank.policies"]
    night = "their_package.night:policy"

The object is a Plugin (an admission policy), or a surgetank.control.policies.policy.Policy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from surgetank.admission.policies.policy import Plugin
from surgetank.admission.policies.table import PLUGINS

GROUP = "surgetank.policies"


class PolicyError(ValueError):
    """There is no such policy, or it cannot be used; the sentence says which and why."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A policy of another distribution. `source`: its name and version."""

    name: str
    source: str
    load: Callable[[], object]


def foreign() -> dict[str, Foreign]:
    """Those that are installed; nothing is imported yet. The first of a name holds."""
    found: dict[str, Foreign] = {}
    for entry in entry_points(group=GROUP):
        found.setdefault(entry.name, Foreign(entry.name, _source(entry), _loader(entry)))
    return found


def admission_plugin(name: str) -> Plugin:
    """The admission policy of that name; raises PolicyError."""
    if name in PLUGINS:
        return PLUGINS[name]
    others = foreign()
    if name not in others:
        known = ", ".join([*PLUGINS, *others])
        raise PolicyError(f"no policy {name!r}; there are: {known}")
    plugin = others[name].load()
    if not isinstance(plugin, Plugin):
        raise PolicyError(f"policy {name!r} of {others[name].source} is no admission policy")
    return plugin


def _source(entry: EntryPoint) -> str:
    return (
        "an unnamed distribution"
        if entry.dist is None
        else f"{entry.dist.name} {entry.dist.version}"
    )


def _loader(entry: EntryPoint) -> Callable[[], object]:
    def load() -> object:
        try:
            return entry.load()
        except Exception as error:  # foreign code: whatever is wrong with it is its name's to say
            said = f"{type(error).__name__}: {error}"
            raise PolicyError(
                f"policy {entry.name!r} of {_source(entry)} ({entry.value}) fails to load: {said}"
            ) from error

    return load
