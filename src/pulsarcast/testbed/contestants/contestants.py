"""Contestants: what a node process can be made of, behind one small interface.

`ours` is a Pulsarcast node; `floodsub` and `gossipsub` are those of py-libp2p; `bare` sends the
same bytes along trees with no protocol at all, which is the least that this engine can cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.requests import Attribute
from pulsarcast.model.topic_types import AttributeRule
from pulsarcast.protocol.parameters import Parameters


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What all nodes of a fleet have in common."""

    seed: int = 1
    dials: int = 6
    """How many others each node of a pubsub network dials."""
    frame_bytes: int = 520
    """What one event of `bare` takes: a payload of 256 bytes in an event message of ours."""
    fanout: int = 6
    """How many children a node of a `bare` tree has: as many as in our trees."""
    trace_level: str | None = None
    rpc_traced: frozenset[int] = frozenset()
    """Nodes that write down every message, whatever the others write."""
    trace_folder: Path | None = None
    run_id: str = "testbed"
    parameters: Parameters = field(default_factory=Parameters)
    """Of our protocol."""

    def trace_level_of(self, index: int) -> str | None:
        """How much one node writes down."""
        return "rpc" if index in self.rpc_traced else self.trace_level


class Deliver(Protocol):
    """Takes note of a delivery."""

    def __call__(self, payload: bytes, reader: int = 0) -> None:
        """The application, or one of several readers of it, was handed this."""


@dataclass(frozen=True, kw_only=True)
class Seat:
    """One node's place in a fleet."""

    index: int
    size: int
    life: int
    home: Path
    listen: str
    bootstrap: Sequence[str]
    """Addresses of nodes that it may ask first."""
    announce: Sequence[str]
    """Where others find it, if that is elsewhere; only ours can tell them."""
    dial_from: str | None
    """From which address it dials; only ours can."""
    settings: Settings
    deliver: Deliver
    """To be called with the payload of every event that the application is handed."""


class Receipt(NamedTuple):
    """A published event: its id, and how many others hold it."""

    event: Cid
    replicas: int


class Traffic(NamedTuple):
    """Bytes at the sockets since the start: encrypted, without the headers of TCP and IP."""

    bytes_in: int
    bytes_out: int
    messages_in: int | None = None
    """Messages of the protocol, where a node can tell; only ours can."""
    messages_out: int | None = None


class Volume(NamedTuple):
    """Bytes at the sockets of a whole fleet."""

    bytes_in: int
    bytes_out: int


class Messages(NamedTuple):
    """Messages that a node received and sent in all of its lives."""

    received: int
    sent: int


class Contestant(Protocol):
    """A node that is open."""

    @property
    def peer(self) -> PeerId:
        """Its peer id."""

    @property
    def addresses(self) -> Sequence[str]:
        """Where it listens, with its peer id."""

    async def join(self, addresses: Sequence[str]) -> None:
        """Connect to whom it needs of everyone."""

    async def create_topic(
        self,
        name: str,
        order: str,
        dissemination: str = "tree",
        sequencers: Sequence[PeerId] = (),
    ) -> Cid:
        """Create a topic that orders and spreads its events so, where there is such a thing."""

    async def subscribe(self, topic: Cid) -> None:
        """From now on, call the seat's `deliver` for each event of the topic."""

    async def publish(self, topic: Cid, payload: bytes, *, injection: str, ack: str) -> Receipt:
        """Publish, and wait for the acknowledgement where there is one."""

    def traffic(self) -> Traffic:
        """What went through its sockets."""

    def term_led(self, topic: Cid) -> int | None:
        """The term in which it leads a topic's sequencers, if it does; only ours can."""

    @property
    def halted(self) -> str | None:
        """Why it promises nothing any more, where it has said so."""


@runtime_checkable
class Filtering(Protocol):
    """What else a contestant can do whose topics are routed by content; only ours can."""

    async def create_routed(self, name: str, attributes: Sequence[AttributeRule]) -> Cid:
        """Create a topic whose events have these attributes, and are routed by them."""

    async def follow(self, topic: Cid) -> None:
        """Become a member, whom those who follow by content compare with."""

    async def subscribe_where(self, topic: Cid, where: str, reader: int) -> bool:
        """Have what matches told to a reader; whether it comes by content, and not to a member."""

    async def publish_with(
        self,
        topic: Cid,
        payload: bytes,
        attributes: Mapping[str, Attribute],
        *,
        injection: str,
        ack: str,
    ) -> Receipt:
        """Publish an event with attributes."""

    def counted(self) -> Mapping[str, int]:
        """How often the node took each way that it counts."""


LOGGED: Final = "logged"
"""Among the counts: events that a node has put into the logs of topics that it follows."""

Opener: TypeAlias = Callable[[Seat], AbstractAsyncContextManager[Contestant]]
"""Opens a contestant at its seat."""

CONTESTANTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ours": "pulsarcast.testbed.contestants.ours:open_node",
        "floodsub": "pulsarcast.testbed.contestants.pubsub:open_floodsub",
        "gossipsub": "pulsarcast.testbed.contestants.pubsub:open_gossipsub",
        "bare": "pulsarcast.testbed.contestants.bare:open_bare",
    }
)


def load(name: str) -> Opener:
    """Import a contestant and all that it needs, in the parent: children share it then."""
    if name not in CONTESTANTS:
        raise LocalError(f"no contestant {name!r}; there are: {', '.join(CONTESTANTS)}")
    module, _, function = CONTESTANTS[name].partition(":")
    try:
        opener: Opener = getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        raise LocalError(
            f"{name} needs more: pip install 'pulsarcast[baselines]' ({error.name} is missing)"
        ) from error
    return opener
