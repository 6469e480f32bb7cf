"""What an engine leaves us that others use too: another sidecar, or clients that pass us by.

An engine that tells how many sequences it has tells of the others: those that are not ours. They
take slots and KV memory, of what is used of the latter as much as they are of the sequences. What
they leave would go to whoever is quickest, and a sidecar that starts while another holds everything
would get nothing for good: who has a slot fills it again before anybody hears of it. So of M, slots
or blocks, we take

    x <= alpha * (M - others - x)    alpha = 10

a tenth of what we hold stays free. G sidecars that all want more than there is come to the same
x = M / (G + 1/alpha) from wherever they begin, and leave 3 to 5 % unused. (Choudhury and Hahne,
"Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM Transactions on
Networking 6(2), 1998.) Clients that hold nothing back would leave nothing: a tenth of M is ours
whatever they do.

The count is up to a second old, and as much may have come since: it helps two or three sidecars,
and less the more there are (docs/fleet.md has the figures).
"""

_ALPHA = 10.0


def left(whole: float, others: float) -> float:
    """How much of an engine's slots or blocks we may take."""
    if not others:
        return whole
    return max(whole / _ALPHA, (whole - others) * _ALPHA / (1.0 + _ALPHA))


def kv_held(used: float, others: int, ours: int) -> float:
    """KV blocks that others hold of those in use, by their part of the sequences."""
    return used * others / (others + ours) if others else 0.0
