"""How the door speaks with the kind of engine that is behind the desk: its asks and its answers."""

import asyncio
from typing import Any, Protocol

from surgetank.admission.api import Ask, Desk, Listener, TextModel
from surgetank.admission.doors.grpc.inbox import Inbox
from surgetank.admission.doors.grpc.query import Query
from surgetank.admission.doors.grpc.responder import Responder
from surgetank.admission.doors.grpc.tensors import bad
from surgetank.admission.doors.ranges import unknown_id
from surgetank.admission.outcome import Refused
from surgetank.admission.refusals import too_long
from surgetank.engine.text.codec import TooLong

AnyDesk = Desk[Any, Any, Any]
LONG_TEXT = 4096  # characters; above, tokenizing would hold up everyone else on the event loop


class Tongue(Protocol):
    """One kind of engine. What it makes belongs together: ask and listener are the desk's kind."""

    async def ask(self, query: Query, served: Any, request_id: str) -> Any:
        """For the desk. Raises Refused."""

    def listener(self, query: Query, inbox: Inbox) -> Any:
        """What fills the inbox with what the engine says."""

    def responder(self, query: Query, served: Any, ask: Any) -> Responder:
        """Who writes the responses."""


class TextTongue:
    """For an engine that takes token ids; implements Tongue."""

    async def ask(self, query: Query, served: TextModel, request_id: str) -> Ask:
        """Its prompt encoded."""
        sampling = query.sampling
        wrong = unknown_id(sampling.params.stop_token_ids, served.card.vocab_size)
        if wrong is not None:
            allowed = f"token ids 0 to {served.card.vocab_size - 1}"
            raise bad(f"stop_token_ids holds {wrong}; allowed: {allowed}", "stop_token_ids")
        prompt = await encoded(served, query.text, "text_input")
        return Ask(prompt, sampling.params, sampling.n, sampling.stop)

    def listener(self, query: Query, inbox: Inbox) -> Listener:
        """The inbox itself."""
        return inbox

    def responder(self, query: Query, served: TextModel, ask: Ask) -> Responder:
        """With the model's own tokens."""
        return Responder(query, served.codec.token, len(ask.prompt))


async def encoded(served: TextModel, text: str, name: str) -> list[int]:
    """Token ids of the prompt, at least one. Raises Refused, with the field's `name`."""
    encode, most = served.codec.encode, served.card.context_length
    try:
        long = len(text) > LONG_TEXT
        ids = await asyncio.to_thread(encode, text, most) if long else encode(text, most)
    except TooLong as error:
        raise Refused(too_long(error)) from None
    except ValueError as error:
        raise bad(f"{name}: {error}", name) from None
    if not ids:
        raise bad(f"{name} is empty; allowed: at least one token", name)
    return ids
