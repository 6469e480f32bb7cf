"""What `surgetank run` shows: the first screen, the live line, and events for scripts."""

import io
import json
import os
from pathlib import Path

import pytest
from rich.console import Console

from surgetank.control.panel import JsonPanel, LinePanel, LivePanel, how_to_ask, summary

LISTENERS = {"http": "http://127.0.0.1:1", "grpc": "127.0.0.1:2", "admin": "http://127.0.0.1:3"}
STATUS = {
    "uptime_seconds": 7.4,
    "requests": {"in_flight": 3, "queued": 1, "outcomes": {"ok": 5, "overload": 2, "expired": 1}},
    "engine": {"model": "tiny", "device": "cpu"},
}


def test_the_first_screen_has_every_address_and_a_line_for_each_door() -> None:
    text = how_to_ask(LISTENERS)
    for address in LISTENERS.values():
        assert address in text
    assert "curl http://127.0.0.1:1/v1/chat/completions" in text
    assert 'InferenceServerClient("127.0.0.1:2")' in text


def test_without_the_triton_client_grpcurl_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "127.0.0.1:2 inference.GRPCInferenceService/ModelInfer" in how_to_ask(LISTENERS)


def test_the_live_line_sums_up_what_happens() -> None:
    line = summary("ready", STATUS, {"engine": 2, "sidecar": 0})
    assert line == "ready  in flight 3  queued 1  ok 5  other 3  tiny on cpu  engine restarts 2"
    assert summary("starting", {"uptime_seconds": 7.4}, {}) == "starting  7 s"
    assert summary("backend_down", {}, {}) == "backend down"
    states = [{"state": state} for state in ("up", "ejected", "slow_start")]
    foreign = {"model": "m", "device": "", "version": "vllm 0.32.0"}
    line = summary("ready", {"engine": foreign, "backends": states}, {})
    assert line == "ready  m on vllm 0.32.0  2 of 3 engines"


def test_scripts_get_one_object_for_each_change_and_nothing_else_on_stdout() -> None:
    out, err = io.StringIO(), io.StringIO()
    told = JsonPanel(out, err)
    told.welcome(LISTENERS)
    told.relay("engine", "loading")
    told.status("ready", STATUS, {})
    told.say("died", "the engine ended", exit_code=-9)
    events = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [event["event"] for event in events] == ["ready", "died"]
    assert events[0]["listeners"] == LISTENERS
    assert events[1]["exit_code"] == -9
    assert err.getvalue() == "engine | loading\n"


def test_without_a_terminal_each_change_is_a_line() -> None:
    out, err = io.StringIO(), io.StringIO()
    told = LinePanel(out, err)
    told.say("died", "the engine ended")
    told.welcome(LISTENERS)
    told.status("ready", STATUS, {})
    told.close()
    assert out.getvalue() == "surgetank: the engine ended\n" + how_to_ask(LISTENERS)


def test_on_a_terminal_commands_stay_whole_and_children_keep_their_lines() -> None:
    out = io.StringIO()
    told = LivePanel(Console(file=out, force_terminal=True, width=40, color_system=None))
    told.relay("engine", "[not markup]")
    told.welcome(LISTENERS)
    told.status("ready", STATUS, {})
    told.close()
    assert "engine | [not markup]" in out.getvalue()
    curl = how_to_ask(LISTENERS).splitlines()[5]
    assert curl.startswith("curl ")
    assert curl in out.getvalue()


def test_a_reader_that_left_does_not_end_the_service(capfd: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as out:
        panel = LinePanel(out, io.StringIO())
        panel.say("ready", "ready again")
        panel.welcome(LISTENERS)
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_does_not_end_the_service(caplog: pytest.LogCaptureFixture) -> None:
    out = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w")
    LinePanel(out, io.StringIO()).say("ready", "ready again")
    assert "could not write a line: [Errno 28]" in caplog.text
    with pytest.raises(OSError, match="No space"):
        out.close()
