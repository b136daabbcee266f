"""Logs: on stderr, text for a terminal and JSON else, each room at its own level.

Never payloads, keys or tokens: nothing here is handed any.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Final, TextIO

import msgspec

from pulsarcast.daemon.settings import Settings, rooms

QUIET: Final = ("hypercorn", "trio", "httpx")
"""Rooms of others; they are heard where something is really wrong, or if somebody asks."""


class JsonLines(logging.Formatter):
    """A line of JSON for each message."""

    def format(self, record: logging.LogRecord) -> str:
        """One message."""
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "room": room_of(record.name),
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


class TextLines(logging.Formatter):
    """A line for people."""

    def format(self, record: logging.LogRecord) -> str:
        """One message."""
        at = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        text = f"{at} {room_of(record.name)}: {level}{record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def room_of(name: str) -> str:
    """The room that a logger belongs to."""
    parts = name.split(".")
    return parts[1] if parts[0] == "pulsarcast" and len(parts) > 1 else parts[0]


def set_up(settings: Settings, stream: TextIO | None = None) -> None:
    """Log as the settings say."""
    out = stream or sys.stderr
    handler = logging.StreamHandler(out)
    handler.setFormatter(TextLines() if out.isatty() else JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings["log.level"].upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    for room, level in rooms(settings).items():
        for name in (room, f"pulsarcast.{room}"):
            logging.getLogger(name).setLevel(level.upper())
