"""Real engines of other makers behind the real product: found, asked, left, killed, found again."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest
from tests.e2e.foreign.engines import LLAMA, VLLM, Foreign, Maker
from tests.e2e.running import PATIENCE, Running, until

from surgetank.engine.model.locate import default_model

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(900)]

MOST = 12  # tokens
PROMPT = {"prompt": "The sky is", "max_tokens": MOST, "temperature": 0, "seed": 1}
RUNNING, PRODUCED = "vllm:num_requests_running", "vllm:generation_tokens_total"
LONG = {**PROMPT, "max_tokens": 1500, "ignore_eos": True, "stream": True}
CHAT = {
    "messages": [{"role": "user", "content": "Why do rivers flood?"}],
    "max_tokens": MOST,
    "temperature": 0,
    "seed": 1,
}


class Pair:
    """An engine, and the product before it."""

    def __init__(self, engine: Foreign, service: Running) -> None:
        self.engine = engine
        self.service = service

    @property
    def backend(self) -> dict[str, Any]:
        answer = httpx.get(f"{self.service.listeners['admin']}/backends", timeout=PATIENCE)
        backend: dict[str, Any] = answer.json()["backends"][0]
        return backend

    def told(self) -> list[str]:
        return [each["signal"] for each in self.backend["signals"] if each["available"]]

    def ready(self) -> bool:
        return httpx.get(f"{self.service.http}/health/ready", timeout=PATIENCE).is_success

    def tokens(self, kind: str) -> float:
        page = httpx.get(f"{self.service.http}/metrics", timeout=PATIENCE).text
        lines = [line for line in page.splitlines() if line.startswith("surgetank_tokens_total")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if f'kind="{kind}"' in line)


@pytest.fixture(scope="module", params=[LLAMA, VLLM], ids=lambda maker: maker.kind)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    maker: Maker = request.param
    if why := maker.missing():
        pytest.skip(why)
    folder: Path = tmp_path_factory.mktemp(maker.kind)
    engine = Foreign(maker, default_model(), folder)
    try:
        engine.start()
        with Running(folder, "--backend", engine.url) as service:
            service.wait_for("ready")
            yield Pair(engine, service)
    finally:
        engine.kill()


def test_it_is_known_for_what_it_is(pair: Pair) -> None:
    backend, maker = pair.backend, pair.engine.maker
    assert (backend["maker"], backend["up"], backend["url"]) == (
        maker.kind,
        True,
        pair.engine.url,
    )
    assert backend["version"]
    if maker is VLLM:
        until(lambda: len(pair.told()) == 6, "all its signals are read")
    else:
        assert pair.told() == []
    assert {law["law"] for law in backend["laws"]} >= {"predicted wait, TPOT", "KV gate", "slots"}
    assert pair.service.status()["engine"]["version"].startswith(maker.kind)


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/completions", PROMPT), ("/v1/chat/completions", CHAT)]
)
def test_a_plain_answer_is_the_engines_own(pair: Pair, path: str, body: dict[str, Any]) -> None:
    name = pair.backend["model"]
    ours = httpx.post(pair.service.http + path, json={"model": "default", **body}, timeout=PATIENCE)
    own = pair.engine.ask({"model": name, **body}, path)
    assert ours.status_code == own.status_code == 200
    assert _choices(ours.json()) == _choices(own.json())
    assert ours.json()["usage"] == own.json()["usage"]


def test_a_stream_is_the_engines_own_and_is_counted(pair: Pair) -> None:
    body = {"model": pair.backend["model"], **CHAT, "stream": True}
    path, before = "/v1/chat/completions", pair.tokens("output")
    ours = httpx.post(pair.service.http + path, json=body, timeout=PATIENCE)
    own = pair.engine.ask(body, path)
    assert ours.headers["content-type"] == own.headers["content-type"]
    assert _events(ours.text) == _events(own.text)
    assert ours.text.endswith("data: [DONE]\n\n") == own.text.endswith("data: [DONE]\n\n")
    # Without a usage its events are counted: one may bear a role or a finish, and no token.
    assert MOST <= pair.tokens("output") - before <= MOST + 3


def test_usage_is_counted_to_the_token(pair: Pair) -> None:
    before = pair.tokens("output"), pair.tokens("input") + pair.tokens("input_cached")
    usage = pair.service.ask(**PROMPT).json()["usage"]
    after = pair.tokens("output"), pair.tokens("input") + pair.tokens("input_cached")
    assert after[0] - before[0] == usage["completion_tokens"]
    assert after[1] - before[1] == usage["prompt_tokens"]


def test_anthropics_client_is_answered_and_counted(pair: Pair) -> None:
    if pair.engine.maker is not VLLM:
        pytest.skip(f"{pair.engine.maker.kind} does not speak Anthropic's messages; vllm does")
    before = pair.tokens("output"), pair.tokens("input") + pair.tokens("input_cached")
    question: anthropic.types.MessageParam = {"role": "user", "content": "Why do rivers flood?"}
    with anthropic.Anthropic(
        base_url=pair.service.http, api_key="x", max_retries=0, timeout=60
    ) as client:
        plain = client.messages.create(model="default", max_tokens=MOST, messages=[question])
        with client.messages.stream(
            model="default", max_tokens=MOST, messages=[question]
        ) as stream:
            text = "".join(stream.text_stream)
            streamed = stream.get_final_message()
        size = client.messages.count_tokens(model="default", messages=[question])
        with pytest.raises(anthropic.NotFoundError) as unknown:
            client.messages.create(model="no/such", max_tokens=MOST, messages=[question])
    assert (unknown.value.type, unknown.value.error_code) == ("not_found_error", "unknown_model")
    assert text
    assert size.input_tokens == plain.usage.input_tokens
    assert 0 < plain.usage.output_tokens <= MOST
    after = pair.tokens("output"), pair.tokens("input") + pair.tokens("input_cached")
    assert after[0] - before[0] == plain.usage.output_tokens + streamed.usage.output_tokens
    asked = after[1] - before[1] - plain.usage.input_tokens - streamed.usage.input_tokens
    assert 0 < asked < 2 * size.input_tokens, "what was only measured is estimated"


def test_the_grpc_door_asks_it_for_the_same(pair: Pair) -> None:
    sampling = json.dumps({"max_tokens": MOST, "temperature": 0, "seed": 1})
    script = str(Path(__file__).with_name("triton_answers.py"))
    given = [pair.service.listeners["grpc"], str(PROMPT["prompt"]), sampling]
    said = subprocess.run(
        [sys.executable, script, *given], capture_output=True, text=True, check=True
    )
    (own,) = _choices(pair.engine.ask({"model": pair.backend["model"], **PROMPT}).json())
    assert json.loads(said.stdout) == {"whole": own, "streamed": own}


def test_a_client_that_leaves_frees_the_engine(pair: Pair) -> None:
    url, body = f"{pair.service.http}/v1/completions", {"model": "default", **LONG}
    engine, counts = pair.engine, pair.engine.maker is VLLM
    before = engine.metric(PRODUCED) if counts else 0
    with httpx.stream("POST", url, json=body, timeout=PATIENCE) as answer:
        assert answer.status_code == 200
        pieces = answer.iter_bytes()
        assert next(pieces).startswith(b"data: {")
        if counts:
            until(lambda: engine.metric(RUNNING) == 1, "it runs")
    until(lambda: pair.service.status()["requests"]["in_flight"] == 0, "our ledger is empty")
    if counts:
        until(lambda: engine.metric(RUNNING) == 0, "it runs no more")
        assert engine.metric(PRODUCED) - before < 1500  # it did not run to its end
    assert pair.service.ask(**PROMPT).is_success


def test_a_killed_engine_is_told_of_and_taken_back(pair: Pair) -> None:
    pair.engine.kill()
    refused = pair.service.ask(**PROMPT)
    assert refused.status_code == 503
    assert float(refused.headers["retry-after-ms"]) > 0
    assert refused.json()["error"]["code"] == "engine_lost"
    until(lambda: not pair.ready(), "readiness is false")
    assert pair.backend["up"] is False
    pair.engine.start()
    until(pair.ready, "it is ready again")
    assert pair.service.ask(**PROMPT).is_success


def _choices(answer: dict[str, Any]) -> list[Any]:
    return [choice.get("text") or choice["message"]["content"] for choice in answer["choices"]]


def _events(text: str) -> list[Any]:
    """What each event says, but for the answer's own number and time."""
    events = [
        line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")
    ]
    return [json.loads(event)["choices"] for event in events if event != "[DONE]"]
