"""The real clients of a cell: `openai` with its own retry loop, and grpcio with a retry policy.

Nothing here retries: what comes back is what these libraries make of the server's answers.
"""

import asyncio

import grpc
import openai

from surgetank.admission.doors.grpc import inference_pb2 as pb
from surgetank.control.bench.load.attempts import begin
from surgetank.control.bench.load.infer import INFER, channel_of, infer_request
from surgetank.control.bench.load.sdk import Hasty, sdk
from surgetank.control.bench.scenarios.plan import GRPC, HASTY, OPENAI, Call
from surgetank.control.bench.scenarios.rows import Row
from surgetank.control.bench.scenarios.wire import Setup
from surgetank.telemetry.vocabulary import Priority

RETRIES = 3
_AT_THE_DOOR = frozenset({429, 504})  # statuses of what was refused and never queued


class Clients:
    """One of each kind, as a service would keep them. Times are the loop's, less `origin`."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._now = asyncio.get_running_loop().time
        self._openai = {OPENAI: self._sdk(openai.AsyncOpenAI), HASTY: self._sdk(Hasty)}
        self._channel = channel_of(setup.grpc, RETRIES + 1)
        self._infer = self._channel.unary_unary(
            INFER,
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelInferResponse.FromString,
        )

    def _sdk(self, kind: type[openai.AsyncOpenAI]) -> openai.AsyncOpenAI:
        setup = self._setup
        return sdk(kind, setup.openai_url, retries=RETRIES, timeout=setup.timeout)

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(each.close() for each in self._openai.values()))
        await self._channel.close(grace=None)

    async def call(self, call: Call, prompt: str, origin: float) -> Row:
        """One call to its end; whatever goes wrong is in its row."""
        made = self._grpc_call if call.client == GRPC else self._openai_call
        return await made(call, prompt, origin)

    async def _openai_call(self, call: Call, prompt: str, origin: float) -> Row:
        attempts = begin()
        heard, error = None, ""
        try:
            stream = await self._openai[call.client].completions.create(
                model="default",
                prompt=prompt,
                max_tokens=call.output,
                temperature=0,
                stream=True,
                extra_headers={"x-surgetank-priority": Priority(call.priority).label},
                extra_body={"ignore_eos": True},
            )
            async for _chunk in stream:
                if heard is None:
                    heard = self._now() - origin
        except Exception as problem:  # of openai, or of its HTTP client: the caller's last word
            error = type(problem).__name__
        return Row(
            sent=(attempts[-1].at if attempts else self._now()) - origin,
            heard=heard,
            ended=self._now() - origin,
            ok=not error,
            attempts=len(attempts),
            let_in=sum(each.status not in _AT_THE_DOOR for each in attempts),
            error=error,
        )

    async def _grpc_call(self, call: Call, prompt: str, origin: float) -> Row:
        sent, error = self._now() - origin, ""
        metadata = (("x-surgetank-priority", Priority(call.priority).label),)
        try:
            await self._infer(
                infer_request(prompt, call.output), timeout=self._setup.deadline, metadata=metadata
            )
        except grpc.aio.AioRpcError as problem:
            error = problem.code().name
        return Row(
            sent=sent,
            heard=None,
            ended=self._now() - origin,
            ok=not error,
            attempts=0,
            let_in=0,
            error=error,
        )
