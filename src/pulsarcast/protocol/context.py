"""What every part of a node shares: its turn, its parameters, its counters, and its judgement.

A part gets a context, the parts below it that it calls, and, where it has to tell its owner
something, one narrow protocol that names what it asks of it. No part knows the node.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from pulsarcast.model import trace
from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import EventDescriptor, decode_event
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.turn import Turn

Part = TypeVar("Part")
Parts: TypeAlias = Mapping[type[Any], type[Any]]
"""Classes of the core, each with the subclass that is built in its place."""
NO_PARTS: Parts = MappingProxyType({})


class Context:
    """The surroundings of one node's parts."""

    __slots__ = ("_parts", "counts", "decode", "parameters", "turn")

    def __init__(
        self,
        turn: Turn,
        parameters: Parameters,
        decode: Callable[[bytes], EventDescriptor] = decode_event,
        parts: Parts = NO_PARTS,
    ) -> None:
        self.turn = turn
        self.parameters = parameters
        self.counts: Counter[str] = Counter()
        """How often the node took each way of recovering."""
        self.decode = decode
        """Reads an event's bytes and checks all that they prove by themselves."""
        self._parts = parts

    def part(self, kind: type[Part]) -> type[Part]:
        """The class to build a part from: itself, or a simulation's subclass (decision 0009)."""
        return self._parts.get(kind, kind)

    def rejected(self, sender: PeerId, topic: Cid | None, error: RemoteError) -> None:
        """Write down that a peer sent what it must not send."""
        self.turn.trace(trace.Rejected(error.verdict, error.code, sender, topic))
