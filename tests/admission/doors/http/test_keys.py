"""API keys at the HTTP door: OpenAI's error, before the body is read; health and metrics stay."""

import openai
import pytest
from tests.fakes_http import OpenDoor

from surgetank.admission.refusals import barred

WHY = "the API key is not known here"
HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


async def test_the_openai_client_is_told_that_its_key_is_wrong(open_door: OpenDoor) -> None:
    door = await open_door()
    door.desk.bar = barred(WHY)
    async with openai.AsyncOpenAI(base_url=f"{door.url}/v1", api_key="wrong") as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            await client.completions.create(model="tiny", prompt="hi")
        assert caught.value.code == "invalid_api_key"
        assert caught.value.type == "authentication_error"
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()
    (ended,) = door.desk.refused  # asked once: a retry would not help
    assert ended[1].outcome == "unauthenticated"


async def test_nothing_of_the_body_is_waited_for(open_door: OpenDoor) -> None:
    door = await open_door()
    door.desk.bar = barred(WHY)
    status, headers, _ = await door.exchange(HEAD + b"content-length: 8000000\r\n\r\n")
    assert (status, headers["www-authenticate"]) == (401, "bearer")
    assert headers["x-should-retry"] == "false"
    assert "retry-after" not in headers


async def test_health_and_metrics_ask_for_no_key(open_door: OpenDoor) -> None:
    door = await open_door()
    door.desk.bar = barred(WHY)
    for path in (b"/health", b"/health/live", b"/metrics"):
        status, _, _ = await door.exchange(b"GET " + path + b" HTTP/1.1\r\nhost: x\r\n\r\n")
        assert status == 200, path


async def test_the_desk_hears_who_is_at_the_other_end(open_door: OpenDoor) -> None:
    door = await open_door()
    await door.exchange(HEAD + b"content-length: 2\r\n\r\n{}")
    assert door.desk.peers == ["127.0.0.1"]
