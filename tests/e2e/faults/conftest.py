"""The product that faults are done to: one for each file of tests."""

from collections.abc import Iterator

import pytest
from tests.admission.leases.redis_rig import RedisServer
from tests.e2e.faults.plant import Plant, watched
from tests.e2e.faults.small_model import write_small_model
from tests.e2e.faults.traffic import Crowd, Habits
from tests.e2e.running import Running

# Room for 32 short answers at once, and for seven of the longest.
KV_BLOCKS = 1024


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plant]:
    """Engine and sidecar with a model whose steps take a millisecond or two, and Prometheus."""
    folder = tmp_path_factory.mktemp("plant")
    redis = RedisServer(folder)
    redis.start()
    settings = {
        "engine.model": write_small_model(folder),
        "engine.kv_blocks": KV_BLOCKS,
        "leases.url": f"unix://{redis.path}",
    }
    try:
        with Running(
            folder, *(f"--set={key}={value}" for key, value in settings.items())
        ) as product:
            product.wait_for("ready")
            with watched(product, folder / "prometheus") as prometheus:
                yield Plant(product, prometheus, redis)
    finally:
        redis.kill()


@pytest.fixture(scope="module")
def guests(plant: Plant) -> Iterator[Crowd]:
    """A few clients with good manners, all the time."""
    with Crowd(plant.product.http, 3, Habits(pause=0.1)) as crowd:
        yield crowd
