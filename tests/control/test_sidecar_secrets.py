"""Where a running sidecar's keys, grants and ids come from."""

import random

import pytest

from surgetank.control import sidecar
from surgetank.control.config import Config
from surgetank.telemetry.clock import Clock


class Made(Exception):
    """A sidecar would have been made, with this for its randomness."""

    def __init__(self, config: Config, clock: Clock, rng: random.Random) -> None:
        self.rng = rng
        raise self


async def test_what_clients_see_does_not_give_the_secrets_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sidecar, "Sidecar", Made)
    with pytest.raises(Made) as made:
        await sidecar._serve(Config())
    assert isinstance(made.value.rng, random.SystemRandom)
