"""The admin API: every route, one shape of error, who may call, and what the journal keeps."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.control.service import PlayedService

from surgetank.control.api import create_app

BY = {"who": "ada", "why": "burst"}


@pytest.fixture
def api(service: PlayedService) -> Iterator[TestClient]:
    with TestClient(create_app(service), base_url="http://127.0.0.1") as client:
        yield client


def limit(api: TestClient, name: str) -> dict[str, Any]:
    limits: list[dict[str, Any]] = api.get("/limits").json()["limits"]
    return next(each for each in limits if each["name"] == name)


def test_status_counts_what_the_desk_saw(service: PlayedService, api: TestClient) -> None:
    service.rig.send()
    service.rig.backend.finish(1)
    service.rig.send(n=99)
    service.rig.send()
    status = api.get("/status").json()
    assert status["state"] == "ready"
    assert status["engine"]["model"] == "tiny"
    assert status["requests"]["received"] == 3
    assert status["requests"]["in_flight"] == 1
    outcomes = {name: count for name, count in status["requests"]["outcomes"].items() if count}
    assert outcomes == {"ok": 1, "invalid": 1}
    service.rig.backend.die()
    status = api.get("/status").json()
    assert (status["state"], status["engine"]) == ("backend_down", None)


def test_an_override_shows_everywhere_and_expires(service: PlayedService, api: TestClient) -> None:
    answer = api.put("/limits/queue_requests", json={"value": 50, "ttl": 600, **BY})
    assert answer.status_code == 200
    assert answer.json() == {
        "what": "queue_requests",
        "before": 256,
        "after": 50,
        "ttl": 600,
        "dry_run": False,
        "fleet": False,
    }
    service.pass_time(100.0)
    held = limit(api, "queue_requests")
    assert (held["value"], held["base"]) == (50, 256)
    assert held["override"] == {"value": 50, "expires_in": 500, **BY}
    service.pass_time(500.0)
    held = limit(api, "queue_requests")
    assert (held["value"], held["override"]) == (256, None)
    causes = [entry["cause"] for entry in api.get("/journal?last=2").json()["entries"]]
    assert causes == ["operator", "expiry"]


def test_a_dry_run_checks_and_changes_nothing(service: PlayedService, api: TestClient) -> None:
    body = {"value": 50, "ttl": 600, "dry_run": True, **BY}
    assert api.put("/limits/queue_requests", json=body).json()["after"] == 50
    assert service.limits.get(service.limits.snapshot()[0].name) == 256
    assert service.journal.recent() == []
    assert api.put("/limits/queue_requests", json={**body, "value": 0}).status_code == 422


def test_an_override_can_be_ended(service: PlayedService, api: TestClient) -> None:
    api.put("/limits/max_n", json={"value": 2, "ttl": 600, **BY})
    answer = api.request("DELETE", "/limits/max_n", json=BY).json()
    assert (answer["before"], answer["after"]) == (2, 16)
    again = api.request("DELETE", "/limits/max_n", json=BY).json()
    assert (again["before"], again["after"]) == (16, 16)
    assert len(service.journal.recent()) == 2


def test_drain_and_undrain(service: PlayedService, api: TestClient) -> None:
    assert api.post("/drain", json=BY).json()["after"] is True
    assert api.get("/status").json()["drain"] == {"expires_in": None, **BY}
    assert api.post("/undrain", json=BY).json()["before"] is True
    assert api.post("/undrain", json=BY).json()["before"] is False
    assert service.turns == [True, False]
    assert [entry.after for entry in service.journal.recent()] == [True, False]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "says"),
    [
        ("PUT", "/limits/queue", {"value": 1, "ttl": 1}, 404, "not_found", "there are: queue_re"),
        ("PUT", "/limits/max_n", {"value": 0, "ttl": 1}, 422, "invalid", "allowed: 1 to 128"),
        ("PUT", "/limits/max_n", {"value": 2.5, "ttl": 1}, 422, "invalid", "whole numbers"),
        ("PUT", "/limits/max_n", {"value": "many", "ttl": 1}, 422, "invalid", "value: "),
        ("PUT", "/limits/max_n", {"value": 2}, 422, "invalid", "ttl: Field required"),
        ("PUT", "/limits/max_n", {"value": 2, "ttl": 0}, 422, "invalid", "ttl: "),
        ("PUT", "/limits/max_n", {"value": 2, "ttl": 1, "who": ""}, 422, "invalid", "who: "),
        ("PUT", "/limits/max_n", {"value": 2, "ttl": 1, "x": 1}, 422, "invalid", "x: Extra"),
        ("PUT", "/limits/max_n", {"value": 2, "ttl": 1, "why": "\x1b[2J"}, 422, "invalid", "why: "),
        ("PUT", "/limits/max_n", {"value": 2, "ttl": 1, "who": "a\nb"}, 422, "invalid", "who: a"),
        ("PUT", "/limits/max_n/", {"value": 2, "ttl": 1}, 404, "not_found", "Not Found"),
        ("DELETE", "/limits/nothing", {}, 404, "not_found", "no limit 'nothing'"),
        ("POST", "/drain", {"ttl": -1}, 422, "invalid", "ttl: "),
        ("GET", "/journal?last=0", {}, 422, "invalid", "last: "),
        ("GET", "/nowhere", {}, 404, "not_found", "Not Found"),
        ("POST", "/status", {}, 405, "failed", "Method Not Allowed"),
    ],
)
def test_every_error_has_one_shape(
    api: TestClient,
    method: str,
    path: str,
    body: dict[str, Any],
    status: int,
    code: str,
    says: str,
) -> None:
    answer = api.request(method, path, json={**BY, **body})
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["code"] == code
    assert says in error["message"]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "{", "[]"])
def test_bodies_that_are_no_finite_json_change_nothing(
    service: PlayedService, api: TestClient, text: str
) -> None:
    body = f'{{"value": {text}, "ttl": 1, "who": "a", "why": "b"}}'
    headers = {"content-type": "application/json"}
    answer = api.put("/limits/max_n", content=body, headers=headers)
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "invalid"
    assert service.journal.recent() == []


def test_a_token_is_asked_for_when_there_is_one(service: PlayedService) -> None:
    with TestClient(create_app(service, "s3cret"), base_url="http://admin.example") as api:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "s3cret"}):
            answer = api.get("/status", headers=headers)
            assert answer.status_code == 401
            assert answer.json()["error"]["code"] == "unauthenticated"
        right = {"authorization": "Bearer s3cret"}
        assert api.get("/status", headers=right).status_code == 200


def test_a_page_in_a_browser_cannot_reach_it_by_a_name(service: PlayedService) -> None:
    with TestClient(create_app(service), base_url="http://rebound.example") as api:
        answer = api.post("/drain", json=BY)
    assert answer.status_code == 403
    assert service.turns == []


def test_a_form_is_not_taken_for_json(service: PlayedService, api: TestClient) -> None:
    text = '{"who": "page", "why": "forged"}'
    answer = api.post("/drain", content=text, headers={"content-type": "text/plain"})
    assert answer.status_code == 422
    assert service.turns == []


def test_a_fault_of_ours_shows_no_traceback(service: PlayedService) -> None:
    service.status = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    app = create_app(service)
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as api:
        answer = api.get("/status")
    assert answer.status_code == 500
    assert answer.json()["error"]["message"] == "the admin API failed; its log says why"


def test_the_schema_names_every_route(api: TestClient) -> None:
    paths = api.get("/openapi.json").json()["paths"]
    assert set(paths) == {
        "/health",
        "/version",
        "/status",
        "/limits",
        "/limits/{name}",
        "/limits/history",
        "/journal",
        "/diagnose",
        "/explain/{request_id}",
        "/top",
        "/slo",
        "/queue",
        "/memory",
        "/retries",
        "/backends",
        "/backends/{name}/drain",
        "/backends/{name}/undrain",
        "/admission/reasons",
        "/steps",
        "/kv",
        "/stacks",
        "/drain",
        "/undrain",
        "/fleet",
        "/policies",
        "/policies/{name}",
        "/policies/{name}/shadow",
        "/policies/{name}/canary",
        "/policies/{name}/promote",
        "/policies/{name}/rollback",
    }


def test_the_page_for_people_needs_no_network(api: TestClient) -> None:
    text = api.get("/docs").text
    assert "<code>/limits/{name}</code>" in text
    assert "<code>ttl</code>" in text
    assert "//" not in text.replace("<!doctype", ""), "nothing is loaded from elsewhere"
