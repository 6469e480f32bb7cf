"""Settings of shared state that cannot work together, each in a sentence; nothing is refused."""

from collections.abc import Iterator

from surgetank.admission.leases.config import LeasesConfig
from surgetank.control.fleet.config import FleetConfig


def lint_fleet(leases: LeasesConfig, fleet: FleetConfig) -> Iterator[str]:
    """What an operator should know before it matters."""
    quotas = {"leases.default": leases.default}
    quotas |= {f"leases.tenants.{name}": quota for name, quota in leases.tenants.items()}
    if leases.url is None:
        if leases.sidecars > 1:
            yield f"leases.sidecars is {leases.sidecars} without leases.url: each holds all limits"
        return
    for name, quota in quotas.items():
        if quota.concurrency is not None and quota.concurrency < leases.sidecars:
            yield (
                f"{name}.concurrency is {quota.concurrency}, leases.sidecars {leases.sidecars}: "
                "while Redis is away no sidecar has a slot for it"
            )
    if 3 * leases.timeout > leases.term:
        yield (
            f"leases.timeout is {leases.timeout:g}, leases.term {leases.term:g}: a lease runs out "
            "while one answer is waited for"
        )
    if 1.1 * fleet.period + leases.timeout > 0.95 * fleet.lease:
        yield (
            f"fleet.period is {fleet.period:g}, fleet.lease {fleet.lease:g}: nobody leads between "
            "two looks"
        )
