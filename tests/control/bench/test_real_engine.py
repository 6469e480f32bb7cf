"""The benchmarks around the real engine, on the smallest batches: over the link, and without it."""

import random
from pathlib import Path

import pytest

from surgetank.control.bench.inside_engine import (
    built_engine,
    config_of,
    decode_steps,
    loaded_model,
)
from surgetank.control.bench.linked import Linked
from surgetank.control.bench.schedules import TRACE, calls_of, play
from surgetank.control.bench.startlist import Course
from surgetank.control.bench.workload import STAGES, prompts
from surgetank.engine.build import assemble
from surgetank.engine.config import EngineConfig
from surgetank.telemetry.clock import SystemClock

pytestmark = [pytest.mark.slow, pytest.mark.model]


@pytest.mark.e2e
def test_a_batch_over_the_link_is_counted_to_its_last_token(tmp_path: Path) -> None:
    course = Course("default", "float32", 1, sequences=4, tokens=64, folder=tmp_path)
    engine = Linked("ours", course.settings, course.env)
    try:
        assert engine.version.startswith("surgetank ")
        for output in (5, 3):
            sample = engine.ask(prompts(3, 8, random.Random(output), 49_152), output)
            assert sample.decoded == 3 * (output - 1)
            assert 0 < sample.stages["forward"] <= sample.decode
            assert set(sample.stages) == set(STAGES)
    finally:
        engine.close()


def test_full_decode_steps_and_a_played_slice() -> None:
    built = built_engine(config_of("default", "float32", 3, 8), 1, SystemClock())
    outputs = list(decode_steps(built, prompts(3, 8, random.Random(1), 49_152), 4))
    assert [each.record.decode_tokens for each in outputs if each.record] == [3, 3, 3, 3]
    assert not built.loop.busy
    loaded = loaded_model("default", "float32", 1)
    loop = assemble(EngineConfig(policy="priority", max_num_seqs=2), loaded, SystemClock()).loop
    calls, _ = calls_of(TRACE, 3, 49_152, seed=1)
    served = play(loop, calls)
    assert sorted(each.tokens for each in served) == [10, 11, 35]
    assert all(each.at < each.first <= each.done for each in served)
