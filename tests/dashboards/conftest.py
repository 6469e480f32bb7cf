"""The monitoring files, built once for the whole folder of tests."""

from pathlib import Path

import pytest

from surgetank.dashboards.build import build


@pytest.fixture(scope="session")
def monitoring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that `dashboards build` writes."""
    folder = tmp_path_factory.mktemp("monitoring")
    build(folder)
    return folder


@pytest.fixture(scope="session")
def rules(monitoring: Path) -> Path:
    """The folder of rule files."""
    return monitoring / "prometheus" / "rules"
