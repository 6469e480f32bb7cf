"""One colour for one word on every board: green is served, orange our doing, red a fault."""

from collections.abc import Mapping

_QUIET = "#8e8e8e"

# By a legend's label, its values' colours; Grafana's own names where it has them.
COLORS: Mapping[str, Mapping[str, str]] = {
    "outcome": {
        "ok": "green",
        "overload": "yellow",
        "retry_budget": "orange",
        "quota": "super-light-yellow",
        "infeasible": "light-orange",
        "expired": "dark-orange",
        "evicted": "dark-yellow",
        "cancelled": _QUIET,
        "invalid": "light-blue",
        "not_found": "blue",
        "draining": "purple",
        "deadline": "light-red",
        "backend_down": "red",
        "circuit_open": "semi-dark-red",
        "internal": "dark-red",
        "dispatched": "green",
        "shed": "yellow",
    },
    "decision": {"admitted": "green", "refused": "yellow"},
    "priority": {
        "critical": "purple",
        "default": "blue",
        "batch": "light-blue",
        "sheddable": _QUIET,
    },
    "lane": {"first": "blue", "retry": "orange"},
    "attempt": {"0": "blue", "1": "yellow", "2": "orange", "3plus": "red"},
    "verdict": {
        "healthy": "green",
        "compute": "orange",
        "memory": "purple",
        "limit": "blue",
        "token_budget": "yellow",
        "scheduler": "red",
        "dispatch": "dark-red",
    },
    "state": {
        "filled": "green",
        "no_work": _QUIET,
        "blocked_kv": "purple",
        "blocked_token_budget": "yellow",
        "blocked_limit": "blue",
        "blocked_other": "red",
    },
    "slo": {"availability": "green", "ttft": "blue", "tpot": "purple"},
    "advice": {"obeyed": "green", "ignored": "red", "none": _QUIET},
    "phase": {"prefill": "blue", "decode": "green"},
    "kind": {"decode": "green", "prefill": "blue", "mixed": "yellow"},
}
# Lines whose legend is a word of ours.
LINES: Mapping[str, str] = {
    "p50": "green",
    "p95": "yellow",
    "p99": "orange",
    "target": "red",
    "none": _QUIET,
    "used": "blue",
    "cached": "light-blue",
    "free": _QUIET,
}


def colors_of(legend: str) -> Mapping[str, str]:
    """What a query's series are coloured, by their names or a /pattern/; empty: as they come."""
    if legend in LINES:
        return {legend: LINES[legend]}
    if legend.startswith("threshold {{"):
        return {"/^threshold /": "red"}
    if legend.startswith("attempt {{"):
        return {f"attempt {value}": color for value, color in COLORS["attempt"].items()}
    label = legend.removeprefix("{{").removesuffix("}}")
    return COLORS.get(label, {}) if legend == f"{{{{{label}}}}}" else {}
