"""Settings of shared state that contradict each other are named, and the defaults do not."""

import pytest

from surgetank.admission.leases.config import LeasesConfig
from surgetank.control.fleet.config import FleetConfig
from surgetank.control.fleet.lint import lint_fleet

URL = "redis://127.0.0.1"


@pytest.mark.parametrize(
    ("leases", "fleet", "said"),
    [
        ({}, {}, []),
        ({"url": URL, "sidecars": 3}, {}, []),
        ({"sidecars": 3}, {}, ["leases.sidecars is 3 without leases.url"]),
        (
            {"url": URL, "sidecars": 3, "tenants": {"a": {"concurrency": 2}}},
            {},
            ["leases.tenants.a.concurrency is 2, leases.sidecars 3"],
        ),
        ({"url": URL, "timeout": 0.5}, {}, ["leases.timeout is 0.5, leases.term 1"]),
        ({"url": URL}, {"lease": 0.5}, ["fleet.period is 0.5, fleet.lease 0.5"]),
    ],
)
def test_contradictions_are_named(
    leases: dict[str, object], fleet: dict[str, float], said: list[str]
) -> None:
    found = lint_fleet(LeasesConfig.model_validate(leases), FleetConfig.model_validate(fleet))
    for finding, begins in zip(found, said, strict=True):
        assert finding.startswith(begins)
