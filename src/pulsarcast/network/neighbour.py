"""A neighbour: a peer that the node has a connection to, or is about to have one."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable
from typing import Final, NamedTuple, Protocol, TypeAlias

import trio

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.ids import PeerId
from pulsarcast.model.reach import Reach
from pulsarcast.network.link import Link
from pulsarcast.protocol.messages import Contact
from pulsarcast.wire.hello import Hello

Topic: TypeAlias = Callable[[], Hashable]
"""Finds out what a frame of payload is about: asked only where frames have to wait."""

HUNG_UP: Final = "it hung up: it is of another network or another version, or has too many peers"


class Listener(Protocol):
    """Whoever is told what neighbours do: the driver."""

    def received(self, peer: PeerId, frames: list[bytes]) -> bool:
        """A peer said something; whether there was an event among it that the node lacked.

        RemoteError ends the connection.
        """

    def up(self, contact: Contact, link: Link, reach: Reach, said: Hello) -> None:
        """A peer can be spoken to; the node has said a Hello to it that may be old by now."""

    def is_near(self, link: Link) -> bool:
        """Whether a peer is in a network that this machine is plugged into."""

    def relied_on(self) -> Container[PeerId]:
        """The peers that serve the node: their connections are kept, whoever else wants room."""

    def served(self) -> Container[PeerId]:
        """The neighbours in topics, which the node may serve, and not they it."""

    def unreachable(self, peer: PeerId, reason: str) -> None:
        """A peer cannot be reached, for a reason that is new."""

    def lost(self, peer: PeerId) -> None:
        """A connection ended, or could not be made: what we said may be lost."""

    def moving(self, peer: PeerId) -> None:
        """A peer has sent bytes that make no frame yet."""

    def filled(self, peer: PeerId) -> None:
        """Much waits for a peer."""

    def freed(self, peer: PeerId) -> None:
        """What waited for a peer has left."""

    def wanted(self, peer: PeerId) -> None:
        """Nobody knows where a peer is: look for it, and say `found` or `not_found`."""

    def blamed(self, peer: PeerId, error: RemoteError) -> None:
        """A peer broke the rules."""

    def met_double(self, address: str) -> None:
        """Somebody else has our key."""

    def gather(self) -> None:
        """Do what has come together, with what other peers have sent by now."""


class Refused(NamedTuple):
    """A peer that could not be reached."""

    since_s: float
    """Of the first dial in vain."""
    until_s: float
    """It is left alone until then."""
    wait_s: float
    reason: str
    kinds: tuple[str, ...]
    """The reason without addresses: others may tell ever new ones."""


class Connection:
    """One connection and what is known of it."""

    __slots__ = ("fault", "held", "hello", "link", "patience", "replaces", "said")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.hello: Hello | None = None
        """What the peer says of itself."""
        self.said: Hello | None = None
        """What the node said of itself."""
        self.fault = HUNG_UP
        """Why it came to nothing, if it did."""
        self.replaces: Connection | None = None
        """The relayed connection in whose place it comes."""
        self.held: list[bytes] = []
        """Frames that came before the last ones of the connection that it replaces."""
        self.patience = trio.CancelScope()
        """Ends the wait for a Hello."""


class Neighbour:
    """A peer that we are connected to, or are about to be."""

    __slots__ = (
        "connection",
        "dial",
        "heard_s",
        "is_carrier",
        "is_full",
        "is_relayed",
        "leaving",
        "peer",
        "said_s",
        "spare",
        "waiting",
        "waiting_bytes",
    )

    def __init__(self, peer: PeerId, now_s: float) -> None:
        self.peer = peer
        self.connection: Connection | None = None
        """The connection that both have agreed on."""
        self.spare: Connection | None = None
        """One that the peer dialled while we dialled it, or soon after."""
        self.leaving: Connection | None = None
        """A relayed one that both have replaced, whose last frames are still to come."""
        self.dial: trio.CancelScope | None = None
        self.is_carrier = False
        """Whether it is dialled as a relay, and so at its direct addresses only."""
        self.is_relayed = False
        """Whether it is dialled through a relay."""
        self.is_full = False
        """Whether the core was told that much waits for the peer."""
        self.waiting: list[tuple[bytes, Topic | None]] = []
        self.waiting_bytes = 0
        self.said_s = now_s
        self.heard_s = now_s
