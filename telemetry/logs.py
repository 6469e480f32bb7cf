"""Logs: one JSON object a line for machines, one short line for a person at a terminal.

What a client wrote never belongs in a log. Fields whose names promise such text are withheld, and
over-long values are cut, so that a slip does not become a leak.
"""

import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from json import dumps
from typing import Any, TextIO

LEVELS = ("debug", "info", "warning", "error")
WITHHELD = frozenset(
    {"prompt", "messages", "text", "content", "body", "input", "output", "completion", "token_ids"}
)
MAX_FIELD = 300  # characters
_FOR_MACHINES = frozenset({"trace_id", "span_id"})  # 48 digits that no one reads at a terminal
# Loggers that bring handlers of their own, or would write a line per request.
_FOREIGN = {
    "uvicorn": logging.NOTSET,
    "uvicorn.error": logging.NOTSET,
    "uvicorn.access": logging.WARNING,
    "grpc": logging.NOTSET,
    "httpx": logging.WARNING,
    "urllib3": logging.WARNING,
}
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


def configure(level: str = "info", json: bool | None = None, stream: TextIO | None = None) -> None:
    """Send every log to `stream` (default: standard error), in place of an earlier configuration.

    `json` None: JSON unless the stream is a terminal. Give uvicorn `log_config=None`, so that it
    keeps its hands off. ValueError for an unknown level.
    """
    if level.lower() not in LEVELS:
        raise ValueError(f"log level is {level!r}; allowed: {', '.join(LEVELS)}")
    target = sys.stderr if stream is None else stream
    handler = _OurHandler(target)
    as_json = not target.isatty() if json is None else json
    handler.setFormatter(JsonFormatter() if as_json else HumanFormatter())
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, _OurHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name, floor in _FOREIGN.items():
        foreign = logging.getLogger(name)
        foreign.handlers.clear()
        foreign.propagate = True
        foreign.setLevel(floor)


class _OurHandler(logging.StreamHandler[TextIO]):
    """Marks our own handler, so that configuring again replaces it and nobody else's."""


class JsonFormatter(logging.Formatter):
    """One JSON object a line: the `extra` fields, then time, level, logger, message, exception."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            **dict(_fields(record)),
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return dumps(line)


class HumanFormatter(logging.Formatter):
    """`12:00:01 warning gate: message  key=value`, local time."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()} "
        name = record.name.removeprefix("surgetank.")
        fields = "".join(
            f"  {key}={_printable(value)}"
            for key, value in _fields(record)
            if key not in _FOR_MACHINES
        )
        line = f"{time} {level}{name}: {record.getMessage()}{fields}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    """What the caller passed as `extra`, made safe: numbers as they are, the rest as short text."""
    for key, value in vars(record).items():
        if key in _STANDARD or key.startswith("_"):
            continue
        if key in WITHHELD:
            yield key, "(withheld)"
        elif value is None or isinstance(value, int | float):
            yield key, value
        else:
            text = str(value)
            yield key, text if len(text) <= MAX_FIELD else text[:MAX_FIELD] + "..."


def _printable(value: Any) -> str:
    """A value that cannot start a line of its own."""
    text = str(value)
    return text if text.isprintable() else repr(text)
