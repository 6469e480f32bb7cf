"""The real tritonclient, blocking and asyncio, against the door."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.admission.doors.grpc.rig import PATIENCE, ended, serve
from tests.fakes import FakeDesk

SESSION = Path(__file__).with_name("triton_session.py")


async def session(port: int) -> Any:
    """Run the client's session; what it saw."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SESSION),
        f"127.0.0.1:{port}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(3 * PATIENCE):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out)


async def test_triton_clients() -> None:
    async with serve(FakeDesk(script=[65, 66, 67, 68, 69])) as rig:
        seen = await session(rig.port)
        await ended(rig.desk, len(rig.desk.calls))

    blocking = seen["blocking"]
    assert blocking["ready"] == [True, True]
    assert blocking["model_ready"] == [True, False]
    assert "text_input" in blocking["inputs"]
    assert blocking["decoupled"] is True
    assert blocking["infer"] == ["7", "hello bcdef"]
    assert (blocking["finish"], blocking["logprob"]) == ("stop", [-2.5])
    assert (blocking["tokens"], blocking["success"]) == ([5], 1)
    assert blocking["index"] == ["READY", "READY"]
    unknown, missing = blocking["errors"]
    assert unknown[0] == "StatusCode.NOT_FOUND"
    assert "reason: unknown_model" in unknown[1]
    assert missing[0] == "StatusCode.INVALID_ARGUMENT"
    assert "input 'text_input' is missing" in missing[1]
    assert (blocking["stream"], blocking["finals"]) == ("bcdef", 1)
    assert "reason: unknown_model; request: b; do not retry" in blocking["stream_error"]

    streaming = seen["streaming"]
    assert streaming["stream"] == {"0": "bcdef", "1": "bcdef", "2": "bcdef"}
    assert streaming["infer"] == ["hello bc"]
    assert streaming["cancel"] is True
