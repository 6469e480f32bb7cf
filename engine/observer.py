"""Everyone who is told of a step: operator meter, metrics and ring, in that order."""

import msgspec

from surgetank.engine.api import StepOutput
from surgetank.engine.operators import OperatorMeter
from surgetank.engine.ring import RingWriter
from surgetank.telemetry.engine_recorder import EngineRecorder


class Observer:
    """Stands beside the step loop and changes nothing but a sampled step's operator times."""

    def __init__(self, meter: OperatorMeter, recorder: EngineRecorder, ring: RingWriter) -> None:
        self._meter = meter
        self._recorder = recorder
        self._ring = ring

    def rested(self, seconds: float) -> None:
        """There was nothing to do for so long."""
        self._recorder.rested(seconds)

    def before_step(self) -> None:
        """Whether its operators are timed is decided now."""
        self._meter.begin()

    def after_step(self, output: StepOutput) -> StepOutput:
        """What the sidecar is to be sent; a step's record is by then where it can be looked up."""
        record = output.record
        if record is None:
            return output
        record = self._meter.end(record)
        self._recorder.step(record)
        self._ring.write(record)
        return output if record is output.record else msgspec.structs.replace(output, record=record)
