"""The closed vocabularies: every word that is at once metric label, log field and status."""

from enum import IntEnum, StrEnum


class Outcome(StrEnum):
    """How a request ends, exactly one each; admission/outcome.py maps them to statuses."""

    OK = "ok"
    INVALID = "invalid"
    UNAUTHENTICATED = "unauthenticated"
    DENIED = "denied"
    NOT_FOUND = "not_found"
    QUOTA = "quota"
    OVERLOAD = "overload"
    RETRY_BUDGET = "retry_budget"
    INFEASIBLE = "infeasible"
    EXPIRED = "expired"
    EVICTED = "evicted"
    DRAINING = "draining"
    BACKEND_DOWN = "backend_down"
    CIRCUIT_OPEN = "circuit_open"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    INTERNAL = "internal"


class Reason(StrEnum):
    """Why a request did not end ok: the one cause behind the outcome, finer than it."""

    NONE = "none"
    BAD_REQUEST = "bad_request"
    API_KEY = "api_key"
    HEADERS_TOO_LARGE = "headers_too_large"
    HEADER_TIMEOUT = "header_timeout"
    BODY_TOO_LARGE = "body_too_large"
    BODY_TIMEOUT = "body_timeout"
    CONNECTIONS = "connections"
    BUFFERED_BYTES = "buffered_bytes"
    NEVER_FITS_CONTEXT = "never_fits_context"
    NEVER_FITS_KV = "never_fits_kv"
    NEVER_FITS_QUEUE = "never_fits_queue"
    NEVER_FITS_SLOTS = "never_fits_slots"
    UNKNOWN_MODEL = "unknown_model"
    UNKNOWN_ROUTE = "unknown_route"
    QUEUE_REQUESTS = "queue_requests"
    QUEUE_TOKENS = "queue_tokens"
    IN_FLIGHT = "in_flight"
    PREDICTED_WAIT = "predicted_wait"
    KV_PRESSURE = "kv_pressure"
    BROWN_OUT = "brown_out"
    RETRY_BUDGET = "retry_budget"
    TENANT_QUOTA = "tenant_quota"
    DEADLINE_ON_ARRIVAL = "deadline_on_arrival"
    DEADLINE_IN_QUEUE = "deadline_in_queue"
    DEADLINE_IN_DECODE = "deadline_in_decode"
    QUEUE_TIMEOUT = "queue_timeout"
    DISPLACED = "displaced"
    OPERATOR = "operator"
    CLIENT_GONE = "client_gone"
    SLOW_READER = "slow_reader"
    ENGINE_LOST = "engine_lost"
    ENGINES_LOST = "engines_lost"
    ENGINE_REFUSED = "engine_refused"
    ENGINE_FULL = "engine_full"
    ENGINE_ERROR = "engine_error"
    OUT_OF_MEMORY = "out_of_memory"
    BUG = "bug"


class Priority(IntEnum):
    """Classes of service; a lower number is served first."""

    CRITICAL = 0
    DEFAULT = 1
    BATCH = 2
    SHEDDABLE = 3

    @property
    def label(self) -> str:
        """The class as it stands in metrics, headers and logs."""
        return self.name.lower()


class Lane(StrEnum):
    """First attempts and retries travel apart, so that retries can be held back alone."""

    FIRST = "first"
    RETRY = "retry"


class FinishReason(StrEnum):
    """Why one choice of a request stopped producing tokens."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    REFUSED = "refused"
    ERROR = "error"


class SlotState(StrEnum):
    """What each of a step's max_num_seqs slots was: filled, or empty for the ONE binding reason."""

    FILLED = "filled"
    NO_WORK = "no_work"
    BLOCKED_KV = "blocked_kv"
    BLOCKED_TOKEN_BUDGET = "blocked_token_budget"
    BLOCKED_LIMIT = "blocked_limit"
    BLOCKED_OTHER = "blocked_other"


class StepKind(StrEnum):
    """What a step worked on."""

    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"


class QueueExit(StrEnum):
    """How a request left the gate's queue."""

    DISPATCHED = "dispatched"
    SHED = "shed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class PreemptionKind(StrEnum):
    """What becomes of the KV of a sequence that is put back."""

    RECOMPUTE = "recompute"
    SWAP = "swap"


class PreemptionReason(StrEnum):
    """Why a running sequence is put back."""

    KV = "kv"
    PRIORITY = "priority"


class OomSource(StrEnum):
    """Which memory ran out: the KV pool, the device's for activations, or the host's."""

    KV = "kv"
    ACTIVATION = "activation"
    HOST = "host"


class OomAction(StrEnum):
    """What was done about it, the mildest first."""

    EVICTED_CACHE = "evicted_cache"
    SHRANK_STEP = "shrank_step"
    REFUSED = "refused"


class GpuSignal(StrEnum):
    """How busy a GPU is: what its driver samples, and what its hardware counts."""

    UTIL = "util"
    SM_ACTIVE = "sm_active"
    SM_OCCUPANCY = "sm_occupancy"
    TENSOR_ACTIVE = "tensor_active"
    DRAM_ACTIVE = "dram_active"


class GpuThrottle(StrEnum):
    """Why a GPU's clocks are held down."""

    SW_POWER_CAP = "sw_power_cap"
    HW_SLOWDOWN = "hw_slowdown"
    SYNC_BOOST = "sync_boost"
    SW_THERMAL = "sw_thermal"
    HW_THERMAL = "hw_thermal"
    HW_POWER_BRAKE = "hw_power_brake"


class Operator(StrEnum):
    """What a step's device time is spent on."""

    ATTENTION = "attention"
    GEMM = "gemm"
    NORM = "norm"
    SAMPLING = "sampling"
    KV_COPY = "kv_copy"
    OTHER = "other"


class Move(StrEnum):
    """What the engine does with a request between its first step and its last."""

    PREEMPTED = "preempted"
    RESUMED = "resumed"


class SpanLoss(StrEnum):
    """Why a span never reached the collector."""

    QUEUE_FULL = "queue_full"
    UNREACHABLE = "unreachable"  # no answer, or only ones that say to try again
    REJECTED = "rejected"  # the collector does not want it
    SHUTDOWN = "shutdown"  # it was not through when the process ended
    BUG = "bug"
