"""Our engine without its process: the step loop turned by hand, to tell what the link costs.

Run as `python -m surgetank.control.bench.inside KEY=VALUE ...`; talks as peers/lines.py says.
"""

import sys
import time
from collections.abc import Sequence
from typing import Any

from surgetank import __version__
from surgetank.control.bench.peers.lines import Prompts, Steps, serve
from surgetank.control.bench.workload import Tally, requests_of
from surgetank.engine.api import Commands, GenerateRequest
from surgetank.engine.build import build
from surgetank.engine.config import EngineConfig
from surgetank.engine.loop import StepLoop
from surgetank.engine.report import Times
from surgetank.telemetry.clock import SystemClock


def main(assignments: Sequence[str]) -> None:
    """Serve until stdin ends."""

    def open_engine() -> tuple[str, Any]:
        settings = dict(text.split("=", 1) for text in assignments)
        loop = build(EngineConfig.model_validate(settings), SystemClock()).loop
        counted = [0]

        def generate(prompts: Prompts, output: int) -> Steps:
            requests = requests_of(prompts, output, counted[0])
            counted[0] += len(requests)
            return run(loop, requests)

        return f"surgetank {__version__}", generate

    serve(open_engine)


def run(loop: StepLoop, requests: list[GenerateRequest]) -> Steps:
    """The requests from their submission to their last token."""
    tally = Tally(len(requests), time.perf_counter())
    loop.take(Commands(submit=requests))
    while not tally.done:
        output = loop.step(Times())
        if output is not None:
            tally.step(output, time.perf_counter())
    sample = tally.sample()
    count = len(requests)
    first = (sample.prefill, count, count)
    return [(0.0, 0, 0), first, (sample.prefill + sample.decode, count + sample.decoded, count)]


if __name__ == "__main__":
    main(sys.argv[1:])
