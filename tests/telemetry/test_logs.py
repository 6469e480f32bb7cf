"""Logs are JSON for machines, one line for people, and never carry what a client wrote."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from surgetank.telemetry.logs import configure


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def leave_logging_as_found() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers.copy(), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    log = logging.getLogger("surgetank.admission.gate")
    log.info("refused", extra={"request_id": "r1", "measured": 3.5, "who": ["a\ud800"]})
    log.debug("too quiet")
    (line,) = lines(stream)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "surgetank.admission.gate",
        "message": "refused",
        "request_id": "r1",
        "measured": 3.5,
        "who": "['a\\ud800']",
    }


def test_one_short_line_at_a_terminal() -> None:
    stream = Terminal()
    configure("debug", stream=stream)
    logging.getLogger("surgetank.control.loop").warning(
        "limit moved", extra={"to": 8, "why": "a\nb", "trace_id": "4bf9", "span_id": "00f0"}
    )
    text = stream.getvalue()
    assert text.endswith(" warning control.loop: limit moved  to=8  why='a\\nb'\n")
    assert text.count("\n") == 1


def test_what_a_client_wrote_is_withheld() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    logging.getLogger("x").info("odd", extra={"prompt": "my secret", "detail": "s" * 5000})
    (line,) = lines(stream)
    assert line["prompt"] == "(withheld)"
    assert len(line["detail"]) < 400


def test_a_field_cannot_pose_as_the_level() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    logging.getLogger("x").error("bad", extra={"level": "info", "logger": "y"})
    (line,) = lines(stream)
    assert (line["level"], line["logger"]) == ("error", "x")


def test_an_exception_is_one_line_of_json() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    try:
        raise KeyError("gone")
    except KeyError:
        logging.getLogger("x").exception("failed")
    (line,) = lines(stream)
    assert line["exception"].endswith("KeyError: 'gone'")


def test_other_libraries_use_our_lines_once() -> None:
    stream = io.StringIO()
    uvicorn = logging.getLogger("uvicorn.error")
    uvicorn.addHandler(logging.StreamHandler(stream))
    configure(json=True, stream=stream)
    configure(json=True, stream=stream)
    uvicorn.info("started")
    logging.getLogger("grpc").warning("reset")
    logging.getLogger("uvicorn.access").info("GET /")
    assert [line["message"] for line in lines(stream)] == ["started", "reset"]


def test_an_unknown_level_is_named() -> None:
    with pytest.raises(ValueError, match="log level is 'loud'; allowed: debug, info"):
        configure("loud")
