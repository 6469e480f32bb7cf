"""The default model in a busy engine: each greedy output is the one its prompt gets alone."""

import random

import pytest
import torch
from tests.engine.model.driver import Driver
from tests.engine.tiny_engine import Client, greedy
from tokenizers import Tokenizer

from surgetank.engine.api import SamplingParams
from surgetank.engine.build import assemble
from surgetank.engine.config import EngineConfig
from surgetank.engine.model.load import LoadedModel, load
from surgetank.engine.model.locate import resolve
from surgetank.telemetry.clock import ManualClock

pytestmark = [pytest.mark.model, pytest.mark.slow]

LENGTHS = (1, 2, 7, 16, 17, 33, 64, 90, 130, 200)
TEXT = "The pressure in the pipe rose, and the water climbed into the tank. " * 16


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load(resolve(None), torch.device("cpu"), torch.float32)


@pytest.mark.parametrize("kv_blocks", [400, 60])  # plenty; so few that sequences are preempted
def test_joins_leaves_cancels_and_preemption_change_no_output(
    loaded: LoadedModel, kv_blocks: int
) -> None:
    rng = random.Random(kv_blocks)
    ids = Tokenizer.from_str(loaded.tokenizer.tokenizer_json).encode(TEXT).ids
    prompts = [ids[length : 2 * length] for length in LENGTHS]
    settings = EngineConfig(kv_blocks=kv_blocks, max_num_seqs=12, max_batch_tokens=96, kv_spare=0)
    client = Client(assemble(settings, loaded, ManualClock()).loop)
    kept, passing = [], []
    for prompt in prompts:
        kept.append(client.submit(prompt, greedy(64)))
        noise = SamplingParams(max_tokens=rng.randint(1, 30), seed=1, top_p=0.9, ignore_eos=True)
        passing.append(client.submit(ids[: rng.randint(1, 150)], noise, n=rng.choice([1, 2])))
        for _ in range(rng.randint(0, 6)):
            client.step()
        client.cancel(rng.choice(passing))
    client.run()
    preempted = sum(record.preempted_recompute for record in client.records)
    assert (preempted > 0) == (kv_blocks == 60)
    driver = Driver(loaded.model, num_blocks=400)
    for request_id, prompt in zip(kept, prompts):
        assert client.outputs[request_id, 0] == driver.greedy([prompt], 64)[0]
    assert client.loop.faults() == []
