"""What both routes' answers have in common: constant parts rendered once, then joined."""

from typing import Any

import orjson

from surgetank.admission.api import End, TextModel
from surgetank.telemetry.vocabulary import FinishReason

DONE = b"data: [DONE]\n\n"

# The other reasons end a request with an error: a finish reason beside it would say otherwise.
FINISH: dict[FinishReason | None, str] = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
}


class Frame:
    """The constant bytes around a stream's choices."""

    def __init__(
        self,
        include_usage: bool,
        served: TextModel,
        answer_id: str,
        created: int,
        chunk_object: str,
    ) -> None:
        self.top = {
            "id": answer_id,
            "object": chunk_object,
            "created": created,
            "model": served.name,
        }
        opened = orjson.dumps(self.top)[:-1]
        self._before = b"data: " + opened + b',"choices":[{"index":'
        self._after = b'}],"usage":null}\n\n' if include_usage else b"}]}\n\n"
        self._usage_before = b"data: " + opened + b',"choices":[],"usage":'

    def choice(self, index: int, content: bytes, logprobs: bytes, finish: str | None) -> bytes:
        """One event with one choice; `content` is a member of the choice object."""
        return b'%b%d,%b,"logprobs":%b,"finish_reason":%b%b' % (
            self._before,
            index,
            content,
            logprobs,
            b"null" if finish is None else b'"%b"' % finish.encode(),
            self._after,
        )

    def usage(self, end: End) -> bytes:
        """The event that tells the usage, without choices."""
        return self._usage_before + orjson.dumps(usage(end)) + b"}\n\n"


def usage(end: End) -> dict[str, Any]:
    """OpenAI's usage object."""
    return {
        "prompt_tokens": end.prompt_tokens,
        "completion_tokens": end.output_tokens,
        "total_tokens": end.prompt_tokens + end.output_tokens,
        "prompt_tokens_details": {"cached_tokens": end.cached_tokens},
    }
