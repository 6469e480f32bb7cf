"""The connection: one answer a question, in time, and never another one's."""

import asyncio

import pytest
from tests.admission.leases.redis_rig import Line, RedisServer

from surgetank.admission.leases.link import Link, LinkError, Script

ECHO = Script("return ARGV[1]")


async def test_a_script_is_sent_once(line: Line, server: RedisServer) -> None:
    link = Link(line.url, 0.5)
    assert [await link.run(ECHO, [], [word]) for word in "abc"] == [b"a", b"b", b"c"]
    assert (server.calls("eval"), server.calls("evalsha")) == (1, 3)
    await link.close()


async def test_a_cancelled_question_leaves_no_answer_for_the_next(line: Line) -> None:
    link = Link(line.url, 5.0)
    await link.run(ECHO, [], ["warm"])
    for round_ in range(5):
        line.freeze()
        asking = asyncio.create_task(link.run(ECHO, [], [f"old {round_}"]))
        await asyncio.sleep(0.01)  # it is on its way
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        line.thaw()
        assert await link.run(ECHO, [], [f"new {round_}"]) == f"new {round_}".encode()
    await link.close()


async def test_a_late_answer_is_not_the_next_ones(line: Line) -> None:
    link = Link(line.url, 0.05)
    await link.run(ECHO, [], ["warm"])
    line.freeze()
    with pytest.raises(LinkError, match="TimeoutError"):
        await link.run(ECHO, [], ["old"])
    line.thaw()
    link._timeout = 0.5
    assert await link.run(ECHO, [], ["new"]) == b"new"
    await link.close()


async def test_questions_at_the_same_time_take_turns(line: Line) -> None:
    link = Link(line.url, 0.5)
    answers = await asyncio.gather(*(link.run(ECHO, [], [n]) for n in range(20)))
    assert answers == [str(n).encode() for n in range(20)]
    await link.close()


async def test_a_cut_connection_is_made_anew(line: Line) -> None:
    link = Link(line.url, 0.5)
    await link.run(ECHO, [], ["warm"])
    line.cut()
    with pytest.raises(LinkError):
        await link.run(ECHO, [], ["lost"])
    assert await link.run(ECHO, [], ["back"]) == b"back"
    await link.close()


async def test_a_scripts_own_error_is_said(line: Line) -> None:
    link = Link(line.url, 0.5)
    with pytest.raises(LinkError, match="wrong"):
        await link.run(Script("return redis.error_reply('wrong')"), [], [])
    await link.close()


async def test_nobody_there(line: Line) -> None:
    await line.close()
    with pytest.raises(LinkError):
        await Link(line.url, 0.1).run(ECHO, [], [])


def test_an_address_that_is_none() -> None:
    with pytest.raises(ValueError, match="scheme"):
        Link("http://here", 0.02)
