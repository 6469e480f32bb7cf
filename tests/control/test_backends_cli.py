"""`surgetank backends` before two engines: who gets requests, and draining one of them."""

import pytest
from tests.control.asking import Ask, as_json
from tests.control.service import PlayedService

WHY = ("--why", "new driver", "--who", "ann")


@pytest.fixture
def service() -> PlayedService:
    return PlayedService(engines=2)


def test_all_are_listed_with_what_they_have(service: PlayedService, ask: Ask) -> None:
    for _ in range(3):
        service.rig.send()
    first, second = as_json(ask("backends", "--json"))["backends"]
    assert (first["name"], first["state"], first["running"] + second["running"]) == ("0", "up", 3)
    assert sum(each["routed"]["wait"] for each in (first, second)) == 3
    lines = ask("backends").stdout.splitlines()
    assert lines[0].split()[:5] == ["engine", "state", "for", "in", "it"]
    assert [line.split()[:2] for line in lines[1:]] == [["0", "up"], ["1", "up"]]
    status = ask("status").stdout
    assert "up, 2 running" in status
    assert "up, 1 running" in status


def test_one_is_shown_in_full(ask: Ask) -> None:
    said = ask("backends", "show", "1").stdout
    assert said.startswith("1 embedded")
    assert "tiny on cpu" in said
    assert as_json(ask("backends", "show", "0", "--json"))["name"] == "0"
    missing = ask("backends", "show", "2")
    assert (missing.exit_code, missing.stderr) == (
        2,
        "surgetank: 2 is no engine here; there are: 0, 1\n",
    )


def test_one_is_drained_for_a_while_and_the_other_gets_what_comes(
    service: PlayedService, ask: Ask
) -> None:
    tried = ask("backends", "drain", "0", *WHY, "--ttl", "10m", "--dry-run")
    assert tried.stdout == "would change 0 draining: no -> yes for 10 min\n"
    assert ask("backends", "drain", "0", *WHY, "--ttl", "10m").exit_code == 0
    service.rig.send()
    service.rig.send()
    first, second = as_json(ask("backends", "--json"))["backends"]
    assert (first["state"], first["running"], second["running"]) == ("draining", 0, 2)
    assert first["drain"] == {"who": "ann", "why": "new driver", "expires_in": 600.0}
    assert "ann, 10 min: new driver" in ask("backends", "show", "0").stdout
    assert "0 draining" in ask("journal").stdout
    service.pass_time(601.0)
    assert as_json(ask("backends", "--json"))["backends"][0]["state"] == "up"


def test_the_last_one_is_drained_by_force_alone(ask: Ask) -> None:
    assert ask("backends", "drain", "0", *WHY).exit_code == 0
    refused = ask("backends", "drain", "1", *WHY, "--json")
    assert refused.exit_code == 1
    assert "no other engine takes requests now" in refused.stdout
    assert ask("backends", "drain", "1", *WHY, "--force").exit_code == 0
    assert ask("backends", "undrain", "1", *WHY).stdout == "1 draining: yes -> no\n"


def test_diagnose_tells_who_gets_no_requests(service: PlayedService, ask: Ask) -> None:
    ask("backends", "drain", "0", *WHY)
    assert "engines: 1 of 2 get requests; 0 is draining" in ask("diagnose").stdout
    ask("backends", "drain", "1", *WHY, "--force")
    said = ask("diagnose").stdout
    assert said.startswith("backend\n")
    assert "no engine gets requests: 0 is draining, 1 is draining" in said


def test_an_unknown_engine_is_wrong_usage(ask: Ask) -> None:
    unknown = ask("backends", "drain", "gpu-1", *WHY)
    assert unknown.exit_code == 2
    assert "gpu-1 is no engine here; there are: 0, 1" in unknown.stderr


def test_explain_names_the_engine(service: PlayedService, ask: Ask) -> None:
    request = service.rig.send(headers=(("x-request-id", "r1"),))
    assert request.call is not None
    told = as_json(ask("explain", "r1", "--json"))
    assert (told["backend"], told["moved_from"]) == (request.call.ticket.engine, [])
    assert told["backend"] in ("0", "1")
    arrived = request.call.ticket.arrived
    request.call.ticket.events.append((arrived + 0.25, "moved from 1: it answered 429"))
    lines = [line.strip() for line in ask("explain", "r1").stdout.splitlines()]
    assert any(line.startswith("after 0.25 s") and "1: it answered 429" in line for line in lines)
