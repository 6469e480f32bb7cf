"""An engine under test, whichever it is: asked for a batch, it answers with how long that took."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol, cast

from surgetank.control.bench.document import BenchError

Prompts = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Sample:
    """One batch: seconds to everyone's first token, from then to the last, tokens in that time."""

    prefill: float
    decode: float
    decoded: int
    stages: Mapping[str, float] = field(default_factory=dict)  # seconds of all its steps, by stage


class Rival(Protocol):
    """An engine that is up, and idle between questions."""

    name: str
    version: str

    def ask(self, prompts: Prompts, output: int) -> Sample:
        """Read the prompts and generate `output` tokens for each, greedily. Raises BenchError."""

    def close(self) -> None:
        """End its process."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the start list: its name, which family its goals belong to, how to start it."""

    name: str
    peer: str  # "" for ours
    start: Callable[[], Rival]


class Piped:
    """A child that speaks as peers/lines.py says."""

    def __init__(
        self, name: str, command: Sequence[str], env: Mapping[str, str], folder: Path
    ) -> None:
        """Starts it in `folder` and waits until it is ready; its stderr goes to a file there."""
        self.name = name
        self._log = folder / f"{name.replace('/', '-')}.log"
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(
                list(command),
                env={**os.environ, **env},
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._questions = cast(IO[str], self._child.stdin)
        self._answers = cast(IO[str], self._child.stdout)
        self.version = str(self._read()["ready"])

    def ask(self, prompts: Prompts, output: int) -> Sample:
        """One question, one answer."""
        question = {"prompts": [list(prompt) for prompt in prompts], "output": output}
        self._questions.write(json.dumps(question) + "\n")
        self._questions.flush()
        answer = self._read()
        return Sample(answer["prefill"], answer["decode"], int(answer["decoded"]))

    def close(self) -> None:
        """Its stdin ends, and with it the child."""
        self._questions.close()
        try:
            self._child.wait(20)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._answers.close()

    def _read(self) -> dict[str, float]:
        line = self._answers.readline()
        if not line:
            code = self._child.wait()
            words = self._log.read_text("utf-8", "replace").strip().splitlines()
            last = words[-1] if words else "it said nothing"
            raise BenchError(f"{self.name} ended with code {code}: {last} (all of it: {self._log})")
        answer: dict[str, float] = json.loads(line)
        return answer
