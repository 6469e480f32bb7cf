"""Every policy by the name that the command line uses."""

from collections.abc import Callable

from surgetank.admission.policies.envoy import Envoy
from surgetank.admission.policies.gradient2 import Gradient2
from surgetank.admission.policies.in_flight import InFlight
from surgetank.admission.policies.kv_threshold import KvThreshold
from surgetank.admission.policies.queue_cap import QueueCap
from surgetank.admission.policies.unlimited import Unlimited
from surgetank.control.lab.entrance import Entrance
from surgetank.control.lab.rivals.admitperf import AdmitPerf
from surgetank.control.lab.rivals.door import PlainDoor
from surgetank.control.lab.rivals.oracle import Oracle
from surgetank.control.lab.rivals.ours import build_ours
from surgetank.control.lab.rivals.site import Site

POLICIES: dict[str, Callable[[Site], Entrance]] = {
    "ours": build_ours,
    "none": lambda site: PlainDoor(site, Unlimited()),
    "static-in-flight": lambda site: PlainDoor(site, InFlight(lambda: 2 * site.spec.max_num_seqs)),
    "static-queue": lambda site: PlainDoor(site, QueueCap(requests=100)),
    "static-queue-tokens": lambda site: PlainDoor(site, QueueCap(tokens=50_000)),
    "kv-threshold": lambda site: PlainDoor(site, KvThreshold(0.9)),
    "gradient2": lambda site: PlainDoor(site, Gradient2()),
    "envoy": lambda site: PlainDoor(site, Envoy(site.rng)),
    "admitperf-kv": lambda site: PlainDoor(site, AdmitPerf("KvThreshold", threshold=0.9)),
    "admitperf-queue": lambda site: PlainDoor(site, AdmitPerf("QueueDepth", max_waiting=32)),
    "oracle": Oracle,
}


class UnknownPolicy(ValueError):
    """No policy has that name; says which there are."""


def build(name: str, site: Site) -> Entrance:
    """The door with that policy. Raises UnknownPolicy, RivalMissing."""
    if name not in POLICIES:
        raise UnknownPolicy(f"no policy {name!r}; there are: {', '.join(POLICIES)}")
    return POLICIES[name](site)
