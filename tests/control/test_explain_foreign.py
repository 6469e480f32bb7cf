"""explain before an engine of another maker: what its usage told, and what is only estimated."""

from collections.abc import AsyncIterator

import pytest
from tests.admission.doors.http.relay_rig import Relayed, relaying
from tests.engine.backends.remote.rig import END, EVENT, HEAD

from surgetank.admission.limits import Limit
from surgetank.control.cli.explain import _facts
from surgetank.control.explain import ExplainOut, Known, explain

WORDS = [{"role": "user", "content": "x" * 40}]
USAGE = (
    b'data: {"usage":{"prompt_tokens":12,"completion_tokens":3,'
    b'"prompt_tokens_details":{"cached_tokens":8}}}\n\n'
)


@pytest.fixture
async def relayed() -> AsyncIterator[Relayed]:
    async with relaying() as relayed:
        yield relayed


def told(relayed: Relayed) -> ExplainOut:
    return explain(
        "r1",
        live=relayed.desk.peek.live(),
        ended=relayed.desk.recent(),
        what_if=relayed.desk.peek.what_if,
        now=relayed.clock.monotonic(),
    )


def lines(answer: ExplainOut) -> dict[str, str]:
    """What a reader sees of it."""
    return dict(_facts(answer.model_dump()))


async def test_a_streams_usage_replaces_what_was_estimated_and_counted(relayed: Relayed) -> None:
    client = await relayed.ask(
        headers="x-request-id: r1\r\n", stream=True, messages=WORDS, max_tokens=9
    )
    engine = await relayed.engine.peer()
    await engine.request()
    await engine.say(HEAD + EVENT * 2)
    await client.reader.readuntil(EVENT * 2)
    while told(relayed).output_tokens < 2:
        await relayed.settle()
    running = told(relayed)
    assert (running.prompt_known, running.output_known) == (Known.ESTIMATED, Known.EVENTS)
    assert (running.prompt_tokens, running.output_tokens) == (10, 2)
    assert running.cached_tokens is None
    seen = lines(running)
    assert seen["prompt"] == "10 tokens, estimated"
    assert seen["output"] == "2 of at most 9 tokens, counted by its events"
    await engine.say(b"%x\r\n%b\r\n" % (len(USAGE), USAGE) + END)
    await relayed.ended()
    served = told(relayed)
    assert (served.prompt_known, served.output_known) == (Known.TOLD, Known.TOLD)
    assert (served.prompt_tokens, served.estimated_prompt) == (12, 10)
    assert (served.output_tokens, served.cached_tokens) == (3, 8)
    seen = lines(served)
    assert seen["prompt"] == "12 tokens, by the engine's usage, estimated 10 before, 8 cached"
    assert seen["output"] == "3 of at most 9 tokens, by the engine's usage"
    assert seen["expected"].startswith("9 tokens of output, ")


async def test_without_a_usage_it_stays_a_count_and_an_estimate(relayed: Relayed) -> None:
    await relayed.ask(headers="x-request-id: r1\r\n", stream=True, messages=WORDS)
    engine = await relayed.engine.peer()
    await engine.request()
    await engine.say(HEAD + EVENT * 2 + END)
    await relayed.ended()
    served = told(relayed)
    assert served.state == "served"
    assert (served.prompt_known, served.output_known) == (Known.ESTIMATED, Known.EVENTS)
    assert served.output_tokens == 2


async def test_token_ids_are_no_estimate(relayed: Relayed) -> None:
    await relayed.ask(headers="x-request-id: r1\r\n", prompt=[1, 2, 3])
    await (await relayed.engine.peer()).request()
    assert (told(relayed).prompt_known, told(relayed).prompt_tokens) == (Known.EXACT, 3)


async def test_a_refused_one_was_estimated(relayed: Relayed) -> None:
    relayed.desk.limits.set_base(Limit.MAX_OUTPUT_TOKENS, 4, "test")
    client = await relayed.ask(headers="x-request-id: r1\r\n", messages=WORDS, max_tokens=9)
    assert (await client.response())[0] == 400
    assert (told(relayed).state, told(relayed).prompt_known) == ("refused", Known.ESTIMATED)
