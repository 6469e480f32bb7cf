"""The operator's commands over a running admin API: what they show, do, refuse and journal."""

import json

import pytest
from tests.admission.rig import Door
from tests.control.asking import Ask, as_json
from tests.control.service import PlayedService

from surgetank.admission.limits import Limit
from surgetank.telemetry.vocabulary import Lane, Priority

WHY = ("--why", "drill", "--who", "ada")


def test_diagnose_for_people_and_for_scripts(service: PlayedService, ask: Ask) -> None:
    answer = as_json(ask("diagnose", "--json"))
    assert set(answer) == {"verdict", "evidence", "next"}
    assert answer["verdict"] == "healthy"
    service.rig.backend.die()
    lines = ask("diagnose").stdout.splitlines()
    assert lines[0] == "backend"
    assert lines[1].strip().startswith("the engine is not connected")
    assert lines[-1] == "next: surgetank backends"
    assert as_json(ask("diagnose", "--slo", "tpot", "--json"))["verdict"] == "backend"
    assert ask("diagnose", "--slo", "speed").exit_code == 2


def test_explain_a_refused_a_running_and_an_ended_request(service: PlayedService, ask: Ask) -> None:
    for name, choices in (("a b/c", 1), ("wide", 99), ("runs", 1)):
        service.rig.send(headers=[("x-request-id", name.replace(" ", "-"))], n=choices)
    service.rig.backend.finish(1)
    assert as_json(ask("explain", "a-b/c", "--json"))["state"] == "served"
    assert as_json(ask("explain", "runs", "--json"))["state"] == "running"
    refused = ask("explain", "wide").stdout
    assert "never_fits_slots" in refused
    assert "limit max_n" in refused
    assert "if it came now" not in refused  # it would be refused at any load
    assert "if it came now" in ask("explain", "runs").stdout


def test_explain_of_an_unknown_request_ends_with_1_and_a_sentence(ask: Ask) -> None:
    result = ask("explain", "nobody")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no request 'nobody' is in flight or among the last 0 that ended" in result.stderr


def test_queue_ls_lists_who_waits(service: PlayedService, ask: Ask) -> None:
    service.rig.occupy(8)
    service.rig.send(headers=[("x-request-id", "late"), ("x-surgetank-tenant", "acme")])
    answer = as_json(ask("queue", "ls", "--json"))
    assert [each["id"] for each in answer["requests"]] == ["late"]
    assert next(each for each in answer["levels"] if each["priority"] == "default")["first"] == 1
    assert "late" in ask("queue", "ls").stdout
    assert as_json(ask("queue", "ls", "--running", "--json"))["total"] == 2


def test_memory_backends_and_slo_show_what_is_known(service: PlayedService, ask: Ask) -> None:
    service.rig.send()
    assert as_json(ask("memory", "--json"))["promised"] >= 1
    assert "512 blocks of 16 tokens" in ask("memory").stdout
    assert as_json(ask("backends", "--json"))["backends"][0]["up"] is True
    assert "tiny on cpu" in ask("backends").stdout
    service.rig.backend.finish(1)
    report = as_json(ask("slo", "--json", "--price-per-hour", "2"))
    assert report["cost"]["price_per_hour"] == 2.0
    assert "goodput" in ask("slo").stdout
    service.rig.backend.die()
    for command in ("memory", "backends", "slo", "top"):
        assert ask(command).exit_code == 0, command


def test_admission_reasons_count_outcomes_by_reason_and_class(
    service: PlayedService, ask: Ask
) -> None:
    service.rig.send(n=99)
    service.rig.send(n=99, priority=Priority.BATCH)
    rows = as_json(ask("admission", "reasons", "--json"))["reasons"]
    assert rows == [
        {
            "outcome": "invalid",
            "reason": "never_fits_slots",
            "total": 2,
            "by_class": {"default": 1, "batch": 1},
        }
    ]
    assert "never_fits_slots" in ask("admission", "reasons").stdout


def test_retries_top_names_fingerprints_and_no_text(service: PlayedService, ask: Ask) -> None:
    service.pass_time(0.5)
    for _ in range(3):
        door = service.rig.send()
        assert door.call is not None
        door.call.cancel()
    answer = as_json(ask("retries", "top", "--json"))
    assert (answer["first"], answer["retries"]) == (1, 2)
    (top,) = answer["top"]
    assert (top["retries"], top["highest_attempt"]) == (2, 2)
    assert (top["detected_by"], top["outcomes"]) == ("fingerprint", {"cancelled": 3})
    assert len(top["fingerprint"]) == 12
    assert top["fingerprint"] in ask("retries", "top").stdout


def test_top_once_is_one_screen_and_as_json_one_document(service: PlayedService, ask: Ask) -> None:
    service.rig.send()
    answer = as_json(ask("top", "--once", "--json"))
    assert answer["diagnosis"]["verdict"] == "healthy"
    assert (answer["running"], answer["slots"]) == (1, 8)
    screen = ask("top", "--once").stdout
    for word in ("verdict", "healthy", "slots", "1 of 8", "sheddable"):
        assert word in screen
    lines = ask("top", "--json", "--count", "2", "--interval", "0.2").stdout.splitlines()
    assert [json.loads(line)["model"] for line in lines] == ["tiny", "tiny"]


def test_shed_says_before_and_after_and_is_journaled(service: PlayedService, ask: Ask) -> None:
    tried = ask("shed", "--below", "default", "--ttl", "5m", *WHY, "--dry-run")
    assert tried.stdout == "would change lowest_class: 3 -> 1 for 5 min\n"
    assert service.limits.get(Limit.LOWEST_CLASS) == 3
    done = ask("shed", "--below", "default", "--ttl", "5m", *WHY)
    assert done.stdout == "lowest_class: 3 -> 1 for 5 min\n"
    (entry,) = service.journal.recent()
    assert (entry.what, entry.before, entry.after, entry.who) == ("lowest_class", 3, 1, "ada")
    batch, plain = Door(), Door()
    service.rig.send(priority=Priority.BATCH, door=batch)
    service.rig.send(priority=Priority.CRITICAL, door=plain)
    assert batch.refusal is not None
    assert plain.refusal is None
    service.pass_time(301.0)
    assert service.limits.get(Limit.LOWEST_CLASS) == 3


@pytest.mark.parametrize("below", ["sheddable", "nobody"])
def test_critical_cannot_be_shed(ask: Ask, below: str) -> None:
    result = ask("shed", "--below", below, "--ttl", "5m", *WHY)
    assert result.exit_code == 2


def test_the_retry_lane_is_not_widened_in_a_storm(service: PlayedService, ask: Ask) -> None:
    set_rate = ("retry-lane", "set-rate")
    assert ask(*set_rate, "0.3", "--ttl", "1m", *WHY).exit_code == 0
    service.pass_time(1.0)
    for attempt in range(12):
        headers = [("x-stainless-retry-count", str(attempt + 1))]
        ticket = service.rig.arrive(headers)
        assert ticket.lane is Lane.RETRY
        service.rig.send(headers=headers)
    refused = ask(*set_rate, "0.5", "--ttl", "1m", *WHY, "--dry-run")
    assert refused.exit_code == 1
    assert "feed the storm" in refused.stderr
    error = json.loads(ask(*set_rate, "0.5", "--ttl", "1m", *WHY, "--json").stdout)["error"]
    assert error["code"] == "would_worsen"
    assert ask(*set_rate, "0.5", "--ttl", "1m", *WHY, "--force").exit_code == 0
    assert ask(*set_rate, "2", "--ttl", "1m", *WHY).exit_code == 2


def test_pin_holds_a_limit_where_it_stands_but_not_at_a_used_up_floor(
    service: PlayedService, ask: Ask
) -> None:
    pinned = ask("limits", "pin", "queue_requests", "--ttl", "30m", *WHY)
    assert pinned.stdout == "queue_requests: 256 -> 256 for 30 min\n"
    ask("limits", "set", "in_flight_seqs", "1", "--ttl", "1m", *WHY)
    service.rig.send()
    refused = ask("limits", "pin", "in_flight_seqs", "--ttl", "30m", *WHY)
    assert refused.exit_code == 1
    assert "in_flight_seqs is at its floor (1) and used up" in refused.stderr
    assert ask("limits", "pin", "in_flight_seqs", "4", "--ttl", "30m", *WHY).exit_code == 0
    unknown = ask("limits", "pin", "nothing", "--ttl", "30m", *WHY)
    assert (unknown.exit_code, "no limit 'nothing'" in unknown.stderr) == (2, True)


@pytest.mark.parametrize(
    ("name", "amount", "after"),
    [
        ("queue_requests", "50%", 128.0),
        ("queue_requests", "200%", 512.0),
        ("queue_requests", "33%", 84.0),
        ("queue_requests", "0.01%", 1.0),
        ("kv_reserve", "75%", 0.69),
        ("kv_reserve", "400%", 1.0),
        ("max_batch_tokens", "max", 256.0),
        ("kappa", "0.3", 0.3),
    ],
)
def test_a_limit_may_be_set_to_a_share_of_what_holds(
    service: PlayedService, ask: Ask, name: str, amount: str, after: float
) -> None:
    done = ask("limits", "set", name, amount, "--ttl", "1m", *WHY)
    assert done.exit_code == 0, done.output
    assert service.limits.get(Limit(name)) == pytest.approx(after)


def test_a_share_is_of_what_holds_without_an_override(service: PlayedService, ask: Ask) -> None:
    service.limits.set_maximum(Limit.IN_FLIGHT_SEQS, 64, "engine")
    for _ in range(3):  # pressed thrice, it is the same
        assert ask("limits", "set", "in_flight_seqs", "50%", "--ttl", "1m", *WHY).exit_code == 0
    assert service.limits.get(Limit.IN_FLIGHT_SEQS) == 32
    assert ask("limits", "pin", "in_flight_seqs", "--ttl", "1m", *WHY).exit_code == 0
    assert service.limits.get(Limit.IN_FLIGHT_SEQS) == 32  # where it stands
    shown = {limit["name"]: limit for limit in as_json(ask("limits", "show", "--json"))["limits"]}
    assert shown["in_flight_seqs"]["base"] == 64  # what the engine can run
    for _ in range(2):
        assert ask("retry-lane", "set-rate", "20%", "--ttl", "1m", *WHY).exit_code == 0
    assert service.limits.get(Limit.RETRY_SHARE) == pytest.approx(0.02)


@pytest.mark.parametrize("amount", ["half", "0%", "inf%", "nan%", "%"])
def test_an_amount_that_is_none_is_wrong_usage(ask: Ask, amount: str) -> None:
    refused = ask("limits", "set", "kappa", amount, "--ttl", "1m", *WHY)
    assert refused.exit_code == 2
    assert "allowed:" in refused.output


def test_limits_history_is_the_journal_of_limits_alone(service: PlayedService, ask: Ask) -> None:
    ask("drain", *WHY)
    ask("limits", "set", "max_n", "2", "--ttl", "1m", *WHY)
    ask("limits", "set", "kappa", "0.5", "--ttl", "1m", *WHY)
    every = as_json(ask("limits", "history", "--json"))["entries"]
    assert [entry["what"] for entry in every] == ["max_n", "kappa"]
    one = as_json(ask("limits", "history", "kappa", "--json"))["entries"]
    assert [entry["after"] for entry in one] == [0.5]
    assert "16 -> 2" in ask("limits", "history", "max_n").stdout
    assert ask("limits", "history", "nothing").exit_code == 2


def test_a_runbook_is_shown_with_its_commands_filled_in(ask: Ask) -> None:
    text = ask("runbook", "LimitFlapping", "--limit", "kv_reserve", "--url", "http://h:1").stdout
    assert "surgetank limits history kv_reserve --url http://h:1" in text
    assert "queue_requests --" not in text
    sections = as_json(ask("runbook", "RetryStorm", "--json"))["sections"]
    assert list(sections) == ["Meaning", "Impact", "Diagnosis", "Mitigation"]
    assert "surgetank retries top" in sections["Diagnosis"]["commands"]
    assert "RetryStorm" in ask("runbook").stdout.splitlines()
    wrong = ask("runbook", "RetryStrom")
    assert (wrong.exit_code, "did you mean RetryStorm?" in wrong.stderr) == (2, True)


def test_a_runbooks_diagnosis_can_be_run(service: PlayedService, ask: Ask) -> None:
    result = ask("runbook", "RetryStorm", "--run")
    assert result.exit_code == 0
    assert "$ surgetank diagnose" in result.stdout
    assert "healthy" in result.stdout
    assert service.journal.recent() == []
