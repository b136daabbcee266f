"""What a command and a testbed in the background say to each other: lines of JSON.

A request has any number of `Going` for an answer, and then one other.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

SOCKET: Final = "control.sock"
LOG: Final = "control.log"
"""What the testbed's process said."""

ExecAction: TypeAlias = Literal["create", "subscribe", "publish", "measure"]
FaultAction: TypeAlias = Literal[
    "kill", "stop", "start", "pause", "resume", "cut", "heal", "latency"
]


class _Message(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """One message; its class is told by name."""


# What is asked.


class Status(_Message, frozen=True):
    """Say how it is going."""


class Do(_Message, frozen=True):
    """Have nodes do something."""

    action: ExecAction
    nodes: str
    topic: str | None = None
    text: str = ""


class Play(_Message, frozen=True):
    """Play the scenario's load, or the beginning of it."""

    limit: int | None = None
    rate_per_s: float | None = None
    """None: as the thesis did, each user its next event when the last is answered."""
    patience_s: float = 60.0
    """How long nothing may come of what is due before it counts as lost."""


class Hit(_Message, frozen=True):
    """Do something to nodes, or to the network between them."""

    action: FaultAction
    nodes: str = "all"
    for_s: float | None = None
    latency: str | None = None


class End(_Message, frozen=True):
    """Stop everything in good order, once nothing has come for so long."""

    settle_s: float = 60.0


# What is answered.


class Going(_Message, frozen=True):
    """How far it is."""

    what: str
    done: int
    total: int


class Refused(_Message, frozen=True):
    """Why not."""

    error: str


class Reported(_Message, frozen=True):
    """What it came to: some facts, and perhaps a row for each node."""

    facts: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    ok: bool = True


Request: TypeAlias = Status | Do | Play | Hit | End
Answer: TypeAlias = Going | Refused | Reported

_encoder: Final = msgspec.json.Encoder()
_requests: Final[msgspec.json.Decoder[Request]] = msgspec.json.Decoder(Request)
_answers: Final[msgspec.json.Decoder[Answer]] = msgspec.json.Decoder(Answer)


def encode(message: Request | Answer) -> bytes:
    """A line."""
    return _encoder.encode(message) + b"\n"


def decode_request(line: bytes) -> Request:
    """What is asked."""
    return _requests.decode(line)


def decode_answer(line: bytes) -> Answer:
    """What is answered."""
    return _answers.decode(line)


@contextmanager
def address_in(folder: Path) -> Iterator[str]:
    """The address of the socket in a folder, whose own path may be longer than addresses are."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{opened}/{SOCKET}"
    finally:
        os.close(opened)


def listen_in(folder: Path) -> socket.socket:
    """Listen in a folder, for ourselves only."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    (folder / SOCKET).unlink(missing_ok=True)
    with address_in(folder) as address:
        listener.bind(address)
    (folder / SOCKET).chmod(0o600)
    listener.listen(16)
    listener.setblocking(False)
    return listener
