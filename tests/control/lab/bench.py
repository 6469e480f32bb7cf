"""A simulated engine on a bench: one port, whatever is submitted, everything that it tells."""

import random
from dataclasses import dataclass, field

from surgetank.control.lab.engine import SimulatedEngine
from surgetank.control.lab.steptime import EngineSpec, StepModel
from surgetank.control.lab.timeline import Timeline
from surgetank.engine.api import (
    GenerateRequest,
    ModelCard,
    SamplingParams,
    Started,
    StepOutput,
    Tokens,
)
from surgetank.telemetry.steprecord import StepRecord
from surgetank.telemetry.vocabulary import FinishReason, Move

# Round numbers: a step of P prompt tokens and B sequences takes 10 + P + B milliseconds.
MILLIS = StepModel(t0=0.010, a=0.001, b=0.001, c=0.0)
SMALL = EngineSpec(model=MILLIS, max_num_seqs=4, max_batch_tokens=8, block_size=4, kv_blocks=64)


@dataclass
class Heard:
    """A sink that notes when it heard what."""

    timeline: Timeline
    started: list[float] = field(default_factory=list)
    at: list[float] = field(default_factory=list)  # when tokens came
    counts: list[int] = field(default_factory=list)  # how many
    finish: FinishReason | None = None
    detail: str = ""

    def on_started(self, started: Started) -> None:
        self.started.append(self.timeline.monotonic())

    def on_moved(self, what: Move) -> None:
        """Of no interest here."""

    def on_tokens(self, tokens: Tokens) -> None:
        if tokens.token_ids:
            self.at.append(self.timeline.monotonic())
            self.counts.append(len(tokens.token_ids))
        self.finish, self.detail = tokens.finish or self.finish, tokens.detail or self.detail

    def on_lost(self, detail: str) -> None:
        self.detail = f"lost: {detail}"


class Bench:
    """The engine comes up at once. A request's answer is as long as its max_tokens, unless said."""

    def __init__(self, spec: EngineSpec = SMALL, *, jump: bool = True) -> None:
        self.timeline = Timeline()
        self.answers: dict[int, int] = {}
        self.engine = SimulatedEngine(
            spec,
            self.timeline,
            lambda r: self.answers.get(r.request_id, r.sampling.max_tokens),
            random.Random(1),
        )
        self.engine.jump = jump
        self.port = self.engine.connect()
        self.port.watch(self)
        self.records: list[StepRecord] = []
        self.outputs = 0
        self.news: list[tuple[float, str]] = []
        self._ids = 0
        self.engine.start()

    def on_step(self, output: StepOutput) -> None:
        self.outputs += 1
        if output.record is not None:
            self.records.append(output.record)

    def on_up(self, card: ModelCard) -> None:
        self.news.append((self.timeline.monotonic(), "up"))

    def on_down(self, detail: str) -> None:
        self.news.append((self.timeline.monotonic(), "down"))

    def submit(
        self, prompt: int, output: int, *, time_left: float | None = None, answer: int | None = None
    ) -> Heard:
        """Now; its request id is the count of those before, from 1."""
        self._ids += 1
        if answer is not None:
            self.answers[self._ids] = answer
        heard = Heard(self.timeline)
        request = GenerateRequest(
            request_id=self._ids,
            prompt=[0] * prompt,
            sampling=SamplingParams(max_tokens=output),
            time_left=time_left,
        )
        self.port.submit(request, heard)
        return heard
