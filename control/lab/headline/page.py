"""docs/lab.md: what the lab is, and what the headline experiments measured beside their bars."""

from collections.abc import Mapping
from typing import Any

_INTRO = """# The lab

`surgetank lab` runs the gate of production, its queue, laws, policies, hints and client helpers, in
virtual time over a simulated engine: a step takes `t0 + a*P + b*B + c*K` seconds for `P` prompt
tokens, `B` decoding sequences and `K` tokens of context, and who enters, reads, decodes and gives
way in it is what the engine's own scheduler would decide. A test plays small runs on both and
compares every step. The same seed gives the same bytes.

    surgetank lab run --load 2 --client immediate-3 --fault stall@20+10
    surgetank lab compare --input trace.jsonl --speed 4 --out reports
    surgetank lab fit steps.jsonl           # the step model of an engine, and its error
    surgetank lab headline --jobs 2         # the table below

An engine with one slot, before it nobody or the gate, whose callers retry by themselves:

    surgetank lab compare --policies none,ours --load .9 --engine max_num_seqs=1 \\
        --client openai,retries=2,timeout=2 --client openai,retries=2,timeout=2,streams=false

Clients of kind `obedient` and `backoff` retry by our own helpers (`admission/client`), with one
budget for each tenant; `backoff` gets no hints. The other kinds stand for other clients. Several
`--sidecars` share tenants' quotas and one retry budget by the leases of production, as tasks in
virtual time, over a likeness of Redis that a test holds against a redis-server: with `--quota`,
`--leases`, or a fault of Redis. Only `ours` keeps to quotas.

    surgetank lab run --sidecars 3 --stream tenant=a --quota tenant=a,concurrency=8 \\
        --fault redis-loss@20+15 --fault redis-restart@50

What is not simulated: prefixes that prompts share, several choices of one request, and words. A
trace's `prefix_blocks` and `n` are therefore passed over: every prompt is read in full, once, for
one answer.

## Headline experiments

Each is played with every seed, and the worst seed is shown. What each does, and why its bar is what
it is, stands in its file in `control/lab/headline`.

"""


def markdown(document: Mapping[str, Any]) -> str:
    """The page, from what `surgetank lab headline --json` printed; KeyError on anything else."""
    rows = ["| experiment | measured | bar | holds |", "| --- | --- | --- | --- |"]
    for experiment in document["experiments"]:
        name = experiment["name"]
        for key, bar in experiment["bar"].items():
            value = experiment["measured"][key]
            holds = "yes" if _holds(value, bar) else "**no**"
            rows.append(f"| {name} | {_number(value)} | {key} {bar} | {holds} |")
            name = ""
    seeds = ", ".join(str(seed) for seed in document["seeds"])
    measured = f"Seeds {seeds}; `surgetank lab headline --seeds ... --json`, `surgetank docs lab`."
    return _INTRO + "\n".join(rows) + f"\n\n{measured}\n"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _holds(value: float | None, bar: str) -> bool:
    """`bar` as in `>= 0.95`; what could not be measured holds nothing."""
    sign, _, limit = bar.partition(" ")
    if value is None:
        return False
    return value >= float(limit) if sign == ">=" else value <= float(limit)
