"""The whole path with the real model: doors, gate, engine, metrics, operator, crash and drain."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import openai
import pytest
from click.testing import CliRunner
from openai.types.chat import ChatCompletionMessageParam
from prometheus_client.parser import text_string_to_metric_families
from tests.e2e.running import PATIENCE, Running, until

from surgetank.control.cli import main
from surgetank.control.panel import how_to_ask

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(600)]


def client(service: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{service.http}/v1", api_key="none", timeout=PATIENCE)


def samples(url: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """A scrape by metric name; fails when the text does not parse."""
    answer = httpx.get(url, timeout=PATIENCE).raise_for_status()
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def total(scrape: dict[str, list[tuple[dict[str, str], float]]], name: str) -> float:
    return sum(value for _, value in scrape[name])


def test_the_openai_client_is_answered_plain_and_streamed(service: Running) -> None:
    with client(service) as api:
        question: list[ChatCompletionMessageParam] = [
            {"role": "user", "content": "What is the capital of France?"}
        ]
        plain = api.chat.completions.create(
            model="default",
            messages=question,
            max_tokens=16,
            temperature=0,
        )
        assert "Paris" in (plain.choices[0].message.content or "")
        assert plain.usage is not None
        assert plain.usage.completion_tokens <= 16
        stream = api.chat.completions.create(
            model="default",
            messages=question,
            max_tokens=16,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == plain.choices[0].message.content
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == plain.usage.completion_tokens


def test_the_printed_commands_work_as_pasted(service: Running) -> None:
    lines = how_to_ask(service.listeners).splitlines()
    curl = next(line for line in lines if line.startswith("curl "))
    grpc = next(line for line in lines if "tritonclient" in line)
    for command in (curl, grpc):
        done = subprocess.run(
            command, shell=True, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, done.stderr
        assert ("choices" if command is curl else "The sky is") in done.stdout


def test_both_names_are_listed(service: Running) -> None:
    with client(service) as api:
        assert [model.id for model in api.models.list()] == ["SmolLM2-135M-Instruct", "default"]


def test_the_triton_client_is_answered(service: Running) -> None:
    script = (
        "import numpy as np, tritonclient.grpc as t\n"
        'i = t.InferInput("text_input", [1], "BYTES")\n'
        'i.set_data_from_numpy(np.array([b"The sky is"], object))\n'
        f'c = t.InferenceServerClient("{service.listeners["grpc"]}")\n'
        "assert c.is_server_ready() and c.is_model_ready('default')\n"
        'p = {"max_tokens": 4, "temperature": 0.0}\n'
        'r = c.infer("default", [i], parameters=p, client_timeout=100)\n'
        'print(r.as_numpy("text_output")[0].decode())\n'
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    expected = service.ask(temperature=0).json()["choices"][0]["text"]
    assert done.stdout == f"The sky is{expected}\n"


def test_the_metrics_of_both_processes_add_up(service: Running) -> None:
    before = samples(f"{service.http}/metrics")
    assert service.ask().status_code == 200
    assert service.ask(max_tokens=-1).status_code == 400
    assert service.ask(model="nobody").status_code == 404
    after = samples(f"{service.http}/metrics")
    received = "surgetank_requests_received_total"
    assert total(after, received) - total(before, received) == 3
    in_flight = total(after, "surgetank_requests_in_flight")
    assert total(after, received) == total(after, "surgetank_requests_total") + in_flight
    engine = samples(f"http://127.0.0.1:{service.metrics_port}/metrics")
    assert total(engine, "surgetank_batch_steps_total") > 0
    slots = total(engine, "surgetank_batch_slot_steps_total")
    assert slots == total(engine, "surgetank_batch_seq_capacity_total")
    until(lambda: service.status()["requests"]["in_flight"] == 0, "all requests ended")


def test_an_override_is_shown_journaled_and_expires(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SURGETANK_URL", service.listeners["admin"])
    change = ["limits", "set", "max_num_seqs", "4", "--ttl", "2", "--why", "test", "--who", "ada"]
    done = CliRunner().invoke(main, change)
    assert done.stdout == "max_num_seqs: 32 -> 4 for 2 s\n"
    status = json.loads(CliRunner().invoke(main, ["status", "--json"]).stdout)
    held = next(limit for limit in status["limits"] if limit["name"] == "max_num_seqs")
    assert (held["value"], held["base"], held["override"]["who"]) == (4, 32, "ada")

    def back() -> bool:
        limits = service.status()["limits"]
        return any(each["name"] == "max_num_seqs" and each["value"] == 32 for each in limits)

    until(back, "the override expired")
    lines = (service.folder / "journal.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    causes = [each["cause"] for each in entries if each["what"] == "max_num_seqs"]
    assert causes == ["engine", "operator", "expiry"]


def test_a_killed_engine_is_told_and_taken_back(service: Running) -> None:
    os.kill(service.status()["engine"]["pid"], signal.SIGKILL)
    until(lambda: service.status()["state"] == "backend_down", "the sidecar noticed")
    refused = service.ask()
    assert refused.status_code == 503
    assert refused.json()["error"]["outcome"] == "backend_down"
    assert int(refused.headers["retry-after"]) >= 1
    assert httpx.get(f"{service.http}/health/live").status_code == 200
    assert httpx.get(f"{service.http}/health/ready").status_code == 503
    assert service.wait_for("died")["exit_code"] == -9
    service.wait_for("ready")
    assert service.ask().status_code == 200


def test_sigterm_lets_streams_complete_and_refuses_new_ones(own_service: Running) -> None:
    tokens, counts = 40, [0] * 6
    begun = threading.Barrier(len(counts) + 1)

    def stream(index: int) -> None:
        with client(own_service) as api:
            chunks = api.completions.create(
                model="default",
                prompt="Once upon a time",
                max_tokens=tokens,
                stream=True,
                stream_options={"include_usage": True},
                extra_body={"ignore_eos": True},
            )
            next(chunks)
            begun.wait(PATIENCE)
            last = list(chunks)[-1]
            counts[index] = last.usage.completion_tokens if last.usage else -1

    streams = [threading.Thread(target=stream, args=(index,)) for index in range(len(counts))]
    for thread in streams:
        thread.start()
    begun.wait(PATIENCE)
    own_service.process.send_signal(signal.SIGTERM)
    until(lambda: own_service.status()["state"] == "draining", "draining")
    refused = own_service.ask()
    assert refused.status_code == 503
    assert refused.json()["error"]["outcome"] == "draining"
    assert int(refused.headers["retry-after"]) >= 1
    for thread in streams:
        thread.join(PATIENCE)
    assert own_service.finish() == 0
    assert counts == [tokens] * len(counts)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("engine.model=/nowhere/at.gguf", "/nowhere/at.gguf: no such file or folder"),
        ("engine.device=cuda", "device is cuda"),
        ("http.port={taken}", "http: cannot listen on 127.0.0.1:{taken}"),
        ("grpc.port={taken}", "grpc: cannot listen on 127.0.0.1:{taken}"),
        ("admin.port={taken}", "admin: cannot listen on 127.0.0.1:{taken}"),
    ],
)
def test_a_mistake_stops_everything_with_one_sentence(
    service: Running, tmp_path: Path, setting: str, sentence: str
) -> None:
    taken = service.http.rpartition(":")[2]
    with Running(tmp_path, f"--set={setting.format(taken=taken)}") as running:
        assert sentence.format(taken=taken) in running.wait_for("failed")["text"]
        assert running.finish() == 2
