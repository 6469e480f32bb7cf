"""Counts and times of each model's requests through this door, for ModelStatistics."""

from dataclasses import dataclass, field

from surgetank.admission.doors.grpc import inference_pb2 as pb
from surgetank.admission.doors.grpc.query import VERSION
from surgetank.admission.ticket import Ticket


@dataclass(slots=True)
class _Total:
    """How often, and how long all together in seconds."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.seconds += max(0.0, seconds)

    def message(self) -> pb.StatisticDuration:
        return pb.StatisticDuration(count=self.count, ns=round(self.seconds * 1e9))


@dataclass(slots=True)
class ModelCounts:
    """One model's requests since the door opened."""

    success: _Total = field(default_factory=_Total)
    fail: _Total = field(default_factory=_Total)
    queue: _Total = field(default_factory=_Total)
    compute: _Total = field(default_factory=_Total)
    last_inference_ms: int = 0

    def record(self, ticket: Ticket, ok: bool, now: float, wall: float) -> None:
        """A request has ended: `now` on the ticket's clock, `wall` since the Unix epoch."""
        (self.success if ok else self.fail).add(now - ticket.arrived)
        if ticket.dispatched_at is not None:
            self.queue.add(ticket.dispatched_at - ticket.arrived)
            self.compute.add(now - ticket.dispatched_at)
            self.last_inference_ms = round(wall * 1000)

    def message(self, name: str) -> pb.ModelStatistics:
        """In the protocol's shape."""
        return pb.ModelStatistics(
            name=name,
            version=VERSION,
            last_inference=self.last_inference_ms,
            inference_count=self.success.count,
            inference_stats=pb.InferStatistics(
                success=self.success.message(),
                fail=self.fail.message(),
                queue=self.queue.message(),
                compute_infer=self.compute.message(),
            ),
        )


class Statistics:
    """ModelCounts by model; only models that were found have an entry."""

    def __init__(self) -> None:
        self._models: dict[str, ModelCounts] = {}

    def of(self, model: str) -> ModelCounts:
        """The counts of a model by its own name, not an alias."""
        return self._models.setdefault(model, ModelCounts())

    def messages(self) -> list[pb.ModelStatistics]:
        """All of them in the protocol's shape."""
        return [counts.message(name) for name, counts in self._models.items()]
