"""The admission policies that come with us, by name; one line each."""

from surgetank.admission.limits import Limit
from surgetank.admission.policies.envoy import Envoy
from surgetank.admission.policies.gradient2 import Gradient2
from surgetank.admission.policies.in_flight import InFlight
from surgetank.admission.policies.kv_threshold import KvThreshold
from surgetank.admission.policies.laws import laws
from surgetank.admission.policies.policy import Plugin
from surgetank.admission.policies.queue_cap import QueueCap
from surgetank.admission.policies.rule import ruled
from surgetank.admission.policies.site import Site
from surgetank.admission.policies.unlimited import Unlimited

DEFAULT = "laws"


def _twice_the_slots(site: Site) -> InFlight:
    return InFlight(lambda: 2 * site.limits.get(Limit.MAX_NUM_SEQS))


PLUGINS: dict[str, Plugin] = {
    "laws": laws,
    "none": ruled(lambda _: Unlimited(), "whatever finds a place in the queue"),
    "static-in-flight": ruled(_twice_the_slots, "twice as many requests as the engine has slots"),
    "static-queue": ruled(lambda _: QueueCap(requests=100), "100 requests may wait"),
    "static-queue-tokens": ruled(
        lambda _: QueueCap(tokens=50_000), "50,000 prompt tokens may wait"
    ),
    "kv-threshold": ruled(lambda _: KvThreshold(0.9), "while less than 90 % of the KV is used"),
    "gradient2": ruled(lambda _: Gradient2(), "Netflix' Gradient2 limit on requests in flight"),
    "envoy": ruled(lambda site: Envoy(site.rng), "Envoy's adaptive concurrency"),
}
