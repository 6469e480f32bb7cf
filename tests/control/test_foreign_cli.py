"""What commands say before another maker's engine: sentences, where an embedded one has facts."""

from pathlib import Path

import pytest
from tests.control.asking import Ask
from tests.control.service import PlayedService
from tests.fakes import tiny_card

from surgetank.control.inspection import Inspection
from surgetank.engine.backends.remote.found import Found, Signals, Source, Vitals

CARD = tiny_card(name="m", kv_blocks=0, device="", engine_version="vllm 0.32.0", max_num_seqs=6)
FOUND = Found(
    "vllm", "0.32.0", CARD, ("m", "lora"), (), ("mind the gap",), "/metrics", Source.GUESSED
)


@pytest.fixture
def foreign(service: PlayedService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The service has a vLLM behind it, which tells how many requests it has."""
    vitals = Vitals("vllm", "http://gpu:8000", FOUND, Signals(at=0.0, running=3.0), 1, 4)
    monkeypatch.setattr(service.rig.desk._sides.all[0], "vitals", lambda: vitals)
    service.inspection = Inspection(tmp_path / "engine.sock", ["http://gpu:8000"])
    service.rig.backend.come_up(CARD)


@pytest.mark.usefixtures("foreign")
def test_backends_tells_what_was_found_and_what_the_laws_run_on(ask: Ask) -> None:
    said = ask("backends").stdout
    for words in (
        "vllm 0.32.0",
        "http://gpu:8000",
        "m, lora",
        "running 3",
        "waiting, kv_used, prompt_tokens, output_tokens, preemptions",
        "6, guessed: set its max_num_seqs in [[backends]]",
        "ledger drift",
        "note: mind the gap",
    ):
        assert words in said, said


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("kv", "there is no step ring: the engine at http://gpu:8000 is another maker's"),
        ("steps", "what is known of steps: surgetank backends"),
    ],
)
def test_what_only_an_embedded_engine_has_is_refused_with_a_sentence(
    ask: Ask, command: str, words: str
) -> None:
    result = ask(command)
    assert result.exit_code == 1
    assert words in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.usefixtures("foreign")
def test_memory_and_status_show_no_zeros_for_what_is_not_known(ask: Ask) -> None:
    memory = ask("memory").stdout
    assert "vllm tells nothing of its KV pool" in memory
    assert "MiB" not in memory
    assert "m (vllm 0.32.0)" in ask("status").stdout
    for command in ("top", "diagnose", "queue", "slo"):
        arguments = [command, *(["--once"] if command == "top" else [])]
        arguments += ["ls"] if command == "queue" else []
        assert ask(*arguments).exit_code == 0


def test_a_process_to_stop_needs_an_engine_that_it_is_of(ask: Ask) -> None:
    result = ask("demo", "storm", "--engine-pid", "12345")
    assert result.exit_code == 2
    assert "--engine-pid is of the engine at --backend" in result.stderr
