"""The engine says of each output how much of what it was sent it had heard before."""

import random

import pytest
from tests.engine.tiny_engine import greedy, prompt_of, tiny_loop

from surgetank.engine.api import Commands, GenerateRequest, Settings
from surgetank.engine.backends.books import Books
from surgetank.engine.report import Times


@pytest.mark.parametrize("seed", range(3))
def test_its_count_is_what_the_books_say_at_every_step(seed: int) -> None:
    """With several choices, cancels, refusals, preemptions and a pool that becomes too small."""
    rng, books, loop = random.Random(seed), Books(), tiny_loop(kv_blocks=24)
    drifts = []
    for step in range(300):
        submit = [
            GenerateRequest(
                request_id=10 * step + each,
                prompt=prompt_of(rng.randint(1, 40), step),
                sampling=greedy(rng.choice([3, 12, 900])),  # the last is refused
                n=rng.randint(1, 3),
            )
            for each in range(rng.choice([0, 0, 1, 2]))
        ]
        cancel = [(10 * rng.randint(0, step), rng.choice([-1, 0, 1]))]
        share = Settings(kv_watermark=rng.choice([0.3, 1.0])) if step % 50 == 0 else None
        message = Commands(submit, cancel, share)
        books.sent(message)
        loop.take(message)
        if step % 3 == 0 and (output := loop.step(Times())) is not None:
            books.told(output)
            drifts += [books.drift] if output.record else []
    assert len(drifts) > 60
    assert set(drifts) == {0}


def test_a_new_sidecar_is_counted_from_its_first_message() -> None:
    loop = tiny_loop()
    loop.take(Commands(settings=Settings(max_num_seqs=4)))
    loop.take(Commands([GenerateRequest(request_id=1, prompt=[5], sampling=greedy(9))]))
    first = loop.step(Times())
    assert first is not None
    assert first.heard == 2
    assert loop.abandon() == 1
    loop.take(Commands([GenerateRequest(request_id=1, prompt=[5], sampling=greedy(9))]))
    second = loop.step(Times())
    assert second is not None
    assert second.heard == 1
