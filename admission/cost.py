"""What a request costs, in engine-seconds: the one unit of waits, budgets, fairness and shares.

A request of p prompt tokens and o output tokens per choice, n choices, occupies

    C = a*p + n * ((t0/B + b)*o + c*(p*o + o^2/2))

Derivation from the step model tau = t0 + a*P + b*B + c*K: each prompt token is read once (a). Each
output token is one sequence's part of one step: b, and 1/B of the t0 that the step's B sequences
share. Attention at the i-th output token reads p + i tokens of context; the sum over i = 1..o is
p*o + o^2/2. Choices share the prompt. So costs add up: an engine that works at batch B delivers one
engine-second per second, whatever the mix of prompts and outputs.

Before the step model is fitted a choice is worth its share of what is being served: 1 / (choices
per second). Costs of both kinds are seconds of the whole engine, so they may be added.
"""

import msgspec

from surgetank.telemetry.stepmodel import StepModel


class Estimate(msgspec.Struct, frozen=True):
    """What a request is expected to be. `output` and `reserve` are tokens of each choice."""

    output: float  # mean
    reserve: int  # a high quantile: what KV is promised for
    seconds: float  # C, engine-seconds
    prefill: float = 0.0  # seconds to read its prompt alone; 0 while unknown


UNKNOWN = Estimate(0.0, 0, 0.0)  # before the gate has looked at a request


def engine_seconds(model: StepModel, batch: float, prompt: float, output: float, n: int) -> float:
    """C of a request; `output` tokens for each of its n choices, decoded at batch `batch`."""
    context = prompt * output + output * output / 2.0
    decode = (model.t0 / batch + model.b) * output + model.c * context
    return model.a * prompt + n * decode
