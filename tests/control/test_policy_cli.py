"""`surgetank policy` over a running admin API."""

import json

import pytest
from tests.control.asking import Ask, as_json
from tests.control.policies.crowd import Crowd
from tests.control.service import PlayedService

WHY = ("--why", "drill", "--who", "ada")


@pytest.fixture
def crowd() -> Crowd:
    return Crowd()


@pytest.fixture
def service(crowd: Crowd) -> PlayedService:
    """The one that the admin API serves."""
    return crowd.service


def test_list_shows_kind_state_and_what_is_wrong(ask: Ask) -> None:
    rows = {each["name"]: each for each in as_json(ask("policy", "list", "--json"))["policies"]}
    assert (rows["laws"]["kind"], rows["laws"]["state"]) == ("admission", "live")
    assert (rows["brownout"]["kind"], rows["brownout"]["state"]) == ("control", "live")
    assert (rows["gradient2"]["state"], rows["gradient2"]["who"]) == ("off", None)
    assert (rows["ill"]["kind"], rows["ill"]["problem"]) == (None, "it is not well")
    said = ask("policy", "list").stdout
    assert "it is not well" in said
    assert "configuration" in said


def test_a_shadow_from_its_beginning_to_its_end(crowd: Crowd, ask: Ask) -> None:
    begun = ask("policy", "shadow", "half", "--ttl", "10m", *WHY)
    assert begun.stdout == "policy half: off -> shadow for 10 min\n"
    crowd.calls(20)
    shown = as_json(ask("policy", "show", "half", "--json"))
    shadow = shown["shadow"]
    assert (shadow["both_admit"], shadow["would_refuse"], shadow["agreement"]) == (10, 10, 0.5)
    assert shadow["would_refuse_reasons"] == {"in_flight": 10}
    assert shadow["would_refuse_ended"] == {"good": 10}
    assert (shown["who"], shown["why"]) == ("ada", "drill")
    said = ask("policy", "show", "half").stdout
    assert "10 (in_flight 10)" in said
    ended = as_json(ask("policy", "rollback", "half", *WHY, "--json"))
    assert ended == {
        "what": "policy half",
        "before": "shadow",
        "after": "off",
        "ttl": None,
        "dry_run": False,
    }
    assert "operator: drill" in ask("policy", "show", "half").stdout


def test_a_canary_is_compared_and_promoted(crowd: Crowd, ask: Ask) -> None:
    begun = ask("policy", "canary", "welcome", "--share", "30%", "--ttl", "2h", *WHY)
    assert begun.stdout == "policy welcome: off -> canary 0.3 for 2.0 h\n"
    early = ask("policy", "promote", "welcome", *WHY)
    assert (early.exit_code, early.stdout) == (1, "")
    assert "0 calls of the 50 that say something" in early.stderr
    crowd.calls(300)
    window = as_json(ask("policy", "show", "welcome", "--json"))["canary"]["current"]
    assert window["live"]["calls"] + window["candidate"]["calls"] == 300
    assert (window["candidate"]["goodput"], window["candidate"]["late_share"]) == (1.0, 0.0)
    assert window["evidence_goodput"] < 50
    assert "100.0%" in ask("policy", "show", "welcome").stdout
    done = ask("policy", "promote", "welcome", *WHY)
    assert done.stdout == "policy welcome: canary 0.3 -> live\n"
    assert "canary 0.3 -> live" in ask("journal").stdout
    crowd.calls(3)
    assert as_json(ask("policy", "show", "welcome", "--json"))["probation"] == {
        "good": 3,
        "late": 0,
    }
    assert "3 in time, 0 late" in ask("policy", "show", "welcome").stdout


def test_dry_run_says_what_would_be_and_changes_nothing(crowd: Crowd, ask: Ask) -> None:
    said = ask("policy", "promote", "never", "--force", "--ttl", "5m", "--dry-run", *WHY)
    assert said.stdout == "would change policy never: off -> live for 5 min\n"
    assert crowd.trials.state("never") == "off"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("canary", "lucky", "--ttl", "5m", *WHY), 2, "no policy 'lucky'; there are: "),
        (("canary", "ill", "--ttl", "5m", *WHY), 2, "it is not well"),
        (("canary", "half", "--share", "80%", "--ttl", "5m", *WHY), 2, "allowed: 1% to 50%"),
        (("canary", "half", "--share", "some", "--ttl", "5m", *WHY), 2, "allowed: 1% to 50%"),
        (("shadow", "half", *WHY), 2, "Missing option '--ttl'"),
        (("shadow", "half", "--ttl", "5m"), 2, "Missing option '--why'"),
        (("rollback", "laws", *WHY), 1, "laws is live by configuration"),
        (("promote", "half", *WHY), 1, "half was no canary"),
    ],
)
def test_errors_are_sentences(ask: Ask, arguments: tuple[str, ...], code: int, said: str) -> None:
    result = ask("policy", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_an_error_as_json(ask: Ask) -> None:
    result = ask("policy", "rollback", "laws", *WHY, "--json")
    assert json.loads(result.stdout)["error"]["code"] == "would_worsen"
