"""The fit finds the model that made the steps, and its error is what is left over."""

import random
from pathlib import Path

import msgspec
import pytest
from tests.control.lab.bench import Bench

from surgetank.control.lab.fit import Choice, FitError, Row, fit, fit_file
from surgetank.control.lab.steptime import StepModel

MODEL = StepModel(t0=5e-3, a=30e-6, b=80e-6, c=50e-9)


def rows(noise: float, count: int = 500) -> list[Row]:
    rng = random.Random(1)
    made: list[Row] = []
    for _ in range(count):
        p, b = rng.choice([0, rng.randint(1, 1024)]), rng.randint(1, 64)
        k = b * rng.randint(10, 2000)
        made.append((p, b, k, MODEL.seconds(p, b, k) * rng.lognormvariate(0, noise)))
    return made


def test_finds_the_model_behind_exact_steps() -> None:
    found = fit(rows(noise=0.0))
    for name, value in MODEL.model_dump().items():
        assert getattr(found.model, name) == pytest.approx(value, rel=1e-6)
    assert found.mape < 1e-9


def test_the_error_is_that_of_the_noise() -> None:
    found = fit(rows(noise=0.1))
    assert found.mape == pytest.approx(0.08, abs=0.02)  # E|N(0, .1)| = .08
    assert found.model.a == pytest.approx(MODEL.a, rel=0.05)


def test_no_coefficient_is_negative() -> None:
    shrinking = [(0, b, 100 * (64 - b), 0.010) for b in range(1, 60)]
    shrinking += [(p, 1, 100, 0.010 - p * 1e-6) for p in range(1, 60)]
    found = fit(shrinking).model
    assert min(found.model_dump().values()) >= 0


def test_step_log_of_an_engine(tmp_path: Path) -> None:
    bench = Bench()
    rng = random.Random(2)
    for _ in range(20):
        bench.submit(rng.randint(1, 30), rng.randint(1, 20))
    bench.timeline.run(60.0)
    path = tmp_path / "steps.jsonl"
    path.write_bytes(b"\n".join(msgspec.json.encode(record) for record in bench.records))
    found = fit_file(path)
    assert found.rows == len(bench.records)
    assert found.model.a == pytest.approx(0.001, rel=1e-3)
    assert found.mape < 1e-6


def test_table_of_prompt_and_token_times(tmp_path: Path) -> None:
    lines = [
        "model,hardware,tensor_parallel,prompt_size,batch_size,token_size,prompt_time,token_time"
    ]
    for prompt in (128, 256, 512, 1024):
        for batch in (1, 2, 4, 8):
            read = MODEL.seconds(prompt * batch, 0, prompt * batch) * 1000
            step = MODEL.seconds(0, batch, batch * (prompt + 64)) * 1000
            lines.append(f"m,h100,8,{prompt},{batch},128,{read},{step}")
            lines.append(f"m,slow,8,{prompt},{batch},128,{9 * read},{7 * step}")
    path = tmp_path / "table.csv"
    path.write_text("\n".join(lines))
    found = fit_file(path, Choice(hardware="h100"))
    assert found.rows == 32
    assert found.mape < 1e-9
    assert found.model.t0 == pytest.approx(5e-3, rel=1e-6)


def test_files_that_tell_nothing(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text('{"step": 1}\n')
    with pytest.raises(FitError, match="line 1: no step record"):
        fit_file(path)
    path.write_text("")
    with pytest.raises(FitError, match="0 usable rows"):
        fit_file(path)
