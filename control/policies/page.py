"""The page about policies: how they are tried, and the table of those that come with us."""

from surgetank.admission.policies.plugins import GROUP
from surgetank.admission.policies.table import DEFAULT
from surgetank.control.policies.plugins import OURS, Kind, offers

_OPENING = f"""# Policies

Generated from the code by `surgetank docs policies`; a test keeps it current.

An *admission* policy says yes or no to one request; one is live (`gate.policy`, by default
`{DEFAULT}`). A *control* policy sets values for limits each quarter of a second; several are live,
in order (`control.policies`), and where two want the same limit, the later one's value holds. Under
every policy hold: what can never fit, the queue's bounds, the classes that an operator or the
brown-out ladder holds back, and an operator's overrides.

## Trying one

    surgetank policy list
    surgetank policy shadow gradient2 --ttl 2h --why "how would it do?"
    surgetank policy show gradient2
    surgetank policy canary gradient2 --share 10% --ttl 2h --why "it agreed in the shadow"
    surgetank policy promote gradient2 --why "as good, and simpler"
    surgetank policy rollback gradient2 --why "back to the laws"

- **off**: nothing.
- **shadow**: asked about every request and never obeyed. `show` tells what it would have refused,
  and how those ended.
- **canary**: decides on a share of the calls; a hash chooses them, so that retries stay in their
  share. It is rolled back when it is worse, when it raises five times, and at the end of its time.
- **live**: decides; a promoted one until the sidecar ends, one in the configuration always.

Every act has an author, a reason and an end, and stands in the journal; `--dry-run` only shows it.
A fault of a policy never reaches a request: the live one decides instead, and if it is the live
one, `{DEFAULT}`. Shadows cost their decision for every request (four are the most); with nobody on
trial nothing is paid.

## When a canary is worse

Each call is judged by the first attempt that is seen of it: *good* is an answer whose first token
came within the target of its class; *late* is one that was admitted and came after it, or never.
Two tests run at once, on the good and on the late calls, each valid however often it is looked at
(`admission/policies/evidence.py` has the derivation). A candidate that is no worse is rolled back
with a chance of `control.canary.error_rate` (1 %) at most, over its whole life. Half the goodput,
at a share of 10 %, takes some 600 good calls to be sure of; a fall by a fifth some 4,000.

Both shares use one engine and one queue. What lets everybody in is served well while the live
policy still holds back for both: a canary can look better than it is alone. So what was promoted is
watched on, and rolled back when significantly more than 10 % of what it admits comes late. TPOT is
the engine's, the same for both: it is not compared.

A control policy on trial is asked as if its values held: those that act when a request is decided
on (kappa, queue, retry share, classes held back). What acts on the engine as a whole stays as it
is.

## Those that come with us

| policy | decides | meaning |
|---|---|---|
"""
_CLOSING = f"""
The rules among them (all but `{DEFAULT}`) are the ones that `surgetank lab compare` runs as rivals.

## Your own

A distribution offers policies by entry points:

    [project.entry-points."{GROUP}"]
    night = "their_package.night:policy"

The object is a `surgetank.admission.policies.policy.Plugin`, whose `build(site)` returns an object
with `decide(ticket, card, now, stalled_for)`, which answers an `Admission` or a `Refusal`, and
`ended(ticket, now)`; or it is a `surgetank.control.policies.policy.Policy`, a pure function from
state, configuration and snapshot to values for limits. `surgetank policy list` names what does not
load, and why. It runs inside the sidecar: install what you trust.
"""


def markdown() -> str:
    """The whole page; policies of other distributions are not in it."""
    ours = [each for each in offers().values() if each.source == OURS]
    rows = "".join(
        f"| `{each.name}` | {each.kind} | {each.help} |\n"
        for kind in (Kind.ADMISSION, Kind.CONTROL)
        for each in ours
        if each.kind is kind
    )
    return f"{_OPENING}{rows}{_CLOSING}"
