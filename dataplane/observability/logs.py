"""Logging of a process: one line per record, on standard error, as text or as JSON.

Levels follow the verbosity numbers of the field's Go programs: 2 is normal, 4 debug, 5 trace. Whatever a
client, a file or a model server put into a message, it cannot start a new line or move the cursor: control
characters are escaped.
"""

from __future__ import annotations

import datetime
import logging
import re
import sys
from typing import Final, TextIO

import msgspec

TRACE: Final = 5
"""Below DEBUG: per-message detail."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

MAX_MESSAGE: Final = 16_384
"""Characters of one message that are written; the rest is counted."""


def level_of_verbosity(verbosity: int) -> int:
    """The logging level for a ``-v`` number: 0-1 warnings, 2-3 normal, 4 debug, 5 and more trace."""
    if verbosity >= 5:
        return TRACE
    if verbosity == 4:
        return logging.DEBUG
    return logging.INFO if verbosity >= 2 else logging.WARNING


def configure(level: int, *, json: bool = False, stream: TextIO | None = None) -> None:
    """Send every record of the process at ``level`` or above to ``stream`` (standard error)."""
    logging.addLevelName(TRACE, "TRACE")
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter() if json else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


class TextFormatter(logging.Formatter):
    """``2025-01-02T03:04:05.678Z INFO epp.app: message``; a traceback follows indented by its own lines."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_timestamp(record)} {record.levelname} {record.name}: {escape_controls(_message(record))}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ts, level, logger, msg and, for exceptions, error."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "ts": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": _message(record),
        }
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        clean = {key: value.encode("utf-8", "replace").decode("utf-8") for key, value in fields.items()}
        return msgspec.json.encode(clean).decode("utf-8")


def escape_controls(text: str) -> str:
    """``text`` with control characters and line separators written as escapes."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def _message(record: logging.LogRecord) -> str:
    message = record.getMessage()
    if len(message) > MAX_MESSAGE:
        message = f"{message[:MAX_MESSAGE]}... ({len(message) - MAX_MESSAGE} more characters)"
    return message.encode("utf-8", "backslashreplace").decode("utf-8")


def _timestamp(record: logging.LogRecord) -> str:
    moment = datetime.datetime.fromtimestamp(record.created, tz=datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
