"""What the parent and its node processes say to each other, and how it travels.

A command has the number of its call, and so has its answer. Deliveries are not told here: they
are millions, and stand in the `ledger`.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

import msgspec

from pulsarcast.model.topic_types import AttributeRule


class _Message(msgspec.Struct, frozen=True, gc=False, tag=True):
    """One message; its class is told by name."""

    call: int


# What the parent asks for.


class Open(_Message, frozen=True):
    """Start the node: where it is to listen, and whom it may ask first."""

    listen: str
    bootstrap: list[str]
    announce: list[str] = []
    """Where others find it, if that is elsewhere."""
    dial_from: str | None = None


class Join(_Message, frozen=True):
    """Here is everyone, in the order of their indices: connect to whom you need."""

    addresses: list[str]


class CreateTopic(_Message, frozen=True):
    """Create a topic."""

    name: str
    order: str
    dissemination: str = "tree"
    sequencers: list[bytes] = []
    """Of a total order: peer ids; without any, whoever creates it."""


class Subscribe(_Message, frozen=True):
    """Subscribe to a topic, and write every delivery into the ledger."""

    topic: bytes


class Publish(_Message, frozen=True):
    """Publish one event; `number` is its row in the ledger."""

    topic: bytes
    payload: bytes
    number: int
    injection: str
    ack: str


class CreateRouted(_Message, frozen=True):
    """Create a topic whose events have attributes, and are routed by content."""

    name: str
    attributes: list[AttributeRule]


class Follow(_Message, frozen=True):
    """Become a member of a topic, without anybody who listens."""

    topic: bytes


class SubscribeWhere(_Message, frozen=True):
    """Listen to what matches; `reader` is whose column of the ledger that is."""

    topic: bytes
    where: str
    reader: int


class PublishWith(_Message, frozen=True):
    """Publish one event with attributes; `number` is its row in the ledger."""

    topic: bytes
    payload: bytes
    attributes: dict[str, bool | int | float | str]
    number: int
    injection: str
    ack: str


class AskCounts(_Message, frozen=True):
    """Say how often you took each way that you count."""


class Measure(_Message, frozen=True):
    """Say what went through your sockets, and whether you have halted."""


class AskLead(_Message, frozen=True):
    """Say whether you give the events of a topic their places now."""

    topic: bytes


class Stop(_Message, frozen=True):
    """End in good order; the end of the process is the answer."""


# What a node answers.


class Opened(_Message, frozen=True):
    """The node listens."""

    peer: bytes
    addresses: list[str]


class Created(_Message, frozen=True):
    """The topic has this id."""

    topic: bytes


class Published(_Message, frozen=True):
    """The event has this id, and so many others hold it."""

    event: bytes
    replicas: int


class Measured(_Message, frozen=True):
    """Totals since the node began. Processor time and memory are read from outside."""

    bytes_in: int
    bytes_out: int
    halted: str | None = None
    """Why it promises nothing any more, where that is so."""


class Lead(_Message, frozen=True):
    """The term in which the node acts as a topic's sequencer; None: it does not."""

    term: int | None


class Subscribed(_Message, frozen=True):
    """The filter stands; whether what matches is routed to the node, which is no member then."""

    routed: bool


class Counts(_Message, frozen=True):
    """Totals since the node began, by what they are counts of."""

    counts: dict[str, int]


class Done(_Message, frozen=True):
    """Nothing more to say."""


class Failed(_Message, frozen=True):
    """It did not work, or there is no one left to ask."""

    error: str


Routing: TypeAlias = CreateRouted | Follow | SubscribeWhere | PublishWith | AskCounts
"""What only a contestant can do whose topics are routed by content."""
Command: TypeAlias = (
    Open | Join | CreateTopic | Subscribe | Publish | Measure | AskLead | Stop | Routing
)
Answer: TypeAlias = (
    Opened | Created | Published | Measured | Lead | Subscribed | Counts | Done | Failed
)

_LENGTH: Final = struct.Struct(">I")
_encoder: Final = msgspec.msgpack.Encoder()
_commands: Final[msgspec.msgpack.Decoder[Command]] = msgspec.msgpack.Decoder(Command)
_answers: Final[msgspec.msgpack.Decoder[Answer]] = msgspec.msgpack.Decoder(Answer)


def encode(message: Command | Answer) -> bytes:
    """A message with its length in front."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


def decode_command(body: bytes) -> Command:
    """What the parent asks."""
    return _commands.decode(body)


def decode_answer(body: bytes) -> Answer:
    """What a node answers."""
    return _answers.decode(body)


class Splitter:
    """Cuts what arrives on a control socket into messages."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take what arrived, return the messages that are whole now."""
        held = self._held
        held += data
        bodies: list[bytes] = []
        start = 0
        while len(held) - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(held, start)
            end = start + _LENGTH.size + size
            if end > len(held):
                break
            bodies.append(bytes(held[start + _LENGTH.size : end]))
            start = end
        del held[:start]
        return bodies
