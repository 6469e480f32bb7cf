"""A plan as lines: each a value, and the formula that made it with the numbers filled in."""

from collections.abc import Iterable
from dataclasses import dataclass, field

Value = int | float | str | None


@dataclass(frozen=True, slots=True)
class Line:
    """One result. `shown` is the value for people, `value` for programs (bytes, counts, ratios)."""

    key: str
    label: str
    value: Value
    shown: str
    formula: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that one run of the planner says."""

    title: str
    sections: tuple[Section, ...]
    verdict: str | None = None
    notes: tuple[str, ...] = field(default=())

    def value(self, key: str) -> Value:
        """The value of a line; KeyError when the plan has no such line."""
        for line in self.lines():
            if line.key == key:
                return line.value
        raise KeyError(key)

    def lines(self) -> Iterable[Line]:
        return (line for section in self.sections for line in section.lines)


def as_text(report: Report) -> str:
    """The report for a terminal: label, value, then the formula."""
    labels = max(len(line.label) for line in report.lines())
    shown = max(len(line.shown) for line in report.lines())
    rows = [report.title]
    for section in report.sections:
        rows += ["", section.title]
        for line in section.lines:
            formula = f"= {line.formula}" if line.formula else ""
            rows.append(f"  {line.label:<{labels}}  {line.shown:<{shown}}  {formula}".rstrip())
    rows += [""] * bool(report.notes) + [f"note: {note}" for note in report.notes]
    return "\n".join(rows)


def as_json(report: Report) -> dict[str, object]:
    """The report for programs: sizes in bytes, keyed lines, the verdict beside them."""
    return {
        "title": report.title,
        "verdict": report.verdict,
        "lines": {
            line.key: {"label": line.label, "value": line.value, "formula": line.formula}
            for line in report.lines()
        },
        "notes": list(report.notes),
    }
