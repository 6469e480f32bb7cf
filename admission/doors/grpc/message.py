"""A request's bytes as the message that they should be."""

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from surgetank.admission.doors.grpc.tensors import bad
from surgetank.admission.outcome import invalid
from surgetank.telemetry.vocabulary import Reason

MAX_ID_CHARS = 128
MessageT = TypeVar("MessageT", bound=Message)


def parsed(kind: type[MessageT], data: bytes, max_bytes: int) -> MessageT:
    """The message on the wire. Raises Refused when it is too large or no such message."""
    if len(data) > max_bytes:
        raise invalid(
            Reason.BODY_TOO_LARGE,
            f"the request message is {len(data)} bytes; allowed: {max_bytes} (max_message_bytes)",
        )
    try:
        return kind.FromString(data)
    except DecodeError:
        raise bad(f"the request message is not a {kind.DESCRIPTOR.name}") from None


def check_id(name: str, request_id: str) -> None:
    """It stands in logs and is repeated in answers. Raises Refused for a longer one."""
    if len(request_id) > MAX_ID_CHARS:
        raise bad(f"{name} has {len(request_id)} characters; allowed: {MAX_ID_CHARS}", name)
