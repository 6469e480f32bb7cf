"""Fits the step model to what an engine measured, and says how far off it is.

tau = t0 + a*P + b*B + c*K with no coefficient below 0, least squares of the relative error: with
four columns the non-negative optimum is the best of the 15 plain fits on a subset of them that has
no negative coefficient. Every fifth row is left out of the fit and used for the error.
"""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from surgetank.control.lab.steptime import StepModel
from surgetank.telemetry.steprecord import StepRecord

Floats = NDArray[np.float64]
Row = tuple[float, float, float, float]  # P, B, K, seconds

_HELD_OUT = 5
_LEAST_ROWS = 10


class FitError(Exception):
    """No model can be made of that file; str() says what is wrong."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted model. Errors are shares of the measured time, on rows that the fit did not see."""

    model: StepModel
    rows: int
    mape: float  # mean of the absolute error
    p95: float
    prefill_mape: float  # of steps that read prompts; nan without
    decode_mape: float  # of those that did not


@dataclass(frozen=True, slots=True)
class Choice:
    """Which rows of a table of several machines to take; "" takes all."""

    model: str = ""
    hardware: str = ""
    parallel: str = ""


def fit_file(path: Path, choice: Choice | None = None) -> Fit:
    """From step records (JSON lines), or a table of prompt_time and token_time in milliseconds
    (CSV) as splitwise-sim publishes it. Raises FitError."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FitError(f"{path}: {error}") from error
    is_table = path.suffix.lower() == ".csv"
    rows = list(_table(path, text, choice or Choice()) if is_table else _records(path, text))
    if len(rows) < _LEAST_ROWS:
        raise FitError(f"{path} has {len(rows)} usable rows; at least {_LEAST_ROWS} are needed")
    return fit(rows)


def fit(rows: Iterable[Row]) -> Fit:
    """From rows of at least two kinds of step."""
    table = np.array(list(rows), dtype=np.float64)
    inputs = np.column_stack([np.ones(len(table)), table[:, :3]])
    seconds = table[:, 3]
    held_out = np.arange(len(table)) % _HELD_OUT == _HELD_OUT - 1
    found = _non_negative(inputs[~held_out], seconds[~held_out])
    error = np.abs(inputs[held_out] @ found - seconds[held_out]) / seconds[held_out]
    prefill = table[held_out, 0] > 0
    t0, a, b, c = (float(value) for value in found)
    return Fit(
        model=StepModel(t0=t0, a=a, b=b, c=c),
        rows=len(table),
        mape=float(error.mean()),
        p95=float(np.quantile(error, 0.95)),
        prefill_mape=_mean(error[prefill]),
        decode_mape=_mean(error[~prefill]),
    )


def _non_negative(inputs: Floats, seconds: Floats) -> Floats:
    """The best coefficients that are all >= 0, for the relative error."""
    scaled = inputs / seconds[:, None]
    ones = np.ones(len(seconds))
    best, least = np.zeros(4), np.inf
    for size in range(1, 5):
        for columns in combinations(range(4), size):
            part, *_ = np.linalg.lstsq(scaled[:, columns], ones, rcond=None)
            left = float(((scaled[:, columns] @ part - ones) ** 2).sum())
            if (part >= 0).all() and left < least:
                best, least = np.zeros(4), left
                best[list(columns)] = part
    return best


def _records(path: Path, text: str) -> Iterable[Row]:
    decoder = msgspec.json.Decoder(StepRecord)
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise FitError(f"{path}, line {number}: no step record ({error})") from error
        took = record.drain + record.schedule + record.forward + record.sample
        if took > 0 and record.prefill_tokens + record.decode_tokens:
            yield (
                record.prefill_tokens,
                record.decode_seqs,
                record.kv_resident_tokens,
                took,
            )


def _table(path: Path, text: str, choice: Choice) -> Iterable[Row]:
    """Each row tells a prefill of the whole batch, and the mean of its decode steps."""
    wanted = {
        "model": choice.model,
        "hardware": choice.hardware,
        "tensor_parallel": choice.parallel,
    }
    for number, row in enumerate(csv.DictReader(text.splitlines()), 2):
        try:
            if any(value and row[key] != value for key, value in wanted.items()):
                continue
            prompt, batch = int(row["prompt_size"]), int(row["batch_size"])
            context = batch * (prompt + int(row["token_size"]) / 2)
            yield batch * prompt, 0, batch * prompt, float(row["prompt_time"]) / 1000
            yield 0, batch, context, float(row["token_time"]) / 1000
        except (KeyError, TypeError, ValueError) as error:
            raise FitError(f"{path}, line {number}: not of that table's form ({error})") from error


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")
