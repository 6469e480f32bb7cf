"""A report as one HTML file that needs nothing else: numbers, picture and scenario."""

import base64
import html
import json
from collections.abc import Sequence
from typing import Any

from surgetank.control.lab.summary import Group, Summary
from surgetank.control.lab.world import Scenario

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:74rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0}th,td{padding:.25rem .5rem;text-align:right}
th:first-child,td:first-child{text-align:left;white-space:nowrap}tr{border-bottom:1px solid #ddd}
img{max-width:100%}pre{background:#f5f5f5;padding:1rem;overflow:auto;font-size:13px}
.wide{overflow-x:auto}
@media(prefers-color-scheme:dark){body{background:#16181a;color:#ddd}pre{background:#222}
tr{border-color:#444}img{background:#fff}}
"""

COLUMNS: tuple[tuple[str, str], ...] = (
    ("policy", "policy"),
    ("calls", "calls"),
    ("success", "good"),
    ("goodput", "good/s"),
    ("goodput_cost", "goodput, engine-s/s"),
    ("attempts_per_call", "attempts/call"),
    ("admitted_per_call", "admitted/call"),
    ("late", "late of admitted"),
    ("ttft_p50", "TTFT p50, s"),
    ("ttft_p99", "TTFT p99, s"),
    ("tpot_p99", "TPOT p99, s"),
    ("recomputed", "recomputed"),
)
_SHARES = frozenset({"success", "late", "recomputed"})
_QUARTERS = ("the shortest quarter", "the second", "the third", "the longest")


def cells(summary: Summary) -> list[str]:
    """A summary as a row of COLUMNS."""
    values = [(key, getattr(summary, key)) for key, _ in COLUMNS]
    return [percent(value) if key in _SHARES else cell(value) for key, value in values]


def cell(value: Any) -> str:
    """A number as people write it."""
    if isinstance(value, float):
        return "-" if value != value else f"{value:.3g}"
    return str(value)


def percent(share: float) -> str:
    """A share as people write it."""
    return "-" if share != share else f"{share:.1%}"


def page(scenario: Scenario, summaries: Sequence[Summary], picture: bytes, title: str) -> str:
    """The whole file."""
    image = base64.b64encode(picture).decode()
    several = {"policy"} if len(summaries) > 1 else None
    settings = scenario.model_dump(mode="json", exclude=several)
    shown = json.dumps(settings, indent=1, sort_keys=True)
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        "<p>A simulation in virtual time. A call is good when it was answered in full, within the "
        f"targets: first token {scenario.slo.ttft:g} s, then {scenario.slo.tpot:g} s a token."
        "</p>",
        _table([name for _, name in COLUMNS], [cells(summary) for summary in summaries]),
        f'<img alt="good calls, attempts and TTFT over time" src="data:image/png;base64,{image}">',
    ]
    for summary in summaries:
        parts.append(f"<h2>{html.escape(summary.policy)}</h2>")
        parts.append(_groups("class", summary.classes))
        if len(summary.tenants) > 1:
            parts.append(_groups("tenant", summary.tenants))
        if summary.quartiles:
            shares = [percent(share) for share in summary.quartiles]
            parts.append(_table(["prompts", "good"], list(zip(_QUARTERS, shares, strict=True))))
        if summary.reasons:
            reasons = [[reason, str(count)] for reason, count in summary.reasons.items()]
            parts.append(_table(["refused or failed", "attempts"], reasons))
    parts.append(f"<h2>Scenario</h2><pre>{html.escape(shown)}</pre>")
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{html.escape(title)}'
        f"</title><style>{_STYLE}</style>\n<body>\n{body}\n</body></html>\n"
    )


def _groups(what: str, groups: Sequence[Group]) -> str:
    rows = [
        [
            g.name,
            str(g.calls),
            percent(g.success),
            cell(g.served),
            cell(g.ttft_p50),
            cell(g.ttft_p99),
        ]
        for g in groups
    ]
    names = [what, "calls", "good", "served, engine-s", "TTFT p50, s", "TTFT p99, s"]
    return _table(names, rows)


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    lines = [
        "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in rows
    ]
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(lines)}</table></div>'
