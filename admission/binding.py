"""Late binding: a request goes to the engine only when the engine can begin with it.

What waits at the gate can still be reordered, shed or expire; what waits in the engine cannot. So
dispatch only while

    unread prompt tokens < 1 chunk      the next step's reading is assured, and no more
    B < B_max                           so that TPOT holds

TPOT is a request's mean over its own steps, so the mean prefill per step belongs in its bound (the
worst single step is the engine's step budget). In balance each sequence brings p prompt tokens for
each o steps it decodes, and holds p + o/2 tokens of context on average:

    TPOT(B) = t0 + B * (a*p/o + b + c*(p + o/2)) <= .9 * target
    B_max   = (.9 * target - t0) / (a*p/o + b + c*(p + o/2))

A target that not even `least` sequences meet is missed rather than paid for with an idle engine.
"""

from surgetank.telemetry.stepmodel import StepModel

MARGIN = 0.9


def largest_batch(
    model: StepModel, *, target: float, prompt: float, output: float, least: float
) -> float:
    """B_max for requests of so many tokens on average; `output` above 0."""
    each = added_seconds(model, prompt, output)
    spare = MARGIN * target - model.t0
    if each <= 0.0:
        return float("inf") if spare > 0.0 else least
    return max(least, spare / each)


def added_seconds(model: StepModel, prompt: float, output: float) -> float:
    """What a running sequence adds to the mean step, its part of the turnover's prompts included:
    a*p/o + b + c*(p + o/2)."""
    return model.a * prompt / output + model.b + model.c * (prompt + output / 2.0)
