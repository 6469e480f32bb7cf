"""What `surgetank run` shows: a live line on a terminal, else one line per change, or JSON."""

import importlib.util
import json
import logging
import os
import sys
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

logger = logging.getLogger(__name__)
_STYLE = {
    "ready": "bold green",
    "draining": "yellow",
    "backend_down": "bold red",
    "died": "bold red",
}


class Panel(Protocol):
    """Where the supervisor's news goes."""

    def say(self, event: str, text: str, **facts: Any) -> None:
        """One change of state."""

    def relay(self, name: str, line: str) -> None:
        """One line that a child wrote."""

    def welcome(self, listeners: dict[str, str]) -> None:
        """Ready for the first time: where everything is, and how to ask."""

    def status(self, state: str, status: dict[str, Any], deaths: dict[str, int]) -> None:
        """The newest numbers, several times a second."""

    def close(self) -> None:
        """Leave the terminal as it was found."""


def how_to_ask(listeners: dict[str, str]) -> str:
    """The first screen of a newcomer: URLs, and a curl and a grpc line that work as pasted."""
    http, grpc = listeners["http"], listeners.get("grpc")
    urls = "\n".join(f"  {name:<15} {url}" for name, url in listeners.items())
    body = '{"model":"default","messages":[{"role":"user","content":"Say hello."}],"max_tokens":32}'
    curl = f"curl {http}/v1/chat/completions -H 'content-type: application/json' -d '{body}'"
    lines = [curl] if grpc is None else [curl, _grpc_line(grpc)]
    return "\n\n".join([f"surgetank is ready\n{urls}", *lines]) + "\n"


def _grpc_line(address: str) -> str:
    """With the installed tritonclient where there is one, else with grpcurl."""
    if importlib.util.find_spec("tritonclient"):
        code = (
            "import numpy as np, tritonclient.grpc as t; "
            'i = t.InferInput("text_input", [1], "BYTES"); '
            'i.set_data_from_numpy(np.array([b"The sky is"], object)); '
            f'r = t.InferenceServerClient("{address}").infer("default", [i]); '
            'print(r.as_numpy("text_output")[0].decode())'
        )
        return f"{sys.executable} -c '{code}'"
    body = (
        '{"model_name":"default","inputs":[{"name":"text_input","datatype":"BYTES","shape":[1],'
        '"contents":{"bytes_contents":["VGhlIHNreSBpcw=="]}}]}'
    )
    return f"grpcurl -plaintext -d '{body}' {address} inference.GRPCInferenceService/ModelInfer"


def summary(state: str, status: dict[str, Any], deaths: dict[str, int]) -> str:
    """The live line: state, load, outcomes and restarts."""
    requests = status.get("requests", {})
    parts = [state.replace("_", " ")]
    if state == "starting":
        parts.append(f"{status.get('uptime_seconds', 0):.0f} s")
    elif requests:
        outcomes = requests["outcomes"]
        refused = sum(outcomes.values()) - outcomes.get("ok", 0)
        parts += [
            f"in flight {requests['in_flight']}",
            f"queued {requests['queued']}",
            f"ok {outcomes.get('ok', 0)}",
            f"other {refused}",
        ]
    engine = status.get("engine") or {}
    if engine.get("model"):
        parts.append(f"{engine['model']} on {engine['device'] or engine['version']}")
    engines = status.get("backends", [])
    if len(engines) > 1:
        taking = sum(each["state"] in ("up", "slow_start") for each in engines)
        parts.append(f"{taking} of {len(engines)} engines")
    parts += [f"{name} restarts {count}" for name, count in deaths.items() if count]
    return "  ".join(parts)


class LinePanel:
    """One line per change, on a stream that is no terminal."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._err = err

    def say(self, event: str, text: str, **facts: Any) -> None:
        del event, facts
        _put(self._out, f"surgetank: {text}\n")

    def relay(self, name: str, line: str) -> None:
        _put(self._err, f"{name} | {line}\n")

    def welcome(self, listeners: dict[str, str]) -> None:
        _put(self._out, how_to_ask(listeners))

    def status(self, state: str, status: dict[str, Any], deaths: dict[str, int]) -> None:
        pass

    def close(self) -> None:
        pass


class JsonPanel(LinePanel):
    """One JSON object per change; the children's lines stay on stderr."""

    def say(self, event: str, text: str, **facts: Any) -> None:
        _put(self._out, json.dumps({"event": event, "text": text, **facts}) + "\n")

    def welcome(self, listeners: dict[str, str]) -> None:
        self.say("ready", "surgetank is ready", listeners=listeners)


def _put(stream: TextIO, text: str) -> None:
    """Write at once. Nobody reads any more, or the disk is full: the service goes on without."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())
    except OSError as error:
        logger.warning("could not write a line: %s", error)


class LivePanel:
    """A line that refreshes at the bottom of a terminal; everything else scrolls above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._line = Text("starting")
        self._live = Live(self._line, console=console, refresh_per_second=4, transient=True)
        self._live.start()

    def say(self, event: str, text: str, **facts: Any) -> None:
        del facts
        self._console.print(Text(f"surgetank: {text}", style=_STYLE.get(event, "bold")))

    def relay(self, name: str, line: str) -> None:
        self._console.print(Text(f"{name} | ", style="dim") + Text.from_ansi(line), soft_wrap=True)

    def welcome(self, listeners: dict[str, str]) -> None:
        # Soft wrap: a command that is broken by newlines cannot be pasted.
        self._console.print(Text(how_to_ask(listeners)), soft_wrap=True)

    def status(self, state: str, status: dict[str, Any], deaths: dict[str, int]) -> None:
        self._live.update(Text(summary(state, status, deaths), style=_STYLE.get(state, "")))

    def close(self) -> None:
        self._live.stop()


def make_panel(as_json: bool) -> Panel:
    """The panel that fits where stdout goes."""
    if as_json:
        return JsonPanel(sys.stdout, sys.stderr)
    console = Console()
    return LivePanel(console) if console.is_terminal else LinePanel(sys.stdout, sys.stderr)
