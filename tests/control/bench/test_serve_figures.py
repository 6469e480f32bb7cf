"""The figures of a serving benchmark, out of rows whose times are known."""

from dataclasses import replace

import pytest

from surgetank.admission.client.hints import NEVER, Hint
from surgetank.control.bench.load.attempts import Attempt
from surgetank.control.bench.load.watch import Strain
from surgetank.control.bench.serve.figures import by_client, errors_of, figures_of, is_good
from surgetank.control.bench.serve.inputs import Call
from surgetank.control.bench.serve.player import Played
from surgetank.control.bench.serve.report import notes_of, tables_of
from surgetank.control.bench.serve.rows import Answer, Row
from surgetank.control.bench.serve.wishes import Slo

STRAIN = Strain(lag_p99=0.001, late_p99=0.002, cpu=0.1)


def row(due: float, *times: float, attempts: tuple[Attempt, ...] = (), error: str = "") -> Row:
    """Prompt of 100, counted as 110; four tokens asked for."""
    answer = Answer(list(times), 110, 4 if times else None, error=error, attempts=list(attempts))
    ended = times[-1] if times else due + 0.5
    return Row(Call(0.0, 100, 4, "openai"), due, due + 0.1, ended, answer)


def played(*rows: Row) -> Played:
    return Played(list(rows), begun=0.0, ended=10.0, strain=STRAIN, cut=0)


def test_rates_and_latencies() -> None:
    rows = (
        row(1.0, 2.0, 2.1, 2.2, 2.3, attempts=(Attempt(1.5, 200),)),
        row(1.0, 4.0, 4.3, 4.6, 4.9, attempts=(Attempt(1.1, 200),)),
        row(1.0, error="APITimeoutError", attempts=(Attempt(1.1),)),
    )
    found = figures_of(played(*rows), Slo(ttft=1.5, tpot=0.2))
    assert (found["completed"], found["failed"], found["duration"]) == (2, 1, 10.0)
    assert (found["total_input_tokens"], found["total_output_tokens"]) == (220, 8)
    assert found["request_throughput"] == 0.2
    assert found["output_throughput"] == 0.8
    assert found["total_token_throughput"] == 22.8
    assert (found["request_goodput"], found["good_share"]) == (0.1, pytest.approx(1 / 3, rel=1e-4))
    assert (found["mean_ttft_ms"], found["median_ttft_ms"]) == (2000.0, 2000.0)
    assert found["p90_ttft_ms"] == pytest.approx(2800)
    assert found["mean_served_ttft_ms"] == pytest.approx((500 + 2900) / 2)
    assert (found["mean_tpot_ms"], found["std_tpot_ms"]) == (pytest.approx(200), pytest.approx(100))
    assert found["mean_itl_ms"] == pytest.approx(200)
    assert found["mean_e2el_ms"] == pytest.approx((1300 + 3900) / 2)
    assert found["prompt_tokens_error"] == pytest.approx(0.1)
    assert found["output_tokens_error"] == 0.0
    assert found["max_concurrent_requests"] == 3
    assert errors_of(rows) == {"APITimeoutError": 1}


def test_time_counts_from_when_a_call_was_meant_to_leave() -> None:
    late = replace(row(1.0, 9.0, 9.1, 9.2, 9.3), left=8.9)
    assert late.ttft == 8.0


def test_a_stream_of_several_tokens_a_piece_is_counted_by_the_server() -> None:
    two = Row(Call(0.0, 5, 9, "httpx"), 0.0, 0.0, 2.0, Answer([1.0, 2.0], 5, 9))
    assert two.tpot == 1.0 / 8
    unsaid = replace(two, answer=Answer([1.0, 2.0]))
    assert (unsaid.output, unsaid.prompt, unsaid.tpot) == (2, 5, 1.0)


def test_an_answer_that_comes_as_a_whole_has_no_first_token() -> None:
    whole = Row(Call(0.0, 5, 11, "grpc"), 0.0, 0.0, 2.0, Answer([2.0], 5, 11, whole=True))
    assert (whole.ttft, whole.tpot, whole.served_ttft) == (None, None, None)
    assert is_good(whole, Slo(ttft=1.0, tpot=0.1))
    assert not is_good(whole, Slo(ttft=0.9, tpot=0.1))
    assert not is_good(whole, Slo(e2el=1.9))


def test_attempts_refusals_and_obedience() -> None:
    wait = Hint(retry=True, wait=1.0)
    obeyed = (Attempt(0.0, 429, 0.1, "predicted_wait", wait), Attempt(1.2, 200, 1.3))
    hasty = (Attempt(0.0, 429, 0.1, "predicted_wait", wait), Attempt(0.2, 200, 0.3))
    stayed = (Attempt(0.0, 429, 0.1, "retry_budget", NEVER),)
    deaf = (Attempt(0.0, 429, 0.1, "retry_budget", NEVER), Attempt(0.2, 429, 0.3, "HTTP 429"))
    rows = [row(0.0, 5.0, attempts=each) for each in (obeyed, hasty, stayed, deaf)]
    found = figures_of(played(*rows), Slo())
    assert found["attempts_per_request"] == 1.75
    assert found["refusals"] == {"predicted_wait": 2, "retry_budget": 2, "HTTP 429": 1}
    assert (found["advised"], found["advised_again"], found["advice_obeyed"]) == (2, 2, 1)
    assert (found["told_never"], found["never_obeyed"]) == (2, 1)


def test_each_kind_of_client_has_its_row() -> None:
    other = row(0.0, error="HTTP 429")
    other = replace(other, call=Call(0.0, 1, 1, "no-retry"))
    kinds = by_client([row(0.0, 1.0, 1.1), other], Slo(ttft=2.0))
    assert list(kinds) == ["no-retry", "openai"]
    assert kinds["no-retry"]["good_share"] == 0.0
    assert kinds["no-retry"]["median_ttft_ms"] is None
    assert kinds["openai"]["median_ttft_ms"] == 1000.0


def test_a_run_without_an_answer_is_told_too() -> None:
    found = figures_of(played(row(0.0, error="APIConnectionError")), Slo(ttft=1.0))
    assert found["mean_ttft_ms"] is None
    tables = tables_of(found, {"APIConnectionError": 1})
    assert ["Failed in the end: APIConnectionError", "1"] in tables[2]["rows"]
    assert ["TTFT, from the intended time", "-", "-", "-", "-"] in tables[1]["rows"]


def test_a_generator_that_measures_itself_says_so() -> None:
    quick = replace(played(row(0.0, 0.002, 0.003)), strain=Strain(0.5, 0.0, 0.1))
    assert "measured itself" in notes_of(figures_of(quick, Slo()))[-1]
    calm = played(row(0.0, 2.0, 2.1))
    assert "measured itself" not in notes_of(figures_of(calm, Slo()))[-1]
