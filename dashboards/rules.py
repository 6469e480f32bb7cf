"""What a Prometheus rule is: recorded series and alerts, and how a group of them is written."""

from dataclasses import dataclass, field
from typing import Any, Literal

RUNBOOKS = "dashboards/runbooks"

Severity = Literal["critical", "warning", "none"]


@dataclass(frozen=True, slots=True)
class Record:
    """A series that Prometheus computes once, for alerts and panels to share."""

    name: str
    expr: str
    labels: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """As it stands in a rule file."""
        rule: dict[str, Any] = {"record": self.name, "expr": self.expr}
        return rule | ({"labels": self.labels} if self.labels else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A condition that a person must know of; its runbook is the file of its name.

    critical: someone is woken. warning: someone looks in working hours. none: not for people.
    Alerts of one name carry a label that tells them apart.
    """

    name: str
    expr: str
    wait: str  # how long the condition must hold
    severity: Severity
    summary: str  # one line; may use {{ $labels.x }}
    description: str  # what it means, and the first thing to look at
    labels: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """As it stands in a rule file."""
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.wait,
            "labels": {"severity": self.severity, **self.labels},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook": f"{RUNBOOKS}/{self.name}.md",
            },
        }


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated together, in their order."""

    name: str
    rules: tuple[Record | Alert, ...]
    every: str = ""  # how often; empty: as often as Prometheus evaluates

    def as_dict(self) -> dict[str, Any]:
        """As it stands in a rule file."""
        interval = {"interval": self.every} if self.every else {}
        return {"name": self.name, **interval, "rules": [rule.as_dict() for rule in self.rules]}
