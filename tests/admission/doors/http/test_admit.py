"""The page that nginx asks: what it answers, and how slots come back."""

import random
from collections.abc import AsyncIterator

import orjson
import pytest
from tests.admission.doors.carriage_rig import URL, CarriageRig, KeepingDoor, carriage_rig
from tests.fakes_http import RawClient

from surgetank.admission.doors.carried import BlindOrder, Carried
from surgetank.admission.doors.http.admit import AdmitRoutes
from surgetank.admission.doors.http.config import HttpConfig
from surgetank.admission.doors.http.routes import Health
from surgetank.admission.doors.http.server import HttpServer
from surgetank.telemetry.vocabulary import Outcome, Reason

LEASE = 60.0
Answer = tuple[int, dict[str, str], bytes]


class AdmitRig:
    """The page and one nginx's connections to it."""

    def __init__(self, rig: CarriageRig, server: HttpServer) -> None:
        self.rig = rig
        self.server = server
        self.clients: list[RawClient] = []

    async def send(self, path: str, method: str = "GET", **headers: str) -> RawClient:
        client = await RawClient.connect(self.server.port)
        self.clients.append(client)
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        client.send(f"{method} {path} HTTP/1.1\r\nhost: x\r\n{lines}\r\n".encode())
        return client

    async def ask(self, path: str = "/admit", **headers: str) -> Answer:
        return await (await self.send(path, **headers)).response()


@pytest.fixture
async def page() -> AsyncIterator[AdmitRig]:
    async with carriage_rig() as rig:
        rng = random.Random(1)
        server = HttpServer(
            HttpConfig(port=0),
            rig.desk,
            AdmitRoutes(rig.carriage, LEASE, rig.clock, rng),
            health=lambda: Health(True, True),
            metrics=lambda accept: lambda: (b"", "text/plain"),
            clock=rig.clock,
            rng=rng,
        )
        await server.start()
        page = AdmitRig(rig, server)
        yield page
        for client in page.clients:
            client.close()
        await server.stop()


async def test_a_slot_is_granted_and_released_once(page: AdmitRig) -> None:
    status, headers, _ = await page.ask(x_original_content_length="400", x_request_id="r-1")
    assert (status, headers["x-request-id"]) == (200, "r-1")
    grant = headers["x-surgetank-grant"]
    assert len(grant) == 32
    assert headers["x-surgetank-backend"] == URL
    assert page.rig.dispatched == 1
    assert (await page.ask("/release", x_surgetank_grant=grant))[0] == 200
    assert page.rig.dispatched == 0
    assert (await page.ask("/release", x_surgetank_grant=grant))[0] == 404
    assert page.rig.ended() == [(Outcome.OK, Reason.NONE)]
    assert page.rig.desk.recent()[0].ticket.prompt_tokens == 100


async def test_a_refusal_is_a_403_that_says_what_to_answer(page: AdmitRig) -> None:
    await page.ask()
    waiting = Carried(page.rig.carriage, KeepingDoor(), "admit", [], "", "/admit")
    waiting.ask(BlindOrder("/admit", waiting.ticket.id, 8, 4))
    status, headers, body = await page.ask()
    assert (status, body) == (403, b"")
    assert headers["x-surgetank-status"] == "429"
    assert headers["x-surgetank-reason"] == "queue_requests"
    assert int(headers["retry-after-ms"]) >= 50
    assert orjson.loads(headers["x-surgetank-error"])["error"]["code"] == "queue_requests"


async def test_a_refusal_on_anthropics_path_is_said_in_its_words(page: AdmitRig) -> None:
    page.rig.desk.drain()
    _, headers, _ = await page.ask(x_original_uri="/v1/messages?beta=true")
    assert headers["x-surgetank-status"] == "503"
    error = orjson.loads(headers["x-surgetank-error"])
    assert (error["type"], error["error"]["type"]) == ("error", "api_error")
    assert error["request_id"] == headers["request-id"] == headers["x-request-id"]


async def test_one_that_waits_goes_when_another_is_released(page: AdmitRig) -> None:
    _, headers, _ = await page.ask()
    waiting = await page.send("/admit")
    await page.ask("/release", x_surgetank_grant=headers["x-surgetank-grant"])
    assert (await waiting.response())[0] == 200
    assert page.rig.dispatched == 1


async def test_an_engines_status_counts(page: AdmitRig) -> None:
    _, headers, _ = await page.ask()
    grant = headers["x-surgetank-grant"]
    await page.ask("/release", x_surgetank_grant=grant, x_surgetank_upstream_status="200, 503")
    assert page.rig.ended() == [(Outcome.OVERLOAD, Reason.ENGINE_FULL)]


async def test_a_lease_ends(page: AdmitRig) -> None:
    await page.ask(x_stainless_read_timeout="2")
    page.rig.clock.advance(LEASE / 2)  # past the client's own patience: a stream may go on
    assert page.rig.dispatched == 1
    ticket = next(iter(page.rig.desk._dispatcher.calls))
    assert ticket.due == LEASE


async def test_what_nobody_gates_passes_without_a_slot(page: AdmitRig) -> None:
    assert (await page.ask(x_original_uri="/v1/models?x=1"))[0] == 200
    assert (await page.ask("/release"))[0] == 200
    assert page.rig.dispatched == 0


async def test_methods(page: AdmitRig) -> None:
    status, headers, _ = await (await page.send("/admit", "PUT")).response()
    assert (status, headers["allow"]) == (405, "get, head, post")
