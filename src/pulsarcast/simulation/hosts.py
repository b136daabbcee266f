"""Hosts: what of a node outlives its processes, and what a process is made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.identity import Identity
from pulsarcast.protocol.context import Parts
from pulsarcast.protocol.messages import Contact
from pulsarcast.protocol.node import Node
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.simulation.hardware.machines import Meter
from pulsarcast.simulation.places import Place
from pulsarcast.simulation.process import Core, Process
from pulsarcast.storage.memory import MemoryStore

DecodeEvent: TypeAlias = Callable[[bytes], EventDescriptor]


@dataclass(frozen=True, slots=True)
class Seat:
    """All that a node is built from."""

    index: int
    identity: Identity
    rng: Random
    parameters: Parameters
    decode_event: DecodeEvent
    parts: Parts


MakeNode: TypeAlias = Callable[[Seat], Core]


def make_node(seat: Seat) -> Core:
    """Build the real thing."""
    return Node(
        seat.identity,
        seat.rng,
        seat.parameters,
        decode_event=seat.decode_event,
        parts=seat.parts,
    )


class Host:
    """The machine of a node: its identity, disk and clock, and its process while it is up."""

    __slots__ = (
        "contacts",
        "disk_full",
        "drift_ppm",
        "identity",
        "incarnation",
        "lost",
        "meter",
        "offset_s",
        "place",
        "process",
        "store",
    )

    def __init__(
        self,
        identity: Identity,
        contacts: tuple[Contact, ...],
        store: MemoryStore,
        place: Place | None = None,
    ) -> None:
        self.identity = identity
        self.contacts = contacts
        self.place = place
        self.store = store
        self.offset_s = 0.0
        self.drift_ppm = 0.0
        self.disk_full = False
        self.incarnation = 0
        self.meter: Meter | None = None
        self.lost = False
        self.process: Process | None = None
