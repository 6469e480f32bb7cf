"""Torch's threads in tests: one for tiny models, and none that spin while another has the core."""

import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("GOMP_SPINCOUNT", "2000")  # as the engine process does

import torch


@pytest.fixture(autouse=True)
def _one_thread(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.node.get_closest_marker("model"):
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
