"""Before another maker's engine every view says what is known, and where nothing is, so."""

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from tests.admission.rig import Rig
from tests.fakes import engine_look, tiny_card

from surgetank.control.diagnose.look import Counts, Look
from surgetank.control.insight.backends import backends_out
from surgetank.control.insight.memory import memory_out
from surgetank.control.insight.shapes import MemoryOut
from surgetank.control.inspection import Inspection
from surgetank.engine.backends.remote.found import Found, Signals, Source, Vitals
from surgetank.engine.ring import RingError

URL = "http://gpu:8000"
CARD = tiny_card(kv_blocks=400, kv_block_size=128, max_num_seqs=256, pid=0, device="")
FOUND = Found("vllm", "0.32.0", CARD, ("m", "lora"), ("running",), ("a note",), "/metrics")
TOLD = Signals(at=0.0, running=3.0, waiting=1.0, kv_used=0.25, preemptions=7.0)


def views(vitals: Vitals) -> tuple[dict[str, object], dict[str, object]]:
    """`backends` and `memory` of a desk with that engine, five seconds after the look at it."""
    card = tiny_card() if vitals.found is None else vitals.found.card
    rig = Rig(card=card)
    rig.timer.advance(5.0)
    desk = rig.desk.snapshot()
    look = replace(desk.engines[0], vitals=vitals, url=vitals.url)
    desk = replace(desk, vitals=vitals, engines=(look,))
    (backend,) = backends_out(desk, {}).backends
    memory = memory_out((Look(desk, None, Counts()),))
    return backend.model_dump(), memory.model_dump()


def laws(backend: dict[str, object]) -> dict[str, str]:
    listed = backend["laws"]
    assert isinstance(listed, list)
    return {law["law"]: law["runs_on"] for law in listed}


def test_what_it_is_what_it_tells_and_how_old_that_is() -> None:
    backend, _ = views(Vitals("vllm", URL, replace(FOUND, slots=Source.GUESSED), TOLD, 2, 9))
    assert (backend["maker"], backend["version"], backend["url"]) == ("vllm", "0.32.0", URL)
    assert backend["models"] == ["m", "lora"]
    assert backend["notes"] == ["a note"]
    assert (backend["metrics_age"], backend["ledger_drift"], backend["pushbacks"]) == (5.0, 2, 9)
    assert (backend["pid"], backend["device"]) == (None, None)
    assert {
        "signal": "prompt_tokens",
        "available": False,
        "value": None,
    } in backend["signals"]  # type: ignore[operator]
    runs = laws(backend)
    assert runs["slots"] == (
        "256, guessed: set its max_num_seqs in [[backends]] to what it runs at once"
    )
    assert runs["in-flight limit"].startswith("its own queue, and ")
    assert runs["KV gate"] == (
        "promises against 400 blocks of 128 tokens, and the share in use that it tells"
    )
    assert runs["stall"] == "silence of its streams; of plain answers once one was seen"
    assert runs["ledger drift, room for others"] == "its own count"


def test_an_engine_that_tells_nothing_leaves_the_laws_what_passes_by() -> None:
    mute = replace(FOUND, card=tiny_card(kv_blocks=0), metrics="", slots=Source.TOLD)
    backend, memory = views(Vitals("llama-cpp-python", URL, mute))
    assert backend["metrics_age"] is None
    assert backend["ledger_drift"] is None
    runs = laws(backend)
    assert runs["slots"] == "8, as it tells"
    assert runs["KV gate"] == "nothing: it tells neither size nor use"
    assert runs["in-flight limit"] == "what it turns away (429, 503, 529)"
    assert memory["share"] is None
    assert memory["blocks"] is None
    assert str(memory["note"]).startswith("llama-cpp-python tells nothing of its KV pool")


@pytest.mark.parametrize(
    ("signals", "patience", "runs_on"),
    [
        (Signals(output_tokens=9.0), 90.0, "silence of its count of output tokens"),
        (Signals(), 90.4, "silence of its streams, or of plain answers for 90 s"),
        (Signals(), inf, "silence of its streams; not of plain answers: one of them has no bound"),
    ],
)
def test_what_shows_a_stall(signals: Signals, patience: float, runs_on: str) -> None:
    backend, _ = views(Vitals("openai", URL, FOUND, signals, patience=patience))
    assert laws(backend)["stall"] == runs_on


def test_its_kv_pool_is_what_it_tells_and_no_more() -> None:
    _, memory = views(Vitals("vllm", URL, FOUND, TOLD))
    assert (memory["used"], memory["free"], memory["cached"]) == (100, 300, None)
    assert (memory["bytes"], memory["preempted_tokens"], memory["preemptions"]) == (None, None, 7)
    assert "its size and the share in use" in str(memory["note"])


def test_the_pools_of_several_add_up_where_all_tell() -> None:
    def memory(*shares: float | None) -> MemoryOut:
        engines = tuple(
            engine_look(
                str(at), card=CARD, vitals=Vitals("vllm", URL, FOUND, replace(TOLD, kv_used=share))
            )
            for at, share in enumerate(shares)
        )
        desk = replace(Rig().desk.snapshot(), vitals=engines[0].vitals, engines=engines)
        return memory_out((Look(desk, None, Counts()),))

    both = memory(0.25, 0.75)
    assert (both.used, both.free, both.preemptions) == (400, 400, 14)
    one_mute = memory(0.25, None)
    assert (one_mute.used, one_mute.free) == (None, None)
    assert one_mute.note.startswith("vllm tells its size of its KV pool")


def test_the_embedded_engine_is_shown_as_ever() -> None:
    backend, memory = views(Vitals())
    assert (backend["maker"], backend["url"], backend["models"]) == ("embedded", "", ["tiny"])
    assert (backend["name"], backend["state"], backend["role"]) == ("embedded", "up", "both")
    assert (backend["signals"], backend["laws"]) == ([], [])
    assert (memory["bytes"], memory["note"]) == (512 * 16 * 64, "")


def test_files_of_an_embedded_engine_are_not_taken_for_those_of_another(tmp_path: Path) -> None:
    inspection = Inspection(tmp_path / "engine.sock", [URL])
    with pytest.raises(RingError, match=r"no step ring: the engine at http://gpu:8000 is an"):
        inspection.steps(5, slow=False)
    with pytest.raises(RingError, match="surgetank memory"):
        inspection.kv()
    engine, sidecar = inspection.stacks().processes
    assert "their stacks are their own to show" in engine.error
    assert sidecar.error.startswith("no process offers its stacks")
