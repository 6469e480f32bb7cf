"""What Envoy is told, message for message, by the modes that it sends."""

from collections.abc import AsyncIterator

import orjson
import pytest
from tests.admission.doors.carriage_rig import CarriageRig, carriage_rig

from surgetank.admission.doors.envoy import wire_pb2 as pb
from surgetank.admission.doors.envoy.messages import PIECE
from surgetank.admission.doors.envoy.processing import Stream
from surgetank.admission.doors.http.exchange import Pairs, TellLoad, tell_no_load
from surgetank.admission.doors.http.head import Head
from surgetank.telemetry.vocabulary import Outcome, Reason

MODES = pb.ProtocolConfiguration
BODY = orjson.dumps({"model": "m", "prompt": "hi", "stream": True, "max_tokens": 4})


@pytest.fixture
async def rig() -> AsyncIterator[CarriageRig]:
    async with carriage_rig() as rig:
        yield rig


class Played:
    """Envoy's side of one stream."""

    def __init__(
        self,
        rig: CarriageRig,
        request: int = MODES.BUFFERED,
        response: int = MODES.NONE,
        picks: bool = False,
        load: TellLoad = tell_no_load,
    ) -> None:
        self.stream = Stream(rig.carriage, "10.0.0.1", picks_endpoint=picks, load=load)
        self.modes = MODES(request_body_mode=request, response_body_mode=response)  # type: ignore[arg-type]

    def said(self) -> list[pb.ProcessingResponse]:
        box = self.stream.outbox
        return [box.get_nowait() for _ in range(box.qsize())]

    def kinds(self) -> list[str | None]:
        return [each.WhichOneof("response") for each in self.said()]

    async def headers(self, path: str = "/v1/completions", end: bool = False, **more: str) -> None:
        message = pb.ProcessingRequest(protocol_config=self.modes)
        message.request_headers.end_of_stream = end
        every = {":method": "POST", ":path": path, **more}
        for name, value in every.items():
            message.request_headers.headers.headers.add(
                key=name.replace("_", "-"), raw_value=value.encode()
            )
        await self.stream.take(message)

    async def body(self, data: bytes = BODY, end: bool = True) -> None:
        body = pb.HttpBody(body=data, end_of_stream=end)
        await self.stream.take(pb.ProcessingRequest(request_body=body))

    async def answer(self, status: int = 200, end: bool = False) -> None:
        message = pb.ProcessingRequest()
        message.response_headers.end_of_stream = end
        message.response_headers.headers.headers.add(key=":status", value=str(status))
        await self.stream.take(message)

    async def part(self, data: bytes, end: bool = False) -> None:
        body = pb.HttpBody(body=data, end_of_stream=end)
        await self.stream.take(pb.ProcessingRequest(response_body=body))

    async def trailers(self) -> None:
        await self.stream.take(pb.ProcessingRequest(response_trailers=pb.HttpTrailers()))


async def test_headers_body_answer_trailers(rig: CarriageRig) -> None:
    envoy = Played(rig)
    await envoy.headers(x_smg_priority="2", x_request_id="r-1", x_other="stays")
    assert envoy.kinds() == ["request_headers"]
    await envoy.body()
    (reply,) = envoy.said()
    change = reply.request_body.response.header_mutation
    assert list(change.remove_headers) == ["x-smg-priority"]
    assert [each.header.key for each in change.set_headers] == []
    assert not reply.request_body.response.HasField("body_mutation")
    await envoy.answer()
    await envoy.trailers()
    assert envoy.kinds() == ["response_headers", "response_trailers"]
    assert rig.ended() == [(Outcome.OK, Reason.NONE)]
    envoy.stream.close()
    assert len(rig.ended()) == 1


async def test_a_body_that_is_changed_has_its_new_length_in_the_headers(rig: CarriageRig) -> None:
    """Envoy answers 500 when they differ."""
    envoy = Played(rig)
    body = orjson.dumps({"model": "default", "prompt": "hi"})
    await envoy.headers(x_request_id="r-1", content_length=str(len(body)))
    await envoy.body(body)
    _, reply = envoy.said()
    common = reply.request_body.response
    told = {each.header.key: each.header.raw_value for each in common.header_mutation.set_headers}
    assert len(common.body_mutation.body) == len(body) - len("default") + len("m")
    assert told == {"content-length": b"%d" % len(common.body_mutation.body)}


async def test_an_alias_is_renamed_and_an_id_given(rig: CarriageRig) -> None:
    envoy = Played(rig, picks=True)
    await envoy.headers()
    await envoy.body(orjson.dumps({"model": "default", "prompt": "hi"}))
    _, reply = envoy.said()
    common = reply.request_body.response
    assert orjson.loads(common.body_mutation.body)["model"] == "m"
    told = {each.header.key: each.header.raw_value for each in common.header_mutation.set_headers}
    assert told["x-gateway-destination-endpoint"] == b"10.0.0.7:8000"
    assert len(told["x-request-id"]) == 32


async def test_a_refusal_is_an_answer_with_hints(rig: CarriageRig) -> None:
    open_streams = [Played(rig) for _ in range(3)]
    for envoy in open_streams:
        await envoy.headers()
        await envoy.body()
    assert open_streams[1].kinds() == ["request_headers"]  # it waits
    refusal = open_streams[2].said()[-1].immediate_response
    assert refusal.status.code == 429
    headers = {each.header.key: each.header.raw_value for each in refusal.headers.set_headers}
    assert headers["x-surgetank-reason"] == b"queue_requests"
    assert int(headers["retry-after-ms"]) >= 50
    assert orjson.loads(refusal.body)["error"]["code"] == "queue_requests"
    open_streams[0].stream.close()
    assert open_streams[1].kinds() == ["request_body"]
    open_streams[1].stream.close()
    assert rig.dispatched == 0


async def test_parts_are_counted_and_usage_is_read(rig: CarriageRig) -> None:
    envoy = Played(rig, response=MODES.STREAMED)
    await envoy.headers()
    await envoy.body()
    await envoy.answer()
    await envoy.part(b"data: {}\n\ndata: {}\n\n")
    usage = b'data: {"usage": {"prompt_tokens": 5, "completion_tokens": 7}}\n\n'
    await envoy.part(usage, end=True)
    ticket = rig.desk.recent()[0].ticket
    assert (ticket.prompt_tokens, ticket.output_tokens) == (1, 7)
    assert ticket.outcome is Outcome.OK


@pytest.mark.parametrize(
    ("response", "outcome"),
    [(MODES.NONE, Outcome.OK), (MODES.STREAMED, Outcome.CANCELLED)],
)
async def test_a_stream_that_closes_amid_the_answer(
    rig: CarriageRig, response: int, outcome: Outcome
) -> None:
    envoy = Played(rig, response=response)
    await envoy.headers()
    await envoy.body()
    await envoy.answer()
    assert rig.dispatched == 1
    envoy.stream.close()
    assert rig.dispatched == 0
    assert [each for each, _ in rig.ended()] == [outcome]


async def test_a_full_engines_answer_is_replaced(rig: CarriageRig) -> None:
    envoy = Played(rig)
    await envoy.headers()
    await envoy.body()
    envoy.said()
    await envoy.answer(503)
    (reply,) = envoy.said()
    assert reply.immediate_response.status.code == 429
    envoy.stream.close()
    assert rig.ended() == [(Outcome.OVERLOAD, Reason.ENGINE_FULL)]


async def test_an_engines_own_mistake_passes(rig: CarriageRig) -> None:
    envoy = Played(rig)
    await envoy.headers()
    await envoy.body()
    envoy.said()
    await envoy.answer(500, end=True)
    assert envoy.kinds() == ["response_headers"]
    assert rig.ended() == [(Outcome.INTERNAL, Reason.ENGINE_ERROR)]


async def test_bodies_stream_in_both_directions(rig: CarriageRig) -> None:
    envoy = Played(rig, MODES.FULL_DUPLEX_STREAMED, MODES.FULL_DUPLEX_STREAMED)
    long = orjson.dumps({"model": "m", "prompt": "hi", "user": "x" * 2 * PIECE})
    await envoy.headers()
    await envoy.body(long[:100], end=False)
    assert envoy.kinds() == []
    await envoy.body(long[100:])
    head, *rest = envoy.said()
    assert head.WhichOneof("response") == "request_headers"
    parts = [each.request_body.response.body_mutation.streamed_response for each in rest]
    assert b"".join(part.body for part in parts) == long
    assert [part.end_of_stream for part in parts] == [False, False, True]
    await envoy.answer()
    await envoy.part(b"abc", end=True)
    echo = envoy.said()[-1].response_body.response.body_mutation.streamed_response
    assert (echo.body, echo.end_of_stream) == (b"abc", True)
    assert rig.ended() == [(Outcome.OK, Reason.NONE)]


async def test_a_body_that_is_not_sent_is_sized_by_its_length(rig: CarriageRig) -> None:
    envoy = Played(rig, request=MODES.NONE)
    await envoy.headers(content_length="4000")
    assert envoy.kinds() == ["request_headers"]
    envoy.stream.close()
    assert rig.desk.recent()[0].ticket.prompt_tokens == 1000


async def test_what_is_not_for_the_gate_passes(rig: CarriageRig) -> None:
    envoy = Played(rig)
    await envoy.headers("/v1/models?x=1")
    await envoy.body(b"anything")
    await envoy.answer()
    await envoy.trailers()
    assert envoy.kinds() == [
        "request_headers",
        "request_body",
        "response_headers",
        "response_trailers",
    ]
    envoy.stream.close()
    assert rig.ended() == []


async def test_a_bad_body_is_refused(rig: CarriageRig) -> None:
    envoy = Played(rig)
    await envoy.headers(end=True)
    (reply,) = envoy.said()
    assert reply.immediate_response.status.code == 400
    assert rig.ended() == [(Outcome.INVALID, Reason.BAD_REQUEST)]


async def test_anthropics_path_is_refused_in_its_words_and_its_deltas_count(
    rig: CarriageRig,
) -> None:
    first, second, third = (Played(rig, response=MODES.STREAMED) for _ in range(3))
    for envoy in (first, second, third):
        await envoy.headers(path="/v1/messages")
        await envoy.body()
    refusal = third.said()[-1].immediate_response
    assert refusal.status.code == 529
    assert orjson.loads(refusal.body)["error"]["type"] == "overloaded_error"
    await first.answer()
    for event in (b"message_start", b"content_block_delta", b"content_block_delta"):
        await first.part(b'event: %b\ndata: {"type":"%b"}\n\n' % (event, event))
    await first.part(b"", end=True)
    assert rig.ended()[-1] == (Outcome.OK, Reason.NONE)
    assert rig.desk.recent()[-1].ticket.output_tokens == 2
    second.stream.close()


def told(head: Head) -> Pairs:
    return [("endpoint-load-metrics", head.header("endpoint-load-metrics-format") + " a=1")]


def headers_of(change: pb.HeaderMutation) -> dict[str, str]:
    return {each.header.key: each.header.raw_value.decode() for each in change.set_headers}


async def test_answers_and_refusals_tell_the_load_where_it_is_wanted(rig: CarriageRig) -> None:
    envoy = Played(rig, load=told)
    await envoy.headers(endpoint_load_metrics_format="TEXT")
    await envoy.body()
    await envoy.answer()
    change = envoy.said()[-1].response_headers.response.header_mutation
    assert headers_of(change) == {"endpoint-load-metrics": "TEXT a=1"}
    refused = Played(rig, load=told)
    await refused.headers()
    await refused.body(b"[1]")
    change = refused.said()[-1].immediate_response.headers
    assert headers_of(change)["endpoint-load-metrics"] == " a=1"
    other = Played(rig, load=told)
    await other.headers("/v1/models")
    await other.answer()
    assert not other.said()[-1].response_headers.HasField("response")
