"""One HTTP request in Envoy, as its external processing stream tells of it.

    headers -> go on | body -> (the gate, the queue) -> go on, or an answer of ours
    answer's headers -> its parts, if Envoy sends them -> the last part or trailers: it is over
    stream closed before that: its client is gone

Either way the slot comes back then. Of an answer whose parts are not sent Envoy tells trailers only
where there are some, and closes the stream at the end of any: it cannot be told from a client that
left in the middle, and counts as served.

Source: Envoy's external_processor.proto and ext_proc.proto, v1.40.
"""

import asyncio
from typing import Any
from urllib.parse import urlsplit

from surgetank.admission.doors.carried import BlindOrder, Carriage, Carried, Order
from surgetank.admission.doors.envoy import wire_pb2 as pb
from surgetank.admission.doors.envoy.messages import (
    immediate,
    mutation,
    pieces,
    read_headers,
    set_headers,
)
from surgetank.admission.doors.http.exchange import TellLoad, tell_no_load
from surgetank.admission.doors.http.head import Head
from surgetank.admission.doors.http.relay_body import KINDS
from surgetank.admission.doors.http.relay_routes import read_order
from surgetank.admission.outcome import Refusal, Refused
from surgetank.engine.backends.remote.api import Forward
from surgetank.engine.backends.remote.framing import EventCount
from surgetank.engine.backends.remote.usage import Tail

LONG = 8192  # bytes; a longer body is read in a thread
_LENGTH = "content-length"
DESTINATION = "x-gateway-destination-endpoint"
_Modes = pb.ProtocolConfiguration
_WHOLE = frozenset({_Modes.BUFFERED, _Modes.FULL_DUPLEX_STREAMED})


class Stream:
    """Implements carried.CarrierDoor. Feed it with take(); what it has to say is in `outbox`."""

    def __init__(
        self,
        carriage: Carriage,
        peer: str,
        *,
        picks_endpoint: bool,
        load: TellLoad = tell_no_load,
    ) -> None:
        self.outbox: asyncio.Queue[pb.ProcessingResponse] = asyncio.Queue()
        self._carriage = carriage
        self._peer = peer
        self._picks_endpoint = picks_endpoint
        self._load = load
        self._modes = pb.ProtocolConfiguration()
        self._head = Head("", "", [], http_1_0=False, keep_alive=True)
        self._carried: Carried | None = None  # None: not for the gate
        self._body = bytearray()
        self._asked = False
        self._trailers = False  # those of the request wait for the gate
        self._answered = False
        self._refusal: Refusal | None = None
        self._events = EventCount()
        self._tail = Tail()

    async def take(self, message: pb.ProcessingRequest) -> None:
        """Envoy's next message."""
        if message.HasField("protocol_config"):
            self._modes = message.protocol_config
        match message.WhichOneof("request"):
            case "request_headers":
                await self._on_headers(message.request_headers)
            case "request_body":
                await self._on_body(message.request_body)
            case "request_trailers":
                await self._on_trailers()
            case "response_headers":
                self._on_answer(message.response_headers)
            case "response_body":
                self._on_part(message.response_body)
            case "response_trailers":
                self._say(response_trailers=pb.TrailersResponse())
                self._done()

    def close(self) -> None:
        """The stream is over, and the request with it."""
        if self._answered and not self._sees_parts:
            self._done()
        if self._carried is not None:
            self._carried.abandon()

    # carried.CarrierDoor

    def on_go(self, url: str, request: Forward) -> None:
        duplex = self._modes.request_body_mode == _Modes.FULL_DUPLEX_STREAMED
        extra = [(DESTINATION, urlsplit(url).netloc)] if self._picks_endpoint else []
        change = mutation(self._head.headers, request.headers, extra)
        if self._blind or duplex:
            common = pb.CommonResponse(header_mutation=change)
            self._say(request_headers=pb.HeadersResponse(response=common))
        if duplex:
            for piece in pieces(request.body):
                self._say(request_body=pb.BodyResponse(response=piece))
            if self._trailers:
                self._say(request_trailers=pb.TrailersResponse())
        elif not self._blind:
            common = pb.CommonResponse(header_mutation=change)
            if request.body != self._body:
                common.body_mutation.body = request.body
                if self._head.header(_LENGTH):  # Envoy holds the new body to it
                    length = set_headers([(_LENGTH, str(len(request.body)))])
                    common.header_mutation.MergeFrom(length)
            self._say(request_body=pb.BodyResponse(response=common))
        self._body.clear()

    def on_over(self, refusal: Refusal | None) -> None:
        self._refusal = refusal
        if refusal is not None and self._carried is not None and not self._carried.gone:
            self._refuse(refusal, self._carried)

    # The request.

    @property
    def _blind(self) -> bool:
        """Envoy keeps the body to itself."""
        return self._modes.request_body_mode not in _WHOLE

    async def _on_headers(self, message: pb.HttpHeaders) -> None:
        every = read_headers(message.headers)
        pseudo = {name: value for name, value in every if name.startswith(":")}
        plain = [(name, value) for name, value in every if not name.startswith(":")]
        path = pseudo.get(":path", "").partition("?")[0]
        self._head = Head(pseudo.get(":method", ""), path, plain, http_1_0=False, keep_alive=True)
        self._events = EventCount(path)
        if self._head.method != "POST" or path not in KINDS:
            self._say(request_headers=pb.HeadersResponse())
            return
        # Set before the desk may call back.
        self._carried = carried = Carried(
            self._carriage,
            self,
            "envoy",
            plain,
            self._peer,
            path,
            sees_parts=self._sees_parts,
        )
        if carried.ticket.barred is not None:
            carried.refuse(carried.ticket.barred)
        elif self._blind:
            self._ask(self._unseen(carried))
        elif message.end_of_stream:
            await self._ask_whole()
        elif self._modes.request_body_mode == _Modes.BUFFERED:
            self._say(request_headers=pb.HeadersResponse())

    async def _on_body(self, message: pb.HttpBody) -> None:
        if self._carried is None or self._blind:
            self._pass_on(message)
            return
        self._body += message.body
        if message.end_of_stream or self._modes.request_body_mode == _Modes.BUFFERED:
            await self._ask_whole()

    def _pass_on(self, message: pb.HttpBody) -> None:
        """A body that is none of the gate's business."""
        if self._modes.request_body_mode != _Modes.FULL_DUPLEX_STREAMED:
            self._say(request_body=pb.BodyResponse())
            return
        self._say(request_body=pb.BodyResponse(response=_echo(message)))

    async def _on_trailers(self) -> None:
        duplex = self._modes.request_body_mode == _Modes.FULL_DUPLEX_STREAMED
        self._trailers = duplex and self._carried is not None and not self._asked
        if self._trailers:
            await self._ask_whole()
        else:
            self._say(request_trailers=pb.TrailersResponse())

    async def _ask_whole(self) -> None:
        """The body is complete."""
        carried, body, carriage = self._carried, bytes(self._body), self._carriage
        if carried is None or self._asked:
            return
        self._asked = True
        facts = (self._head, body, carried.ticket.id, carriage.sizes, carriage.assumed_tokens)
        try:
            if len(body) > LONG:
                order = await asyncio.to_thread(read_order, *facts)
            else:
                order = read_order(*facts)
        except Refused as refused:
            carried.refuse(refused.refusal)
        except Exception:
            carried.fail()
        else:
            self._ask(order)

    def _unseen(self, carried: Carried) -> BlindOrder:
        """By the length of its body at least, all of it taken for prompt."""
        length = self._head.header(_LENGTH)
        size = int(length) if length.isdecimal() else 0
        carriage = self._carriage
        return BlindOrder(
            path=self._head.path,
            request_id=carried.ticket.id,
            prompt_tokens=carriage.sizes.tokens(size),
            max_tokens=carriage.assumed_tokens,
        )

    def _ask(self, order: Order) -> None:
        self._asked = True
        if self._carried is not None:
            self._carried.ask(order)

    # Its answer.

    def _on_answer(self, message: pb.HttpHeaders) -> None:
        status = dict(read_headers(message.headers)).get(":status", "")
        carried, self._answered = self._carried, True
        if carried is not None:
            carried.answered(int(status) if status.isdecimal() else 0)
        if carried is not None and self._refusal is not None:
            self._refuse(self._refusal, carried)
            return
        self._say(response_headers=self._head_goes_on())
        if message.end_of_stream:
            self._done()
        elif carried is not None and carried.ticket.stream and not self._sees_parts:
            carried.spoke(1)  # the only sign of life that there will be

    def _head_goes_on(self) -> pb.HeadersResponse:
        load = () if self._carried is None else self._load(self._head)
        if not load:
            return pb.HeadersResponse()
        return pb.HeadersResponse(response=pb.CommonResponse(header_mutation=set_headers(load)))

    def _refuse(self, refusal: Refusal, carried: Carried) -> None:
        load = tuple(self._load(self._head))
        self.outbox.put_nowait(immediate(refusal, self._head.path, carried.ticket.id, load))

    @property
    def _sees_parts(self) -> bool:
        return self._modes.response_body_mode != _Modes.NONE

    def _on_part(self, message: pb.HttpBody) -> None:
        duplex = self._modes.response_body_mode == _Modes.FULL_DUPLEX_STREAMED
        common = _echo(message) if duplex else pb.CommonResponse()
        self._say(response_body=pb.BodyResponse(response=common))
        if self._carried is None:
            return
        self._tail.add(message.body)
        if self._carried.ticket.stream and (events := self._events.count(message.body)):
            self._carried.spoke(events)
        if message.end_of_stream:
            self._done()

    def _done(self) -> None:
        if self._carried is not None:
            self._carried.done(self._tail.usage() if self._sees_parts else None)

    def _say(self, **reply: Any) -> None:
        self.outbox.put_nowait(pb.ProcessingResponse(**reply))


def _echo(message: pb.HttpBody) -> pb.CommonResponse:
    """In a stream of both directions nothing goes on that is not said again."""
    part = pb.StreamedBody(body=message.body, end_of_stream=message.end_of_stream)
    return pb.CommonResponse(body_mutation=pb.BodyMutation(streamed_response=part))
