"""A real `surgetank run` on ephemeral ports, one for the whole session."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.running import Running


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Engine and sidecar with the default model, ready; tests may kill the engine."""
    with Running(tmp_path_factory.mktemp("run")) as running:
        running.wait_for("ready")
        yield running


@pytest.fixture
def own_service(tmp_path: Path) -> Iterator[Running]:
    """One that the test may end."""
    with Running(tmp_path) as running:
        running.wait_for("ready")
        yield running
