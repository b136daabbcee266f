"""What goes over the lines: how large it is, how much of each kind, and as what it is carried."""

from __future__ import annotations

from typing import Any

from pulsarcast.protocol.messages import Message, Range
from pulsarcast.wire.codec import encode, size_of


class Tally:
    """How many messages of one kind were sent, and how large they were together."""

    __slots__ = ("bytes", "events", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.events = 0
        """Events inside messages that carry many (`Range`)."""


class Traffic:
    """Measures messages and counts them.

    An event that is forwarded to eight children is one object, sent eight times in a row: what
    was found out about the last message is kept.
    """

    __slots__ = (
        "_tallies",
        "carried",
        "events",
        "lost",
        "message",
        "size",
        "tally",
        "through_wire",
        "writes",
    )

    def __init__(self, *, through_wire: bool) -> None:
        self.through_wire = through_wire
        self._tallies: dict[type, Tally] = {}
        self.lost = 0
        """Messages that were said and never heard: the connection broke."""
        self.writes = 0
        """Pieces in which all messages left: those that wait on one line travel together."""
        # About the last message.
        self.message: Message | None = None
        self.carried: Any = None
        self.size = 0
        self.events = 0
        self.tally = Tally()

    def measure(self, message: Message) -> None:
        """Find out what `send` needs to know about a message."""
        self.message = message
        if not self.through_wire:
            self.carried = message
            self.size = size_of(message)
        else:
            self.carried = encode(message)
            self.size = len(self.carried)
        kind = type(message)
        self.events = len(message.blocks) if isinstance(message, Range) else 0
        tally = self._tallies.get(kind)
        if tally is None:
            tally = self._tallies[kind] = Tally()
        self.tally = tally

    def count(self, message: Message) -> None:
        """Count a message that is sent."""
        if message is not self.message:
            self.measure(message)
        self.tally.messages += 1
        self.tally.bytes += self.size
        self.tally.events += self.events

    def size_of(self, carried: Any) -> int:
        """The size of what is on a line, which is bytes or a message."""
        return len(carried) if isinstance(carried, bytes) else size_of(carried)

    @property
    def messages(self) -> dict[str, int]:
        """Messages sent, by the names of their types."""
        return {kind.__name__: tally.messages for kind, tally in self._by_name()}

    @property
    def bytes(self) -> dict[str, int]:
        """Bytes sent, by the names of the messages' types."""
        return {kind.__name__: tally.bytes for kind, tally in self._by_name()}

    @property
    def range_events(self) -> int:
        """Events sent inside `Range` messages."""
        return sum(tally.events for tally in self._tallies.values())

    def _by_name(self) -> list[tuple[type, Tally]]:
        return sorted(self._tallies.items(), key=lambda item: item[0].__name__)
