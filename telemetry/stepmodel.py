"""How long an engine step takes: a model of four coefficients, fitted while the engine runs.

    tau = t0 + a*P + b*B + c*K

P prompt tokens read, B sequences decoding, K tokens of context that the step's attention reads.
t0 is what every step costs (launches, the scheduler), a is compute per prompt token, b per decoded
token, c the reading of KV. None of them can be negative, so none may become it.

The fit minimises the relative error, sum of w * (theta.x - tau)^2 with w = lambda^age / tau^2, so
that a long step does not outvote a thousand short ones, and a stall of seconds hardly counts.
Instead of the covariance of textbook recursive least squares, which grows without bound in the
directions that a steady load does not excite, it keeps the normal equations A theta = r and takes
two sweeps of non-negative coordinate descent from the last theta per step:

    theta_i <- max(0, theta_i + (r_i - sum_j A_ij theta_j) / A_ii)

Each sweep lowers the convex objective; what the data does not determine stays where it was.
lambda = .999 forgets half in 700 steps.
"""

import msgspec

from surgetank.telemetry.steprecord import StepRecord

ENOUGH = 30  # steps before the fit is believed
ALARM = 0.15  # mean relative error above which it should not be
_FORGETTING = 0.999
_ERROR_WEIGHT = 0.02  # of the newest step in the error's moving average
_SWEEPS = 2
_SCALE = (1.0, 0.01, 0.1, 0.001)  # brings features to one order of magnitude


class StepModel(msgspec.Struct, frozen=True):
    """Seconds: per step, per prompt token, per decoding sequence, per token of context."""

    t0: float
    a: float
    b: float
    c: float

    def seconds(self, prefill: float, batch: float, resident: float) -> float:
        """How long such a step takes."""
        return self.t0 + self.a * prefill + self.b * batch + self.c * resident


def step_seconds(record: StepRecord) -> float:
    """What a step kept the engine busy for; `emit` is the previous step's, the best there is."""
    return record.drain + record.schedule + record.forward + record.sample + record.emit


class StepFit:
    """The online fit. `model` is None until there is enough to go by."""

    def __init__(self) -> None:
        self.steps = 0
        self.error = 0.0  # mean |predicted - actual| / actual of late, each step's at most 1
        self._theta = [0.0] * 4
        self._a = [[0.0] * 4 for _ in range(4)]
        self._r = [0.0] * 4
        self._current = StepModel(0.0, 0.0, 0.0, 0.0)

    @property
    def model(self) -> StepModel | None:
        """The coefficients as they stand; None before ENOUGH steps."""
        return None if self.steps < ENOUGH else self._current

    @property
    def alarm(self) -> bool:
        """The model does not describe this engine: waits predicted from it are doubtful."""
        return self.steps >= ENOUGH and self.error > ALARM

    def observe(self, record: StepRecord) -> None:
        """Learn from a step; one without work or duration teaches nothing."""
        seconds = step_seconds(record)
        prefill, batch = record.prefill_tokens, record.decode_tokens
        if seconds > 0 and prefill + batch:
            self.learn(prefill, batch, record.kv_resident_tokens, seconds)

    def learn(self, prefill: float, batch: float, resident: float, seconds: float) -> None:
        """One step of that size took so long (> 0)."""
        self.steps += 1
        predicted = self._current.seconds(prefill, batch, resident)
        error = min(1.0, abs(predicted - seconds) / seconds)
        weight = max(_ERROR_WEIGHT, 1.0 / self.steps)
        self.error += weight * (error - self.error)
        constant, per_prefill, per_batch, per_resident = _SCALE
        self._accumulate(
            (
                constant / seconds,
                prefill * per_prefill / seconds,
                batch * per_batch / seconds,
                resident * per_resident / seconds,
            )
        )
        for _ in range(_SWEEPS):
            self._descend()
        t0, a, b, c = self._theta
        self._current = StepModel(t0 * constant, a * per_prefill, b * per_batch, c * per_resident)

    def _accumulate(self, x: tuple[float, float, float, float]) -> None:
        """A and r fade, and take in x (already divided by tau, so that the target is 1). Written
        out, like _descend: both run in every step, and loops of four cost twice as much."""
        x0, x1, x2, x3 = x
        for i, (row, xi) in enumerate(zip(self._a, x)):
            self._r[i] = _FORGETTING * self._r[i] + xi
            row[0] = _FORGETTING * row[0] + xi * x0
            row[1] = _FORGETTING * row[1] + xi * x1
            row[2] = _FORGETTING * row[2] + xi * x2
            row[3] = _FORGETTING * row[3] + xi * x3

    def _descend(self) -> None:
        theta, r = self._theta, self._r
        for i, row in enumerate(self._a):
            if row[i] > 0.0:
                a0, a1, a2, a3 = row
                fitted = a0 * theta[0] + a1 * theta[1] + a2 * theta[2] + a3 * theta[3]
                theta[i] = max(0.0, theta[i] + (r[i] - fitted) / row[i])
