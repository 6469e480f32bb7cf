"""How an engine under test talks: a JSON question a line on stdin, a JSON answer on stdout.

Question: {"prompts": [[token id]], "output": tokens}. Answer: {"prefill": seconds until every
sequence had its first token, "decode": seconds from then to the last one, "decoded": tokens in
that time}. The first line that a child says is {"ready": its version}.

`python lines.py MODULE ARGUMENT...` serves a file beside this one, by its open_engine(ARGUMENT...).
"""

import importlib
import json
import os
import sys
from collections.abc import Callable

Prompts = list[list[int]]
Steps = list[tuple[float, int, int]]  # an instant; tokens, and sequences that have one, until then
Generate = Callable[[Prompts, int], Steps]


def serve(open_engine: Callable[[], tuple[str, Generate]]) -> None:
    """Until stdin ends. What the engine's libraries print on stdout goes to stderr instead."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)  # in order with stderr's own
    version, generate = open_engine()
    answers.write(json.dumps({"ready": version}) + "\n")
    for line in sys.stdin:
        question = json.loads(line)
        steps = generate(question["prompts"], question["output"])
        answers.write(json.dumps(timing(steps, len(question["prompts"]))) + "\n")


def timing(steps: Steps, sequences: int) -> dict[str, float]:
    """Of a batch's steps, the first entry being its start."""
    begun, last = steps[0], steps[-1]
    first = next(step for step in steps if step[2] == sequences)
    return {
        "prefill": first[0] - begun[0],
        "decode": last[0] - first[0],
        "decoded": last[1] - first[1],
    }


if __name__ == "__main__":
    serve(lambda: importlib.import_module(sys.argv[1]).open_engine(*sys.argv[2:]))
