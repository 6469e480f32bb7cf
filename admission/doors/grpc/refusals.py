"""A refusal on the gRPC wire: status, trailers, rich error details, and one line of text.

grpcio's retry follows `grpc-retry-pushback-ms` exactly, stops on a negative value, and hangs to
its deadline on 0. Its `details` text is all that a tritonclient user sees.
Sources: gRPC proposal A6 (retry throttling and pushback), google/rpc/error_details.proto.
"""

import asyncio
import logging
import math
from typing import NoReturn

import grpc
from google.protobuf.any_pb2 import Any
from google.rpc import error_details_pb2, status_pb2

from surgetank.admission.outcome import Refusal
from surgetank.telemetry.vocabulary import Outcome, Reason

logger = logging.getLogger(__name__)

DOMAIN = "surgetank"
MIN_PUSHBACK_MS = 50
NO_RETRY = -1
CUT_PATIENCE = 0.5  # seconds for a slow reader to hear why; past it the call is reset
MAX_DETAIL_CHARS = 512  # trailers share the client's metadata limit, often 8 KiB

SLOW = Refusal(
    Outcome.CANCELLED, Reason.SLOW_READER, "the stream was cut: its responses were not read in time"
)

Trailers = tuple[tuple[str, str | bytes], ...]


def pushback_ms(refusal: Refusal, time_left: float | None) -> int:
    """Milliseconds until a retry is welcome, at least 50; -1: do not retry.

    A wait that ends past the deadline is -1 too: the client would sleep it out for nothing.
    """
    if refusal.retry_after is None:
        return NO_RETRY
    wait = max(MIN_PUSHBACK_MS, math.ceil(1000 * refusal.retry_after))
    if time_left is not None and wait >= 1000 * time_left:
        return NO_RETRY
    return wait


def sentence(refusal: Refusal, request_id: str, pushback: int) -> str:
    """The refusal as one line: message, reason, request id and hint."""
    hint = "do not retry" if pushback == NO_RETRY else f"retry after {pushback} ms"
    message = refusal.message[:MAX_DETAIL_CHARS]
    return f"{message} [reason: {refusal.reason}; request: {request_id}; {hint}]"


def trailers(refusal: Refusal, request_id: str, pushback: int) -> Trailers:
    """Everything a client can act on, for the end of a call that has sent nothing yet."""
    return (
        ("grpc-retry-pushback-ms", str(pushback)),
        ("x-surgetank-reason", str(refusal.reason)),
        ("grpc-status-details-bin", _status(refusal, request_id, pushback).SerializeToString()),
    )


def _status(refusal: Refusal, request_id: str, pushback: int) -> status_pb2.Status:
    info = error_details_pb2.ErrorInfo(
        reason=str(refusal.reason).upper(), domain=DOMAIN, metadata={"request_id": request_id}
    )
    for name in ("measured", "limit"):
        number = getattr(refusal, name)
        if number is not None:
            info.metadata[name] = f"{number:.6g}"
    if refusal.limit_name:
        info.metadata["limit_name"] = refusal.limit_name
    code: tuple[int, str] = refusal.grpc_status.value
    status = status_pb2.Status(code=code[0], message=sentence(refusal, request_id, pushback))
    status.details.append(_pack(info))
    if pushback != NO_RETRY:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(pushback)
        status.details.append(_pack(retry))
    if refusal.outcome is Outcome.QUOTA:
        violation = error_details_pb2.QuotaFailure.Violation(
            subject=refusal.limit_name, description=refusal.message[:MAX_DETAIL_CHARS]
        )
        status.details.append(_pack(error_details_pb2.QuotaFailure(violations=[violation])))
    return status


def _pack(
    detail: error_details_pb2.ErrorInfo
    | error_details_pb2.RetryInfo
    | error_details_pb2.QuotaFailure,
) -> Any:
    packed = Any()
    packed.Pack(detail)
    return packed


async def abort(
    context: grpc.aio.ServicerContext[object, object],
    refusal: Refusal,
    request_id: str,
    more: Trailers = (),
) -> NoReturn:
    """End a call as refused, with `more` trailers; raises out of the handler."""
    pushback = pushback_ms(refusal, context.time_remaining())
    await context.abort(
        refusal.grpc_status,
        sentence(refusal, request_id, pushback),
        (*trailers(refusal, request_id, pushback), *more),
    )


async def cut(context: grpc.aio.ServicerContext[object, object]) -> None:
    """Tell a slow reader why its call ends, as long as that does not wait for it to read."""
    try:
        async with asyncio.timeout(CUT_PATIENCE):
            await abort(context, SLOW, "")
    except TimeoutError:
        logger.info("a call of %s was reset: it does not read", context.peer())
