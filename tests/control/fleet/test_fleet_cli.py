"""What an operator sees of shared state, and how acts are told to all."""

import json

import pytest
from pydantic import SecretStr
from tests.control.asking import Ask
from tests.control.conftest import ask, url
from tests.control.service import PlayedService

from surgetank.admission.leases.config import LeasesConfig, TenantQuota
from surgetank.control.fleet.directed import Directed
from surgetank.control.policies.plugins import OURS, Kind, Offer
from surgetank.control.policies.policy import stateless
from surgetank.control.trials import LIVE, OFF

__all__ = ["ask", "url"]

LEASES = LeasesConfig(
    url=SecretStr("redis://127.0.0.1:1"),
    sidecars=4,
    default=TenantQuota(requests_per_minute=240, concurrency=8),
)


@pytest.fixture
def service(request: pytest.FixtureRequest) -> PlayedService:
    """One of four that has not met Redis, unless the test asks for a single one."""
    return PlayedService(leases=getattr(request, "param", LEASES))


def test_fleet_shows_mode_leader_and_shares(service: PlayedService, ask: Ask) -> None:
    service.rig.send()
    done = ask("fleet")
    assert done.exit_code == 0
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "mode alone: Redis is lost: an equal part of each limit" in lines
    assert "sidecars 4" in lines
    assert "leader -" in lines
    assert "- requests_per_minute 60 requests/min 9" in lines
    assert "- concurrency 2 slots 1" in lines
    answer = json.loads(ask("fleet", "--json").stdout)
    assert (answer["mode"], answer["leads"], answer["untold"]) == ("alone", False, 0)
    assert answer["name"].startswith("host-")


def test_status_says_so_in_one_row(ask: Ask) -> None:
    said = " ".join(ask("status").stdout.split())
    assert "shared state alone, 4 sidecars, led by nobody known" in said


def test_an_override_is_for_all_and_waits_until_it_can_be_told(
    service: PlayedService, ask: Ask
) -> None:
    change = ["limits", "set", "queue_requests", "9", "--ttl", "60", "--why", "w", "--json"]
    assert json.loads(ask(*change, "--dry-run").stdout)["fleet"] is True
    assert service.fleet.view().untold == 0
    assert json.loads(ask(*change).stdout)["fleet"] is True
    assert service.fleet.view().untold == 1
    assert "1 acts wait for Redis" in ask("fleet").stdout
    ask("limits", "clear", "queue_requests", "--why", "w")
    assert service.fleet.view().untold == 1  # the newest word alone


def test_a_drain_is_for_this_one_unless_asked_for_all(service: PlayedService, ask: Ask) -> None:
    ask("drain", "--why", "w")
    assert service.fleet.view().untold == 0
    done = ask("undrain", "--why", "w", "--fleet")
    assert done.stdout == "draining at every sidecar: yes -> no\n"
    assert service.fleet.view().untold == 1


def test_a_policy_is_promoted_for_all_and_taken_back(service: PlayedService, ask: Ask) -> None:
    change = ["policy", "promote", "static-queue", "--force", "--why", "w", "--fleet"]
    assert ask(*change, "--dry-run").exit_code == 0
    assert service.fleet.view().untold == 0
    assert ask(*change).exit_code == 0
    assert service.fleet.view().untold == 1
    assert ask("policy", "rollback", "static-queue", "--why", "w", "--fleet").exit_code == 0


def test_a_fleets_policy_is_followed_and_what_cannot_be_is_said(
    service: PlayedService, caplog: pytest.LogCaptureFixture
) -> None:
    directed = Directed(service.trials)
    directed.use("static-queue", who="ann", why="w", ttl=None)
    assert service.trials.state("static-queue") == LIVE
    directed.use("static-queue", who="ann", why="again", ttl=None)
    assert directed.fallen() is None
    directed.use("", who="ann", why="back", ttl=None)
    assert service.trials.state("static-queue") != LIVE
    assert directed.fallen() is None
    directed.use("no_such", who="ann", why="w", ttl=None)
    assert "policy no_such cannot be followed here" in caplog.text


def test_a_fleets_policy_takes_the_place_of_the_one_before_whatever_they_decide(
    service: PlayedService,
) -> None:
    service.table["shut"] = Offer("shut", Kind.CONTROL, "", OURS, stateless(lambda *_: {}))
    directed = Directed(service.trials)
    directed.use("shut", who="ann", why="w", ttl=None)
    assert service.trials.state("shut") == LIVE
    directed.use("static-queue", who="ann", why="w", ttl=None)
    assert (service.trials.state("shut"), service.trials.state("static-queue")) == (OFF, LIVE)


@pytest.mark.parametrize("service", [None], indirect=True)
def test_a_single_sidecar_has_nobody_to_tell(service: PlayedService, ask: Ask) -> None:
    answer = json.loads(ask("fleet", "--json").stdout)
    assert (answer["mode"], answer["sidecars"], answer["name"]) == ("single", 1, "")
    assert answer["shares"] == []
    assert "shared state" not in ask("status").stdout
    done = ask("drain", "--why", "w", "--fleet", "--json")
    assert json.loads(done.stdout)["fleet"] is False
