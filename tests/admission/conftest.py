"""A traced desk for each test that asks for one."""

from collections.abc import Callable, Iterator

import pytest
from tests.admission.traced import Traced
from tests.fakes_collector import Collector


@pytest.fixture
def traced() -> Iterator[Callable[..., Traced]]:
    with Collector() as collector:
        yield lambda config=None, **settings: Traced(collector, config, **settings)
