"""The dynamic threshold: how long a request may wait, and how many may.

    admit iff W <= min(kappa * T, S, T - own)        of a retry r * kappa * T
    S = time left - own prefill - own decode

T is the class's TTFT target, S the slack that the caller's own deadline leaves for waiting. kappa <
1 keeps a reserve of the target for what W cannot see, the variance of the work ahead, and for the
own prefill of usual prompts. At .7, in the lab, one in a hundred of those let in is served late
(.6: .7 in a hundred; .8: up to 1.6), and of the capacity for prompts that grow fourfold in the
middle of a run .93 are used (.6: .92, in the worst of eight runs .87; .4: .87). A retry may wait
for a part of that (r, retry_wait_share), so that first attempts find room after a stall.

The caller's slack has no reserve: a target is promised to all, but who would rather leave than wait
loses nothing by a wait that might just be too long. Before an engine with one slot, whose callers
are patient for twice what an answer takes, a reserve of .3 refused a quarter of them at .7 of its
capacity; without a gate a tenth went unanswered, with this law and the slots of hints.py one in
fifty (the lab's experiment `one-slot`).

The own prefill stays out of W, or long prompts would never get in. Only where slots are contended
does a prompt have to fit: one that takes .7 of its target to read has .3 to wait. Without this the
longest prompts of an overload, which cost as much as a hundred others, were served late, and a
tenth of the engine's work was in vain. On a free engine own is 0 here: a prompt that takes longer
to read than the target is late by itself and harms nobody.

In requests the threshold is

    Q_max = kappa * T * mu / C_mean

so it falls when the engine slows (mu) and when requests grow (C_mean), by itself: the hard-coded
number that it replaces does neither.
"""

import msgspec


class Threshold(msgspec.Struct, frozen=True):
    """The longest wait in seconds, and whether the caller's deadline is what made it so."""

    seconds: float
    by_deadline: bool


def threshold(share: float, target: float, slack: float, own: float) -> Threshold:
    """`target` is the class's TTFT, of which `share` may be wait; `slack` what the caller's
    deadline leaves, infinite without; `own` seconds to read the prompt, 0 where slots are free."""
    longest = min(share * target, target - own)
    return Threshold(max(0.0, min(longest, slack)), by_deadline=slack < longest)


def queue_bound(seconds: float, drain: float, mean_cost: float) -> float:
    """Q_max: requests of mean cost (engine-seconds, > 0) whose wait is `seconds`."""
    return seconds * drain / mean_cost
