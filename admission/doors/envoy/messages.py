"""Replies to Envoy: going on with changed headers and body, or an answer of our own."""

from collections.abc import Iterable, Iterator

from surgetank.admission.api import Headers
from surgetank.admission.doors.envoy import wire_pb2 as pb
from surgetank.admission.doors.http.relay_routes import CLAIMS
from surgetank.admission.doors.http.wording import wording_of
from surgetank.admission.outcome import Refusal

PIECE = 60_000  # bytes of a streamed body in one message; Envoy takes less than 64 KiB


def read_headers(headers: pb.HeaderMap) -> list[tuple[str, str]]:
    """Names come in lower case; pseudo headers begin with a colon."""
    return [
        (each.key, (each.raw_value or each.value.encode()).decode("latin-1"))
        for each in headers.headers
    ]


def mutation(before: Headers, after: Headers, extra: Headers) -> pb.HeaderMutation:
    """Sets what only `after` has, and `extra`; removes what only peers may claim."""
    known = set(before)
    new = [pair for pair in after if pair not in known]
    change = set_headers([*new, *extra])
    named = {name for name, _ in extra}
    claims = {name for name, _ in before if name.startswith(CLAIMS)}
    change.remove_headers.extend(sorted(claims - named))
    return change


def set_headers(headers: Iterable[tuple[str, str]]) -> pb.HeaderMutation:
    """Each in the place of what had its name."""
    change = pb.HeaderMutation()
    for name, value in headers:
        change.set_headers.add(
            header=pb.HeaderValue(key=name, raw_value=value.encode("latin-1", "replace")),
            append_action=pb.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
        )
    return change


def immediate(refusal: Refusal, path: str, request_id: str, more: Headers) -> pb.ProcessingResponse:
    """The refusal, as the HTTP door would answer it on that path, with `more` headers."""
    words = wording_of(path)
    headers = [
        ("content-type", "application/json"),
        ("x-request-id", request_id),
        *words.headers(refusal, request_id),
        *more,
    ]
    answer = pb.ImmediateResponse(
        status=pb.HttpStatus(code=words.status(refusal)),
        headers=set_headers(headers),
        body=words.body(refusal, request_id),
        details=f"surgetank_{refusal.reason}",
    )
    return pb.ProcessingResponse(immediate_response=answer)


def pieces(body: bytes) -> Iterator[pb.CommonResponse]:
    """A whole body for a stream of both directions; at least one piece, the last marked so."""
    for at in range(0, max(1, len(body)), PIECE):
        part = pb.StreamedBody(body=body[at : at + PIECE], end_of_stream=at + PIECE >= len(body))
        yield pb.CommonResponse(body_mutation=pb.BodyMutation(streamed_response=part))
