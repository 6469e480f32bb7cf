"""Our pinned names are those of the release that they say they are of."""

from importlib import import_module

import pytest
from opentelemetry.semconv.attributes import error_attributes, http_attributes, service_attributes
from opentelemetry.semconv.attributes import url_attributes as url
from opentelemetry.semconv.schemas import Schemas

from surgetank.telemetry import conventions
from surgetank.telemetry.catalog import CATALOG, PREFIX, MetricType

GEN_AI, RPC, SERVICE = (
    import_module(f"opentelemetry.semconv._incubating.attributes.{name}_attributes")
    for name in ("gen_ai", "rpc", "service")
)
NAMES = {
    name: value
    for name, value in vars(conventions).items()
    if isinstance(value, str) and name.isupper() and name not in ("PREFIX", "VERSION", "SCHEMA_URL")
}


def test_the_release_is_the_one_that_is_tested_against() -> None:
    assert [*Schemas][-1].value == conventions.SCHEMA_URL


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_in_it_or_ours(name: str) -> None:
    known = {
        value
        for module in (error_attributes, http_attributes, service_attributes, url)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    known |= {
        value
        for module in (GEN_AI, RPC, SERVICE)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    assert NAMES[name].startswith("surgetank.") or NAMES[name] in known


def test_each_metric_that_it_maps_is_one_of_our_histograms() -> None:
    for ours in conventions.METRICS.values():
        assert CATALOG[ours.removeprefix(PREFIX)].type is MetricType.HISTOGRAM
