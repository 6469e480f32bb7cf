"""How busy we are, in the words of the engine protocol: asked for, and pushed to subscribers.

What waits at the gate counts as waiting in the engine: to whom asks, both are one.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from surgetank import __version__
from surgetank.admission.gateway_signals import GatewaySignals, read_signals
from surgetank.admission.limits import Limit
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.engine.protocols import smg_common_pb2 as common
from surgetank.engine.protocols import vllm_engine_pb2 as pb

HEARTBEAT = 1.0  # seconds without change after which a load is pushed all the same
_SMALL = 0.005  # of the KV pool: a change that need not be pushed


@dataclass(frozen=True, slots=True)
class _Busy:
    """What both messages tell."""

    signals: GatewaySignals
    tokens_per_second: float  # 0: not known
    window: int  # sequences that run at once at most
    pool: int  # tokens that the KV memory holds; 0: not known


def _busy(desk: DeskSnapshot) -> _Busy | None:
    signals = read_signals(desk)
    if signals is None:
        return None
    tpot = desk.laws.tpot  # of a decoding step, in which each running sequence gets a token
    window = min(desk.view(Limit.IN_FLIGHT_SEQS).current, desk.view(Limit.MAX_NUM_SEQS).current)
    pool = desk.card.kv_blocks * desk.card.kv_block_size if desk.card else 0
    return _Busy(signals, signals.running / tpot if tpot else 0.0, int(window), pool)


def loads(desk: DeskSnapshot, wall: float) -> pb.GetLoadsResponse:
    """`wall`: seconds since 1970. Without an engine there is no load to report."""
    told = pb.GetLoadsResponse(
        timestamp=datetime.fromtimestamp(wall, UTC).isoformat(), version=__version__
    )
    busy = _busy(desk)
    if busy is not None:
        told.dp_rank_count = 1
        told.loads.add(
            num_running_reqs=busy.signals.running,
            num_waiting_reqs=busy.signals.waiting,
            num_total_reqs=busy.signals.running + busy.signals.waiting,
            token_usage=busy.signals.kv_used or 0.0,
            utilization=busy.signals.kv_used or 0.0,
            num_used_tokens=round(busy.pool * (busy.signals.kv_used or 0.0)),
            max_total_num_tokens=busy.pool,
            gen_throughput=busy.tokens_per_second,
            max_running_requests=busy.window,
            num_waiting_uncached_tokens=desk.queue_tokens,
        )
    return told


def load(desk: DeskSnapshot) -> common.EngineLoad | None:
    """The same for a subscriber; None while there is no engine. The engine's silence is told while
    it has work, with the prompts that may be its cause."""
    busy = _busy(desk)
    if busy is None:
        return None
    told = common.EngineLoad(
        running_requests=busy.signals.running,
        waiting_requests=busy.signals.waiting,
        waiting_uncached_tokens=desk.queue_tokens,
        token_usage=busy.signals.kv_used or 0.0,
        gen_throughput=busy.tokens_per_second,
        max_running_requests=busy.window,
        num_used_tokens=round(busy.pool * (busy.signals.kv_used or 0.0)),
        max_total_num_tokens=busy.pool,
        load_only=True,
        engine_reports_steps=True,
        prefill_pending_tokens=desk.laws.unread,
    )
    if desk.dispatched and desk.stalled_for is not None:
        told.engine_silence_ms = round(1000 * desk.stalled_for)
    return told


class LoadPushes:
    """Which loads one subscriber is sent: what changed, and now and then what did not."""

    def __init__(self) -> None:
        self._last: common.EngineLoad | None = None
        self._sent_at = 0.0
        self._sent = 0

    def due(self, told: common.EngineLoad | None, now: float, wall: float) -> bytes | None:
        """The batch to send at `now` (monotonic seconds), serialised; None: nothing."""
        if told is None or not self._worth(told, now):
            return None
        self._last, self._sent_at = told, now
        self._sent += 1
        batch = common.KvEventBatch(sequence_number=0, timestamp=wall, load=told)
        batch.load.sample = self._sent
        return batch.SerializeToString()

    def _worth(self, told: common.EngineLoad, now: float) -> bool:
        last = self._last
        return (
            last is None
            or now - self._sent_at >= HEARTBEAT
            or told.running_requests != last.running_requests
            or told.waiting_requests != last.waiting_requests
            or told.waiting_uncached_tokens != last.waiting_uncached_tokens
            or told.max_running_requests != last.max_running_requests
            or abs(told.token_usage - last.token_usage) > _SMALL
        )
