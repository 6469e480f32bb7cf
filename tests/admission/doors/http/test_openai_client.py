"""The real `openai` package against the door: what it asks for and what it makes of the answers."""

from collections.abc import AsyncIterator, Callable

import openai
import pytest
from openai.types.chat import ChatCompletionChunk, ChatCompletionUserMessageParam
from tests.fakes import FakeDesk
from tests.fakes_http import Door, OpenDoor

from surgetank.admission.outcome import Refusal
from surgetank.telemetry.vocabulary import FinishReason, Outcome, Reason

HELLO = [ChatCompletionUserMessageParam(role="user", content="hi")]
Connect = Callable[..., openai.AsyncOpenAI]


def desk_saying(text: str) -> FakeDesk:
    desk = FakeDesk()
    desk.script = desk.served.codec.encode(text)
    return desk


async def collect(stream: openai.AsyncStream[ChatCompletionChunk], texts: list[str]) -> None:
    """Append each chunk's text as it comes."""
    async for chunk in stream:
        texts.append(chunk.choices[0].delta.content or "")


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clients: list[openai.AsyncOpenAI] = []

    def start(door: Door, max_retries: int = 0) -> openai.AsyncOpenAI:
        url = f"{door.url}/v1"
        clients.append(openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=max_retries))
        return clients[-1]

    yield start
    for client in clients:
        await client.close()


async def test_models_are_listed_and_found(open_door: OpenDoor, connect: Connect) -> None:
    client = connect(await open_door())
    assert [model.id async for model in client.models.list()] == ["tiny", "default"]
    assert (await client.models.retrieve("default")).id == "default"
    with pytest.raises(openai.NotFoundError) as caught:
        await client.models.retrieve("no/such")
    assert caught.value.code == "model_not_found"


async def test_chat_in_one_piece(open_door: OpenDoor, connect: Connect) -> None:
    door = await open_door(desk_saying("héllo wörld"))
    answer = await connect(door).chat.completions.create(
        model="default", messages=HELLO, max_completion_tokens=100, n=2, seed=7, temperature=0
    )
    assert [choice.message.content for choice in answer.choices] == ["héllo wörld"] * 2
    assert [choice.finish_reason for choice in answer.choices] == ["stop", "stop"]
    call = door.desk.calls[0]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(call.ask.prompt)
    assert answer.usage.completion_tokens == 2 * len(door.desk.script or ())
    assert answer.model == "tiny"
    assert answer.id == f"chatcmpl-{call.ticket.id}"
    assert (call.ask.sampling.max_tokens, call.ask.sampling.seed) == (100, 7)


async def test_chat_streamed_with_usage(open_door: OpenDoor, connect: Connect) -> None:
    door = await open_door(desk_saying("one 世 two"))
    stream = await connect(door).chat.completions.create(
        model="tiny", messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == "one 世 two"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[1].choices[0].delta.role is None
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-2].usage is None
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens == len(door.desk.script or ())
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 0
    assert door.desk.calls[0].ticket.stream


async def test_completions_whole_and_streamed(open_door: OpenDoor, connect: Connect) -> None:
    door = await open_door(desk_saying("abcdef"))
    client = connect(door)
    answer = await client.completions.create(model="tiny", prompt=[[1, 2, 3]], max_tokens=4)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("abcd", "length")
    assert door.desk.calls[0].ask.prompt == [1, 2, 3]
    stream = await client.completions.create(model="tiny", prompt="x", n=2, stop="c", stream=True)
    texts = ["", ""]
    async for chunk in stream:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == ["ab", "ab"]


async def test_chat_logprobs_whole_and_streamed(open_door: OpenDoor, connect: Connect) -> None:
    client = connect(await open_door(desk_saying("aé")))
    answer = await client.chat.completions.create(
        model="tiny", messages=HELLO, logprobs=True, top_logprobs=2
    )
    found = answer.choices[0].logprobs
    assert found is not None
    assert found.content is not None
    assert bytes(b for token in found.content for b in token.bytes or ()) == "aé".encode()
    assert [top.logprob for top in found.content[0].top_logprobs] == [-0.5, -1.5]
    stream = await client.chat.completions.create(
        model="tiny", messages=HELLO, logprobs=True, stream=True
    )
    lists = [c.choices[0].logprobs async for c in stream]
    tokens = [token for each in lists if each and each.content for token in each.content]
    assert (tokens[0].token, tokens[0].top_logprobs) == ("a", [])
    assert len(tokens) == 3  # also the token that completes no character


async def test_completion_logprobs_have_offsets(open_door: OpenDoor, connect: Connect) -> None:
    client = connect(await open_door(desk_saying("hello")))
    answer = await client.completions.create(model="tiny", prompt="x", logprobs=1)
    found = answer.choices[0].logprobs
    assert found is not None
    assert found.tokens == ["he", "ll", "o"]
    assert found.text_offset == [0, 2, 4]
    assert found.top_logprobs == [{"he": -0.5}, {"ll": -0.5}, {"o": -0.5}]


@pytest.mark.parametrize(
    ("outcome", "reason", "error", "status"),
    [
        (Outcome.INVALID, Reason.NEVER_FITS_CONTEXT, openai.BadRequestError, 400),
        (Outcome.UNAUTHENTICATED, Reason.BAD_REQUEST, openai.AuthenticationError, 401),
        (Outcome.DENIED, Reason.BAD_REQUEST, openai.PermissionDeniedError, 403),
        (Outcome.QUOTA, Reason.TENANT_QUOTA, openai.RateLimitError, 429),
        (Outcome.OVERLOAD, Reason.QUEUE_REQUESTS, openai.RateLimitError, 429),
        (Outcome.DRAINING, Reason.OPERATOR, openai.InternalServerError, 503),
        (Outcome.INFEASIBLE, Reason.DEADLINE_ON_ARRIVAL, openai.InternalServerError, 504),
    ],
)
async def test_refusals_raise_the_class_of_their_status(
    open_door: OpenDoor,
    connect: Connect,
    outcome: Outcome,
    reason: Reason,
    error: type[openai.APIStatusError],
    status: int,
) -> None:
    door = await open_door()
    door.desk.refuse_submit = Refusal(outcome, reason, "no room", 12.0, 10.0, "queue")
    with pytest.raises(error) as caught:
        await connect(door).chat.completions.create(model="tiny", messages=HELLO)
    assert caught.value.status_code == status
    assert caught.value.request_id == door.desk.tickets[0].id
    assert caught.value.response.headers["x-surgetank-reason"] == reason
    body = caught.value.body
    assert isinstance(body, dict)
    assert (body["message"], body["measured"], body["limit"]) == ("no room", 12.0, 10.0)
    assert (body["limit_name"], body["reason"]) == ("queue", reason)


async def test_a_retry_follows_when_the_hint_says_so(open_door: OpenDoor, connect: Connect) -> None:
    door = await open_door()
    door.desk.refuse_find = Refusal(Outcome.BACKEND_DOWN, Reason.ENGINE_LOST, "down")
    door.desk.hint = 0.05
    with pytest.raises(openai.InternalServerError) as caught:
        await connect(door, max_retries=2).chat.completions.create(model="tiny", messages=HELLO)
    assert caught.value.response.headers["retry-after-ms"] == "50"
    assert caught.value.response.headers["retry-after"] == "1"
    counts = [dict(headers)["x-stainless-retry-count"] for headers in door.desk.headers]
    assert counts == ["0", "1", "2"]


async def test_no_retry_follows_when_the_hint_says_so(
    open_door: OpenDoor, connect: Connect
) -> None:
    door = await open_door()
    door.desk.refuse_find = Refusal(Outcome.RETRY_BUDGET, Reason.RETRY_BUDGET, "spent")
    with pytest.raises(openai.RateLimitError):
        await connect(door, max_retries=2).chat.completions.create(model="tiny", messages=HELLO)
    assert len(door.desk.tickets) == 1


async def test_an_error_amid_a_stream_raises_and_is_not_retried(
    open_door: OpenDoor, connect: Connect
) -> None:
    door = await open_door()
    client = connect(door, max_retries=2)

    def play() -> None:
        if door.desk.calls and door.desk.calls[0].ended is None:
            call = door.desk.calls[0]
            door.server_loop.call_soon(call.emit, call.served.codec.encode("ab"))
            refusal = Refusal(Outcome.DEADLINE, Reason.DEADLINE_IN_DECODE, "too late")
            door.server_loop.call_soon(call.end, refusal)

    door.desk.on_event = play
    stream = await client.chat.completions.create(model="tiny", messages=HELLO, stream=True)
    texts: list[str] = []
    with pytest.raises(openai.APIError, match="too late"):
        await collect(stream, texts)
    assert texts == ["ab"]
    assert len(door.desk.tickets) == 1


async def test_a_refusal_before_the_first_token_keeps_its_status(
    open_door: OpenDoor, connect: Connect
) -> None:
    door = await open_door()

    def play() -> None:
        if door.desk.calls and door.desk.calls[0].ended is None:
            refusal = Refusal(Outcome.EXPIRED, Reason.DEADLINE_IN_QUEUE, "late", retry_after=None)
            door.server_loop.call_soon(door.desk.calls[0].end, refusal)

    door.desk.on_event = play
    with pytest.raises(openai.InternalServerError) as caught:
        await connect(door).chat.completions.create(model="tiny", messages=HELLO, stream=True)
    assert caught.value.status_code == 503


async def test_the_finish_of_a_stream_without_text_arrives(
    open_door: OpenDoor, connect: Connect
) -> None:
    door = await open_door()

    def play() -> None:
        if door.desk.calls and door.desk.calls[0].ended is None:
            call = door.desk.calls[0]
            door.server_loop.call_soon(call.emit, [], 0, FinishReason.STOP)
            door.server_loop.call_soon(call.end)

    door.desk.on_event = play
    stream = await connect(door).chat.completions.create(model="tiny", messages=HELLO, stream=True)
    chunks = [chunk async for chunk in stream]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == ["stop"]


async def test_a_body_of_ten_megabytes_is_answered_not_reset(
    open_door: OpenDoor, connect: Connect
) -> None:
    door = await open_door()
    with pytest.raises(openai.APIStatusError) as caught:
        await connect(door).completions.create(model="tiny", prompt="x" * 10_000_000)
    assert caught.value.status_code == 413
    assert [ticket.reason for ticket in door.desk.tickets] == [Reason.BODY_TOO_LARGE]
