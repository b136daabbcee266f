"""Relays: public nodes that carry connections to nodes that cannot be dialled.

A node that knows that it cannot be dialled keeps reservations at public nodes that it is connected
to. Others dial it through one of those. Such a connection ends with its relay, and with the
reservation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsarcast.model.reach import Reach
from pulsarcast.protocol.inputs import Relayed
from pulsarcast.simulation.lines import End, Line

if TYPE_CHECKING:
    from pulsarcast.simulation.network import Network

RESERVATIONS = 2
"""Relays at which a node keeps a reservation: one of them may go down."""
LOOK_S = 2.0
"""How often nodes look whether they need reservations: about as long as a dial takes."""


class Relays:
    """The reservations of all nodes, and the connections that relays carry."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._held: dict[int, dict[int, Line]] = {}
        """Of each node: its connections to the relays that have a reservation for it."""
        self._carried: dict[Line, None] = {}
        self.dials = 0
        """Dials that a relay carried."""
        network.loop.after(LOOK_S, self._look)

    def find(self, source: int, target: int) -> int | None:
        """A relay through which one node can dial another now; None: there is none."""
        for relay in self._held.get(target, {}):
            if relay != source and self._network.is_open(source, relay):
                return relay
        return None

    def carries(self, line: Line) -> bool:
        """Whether a dial through a relay gets through."""
        assert line.via is not None, "the dial is direct"
        relay = self._network.ends[line.via]
        return line.via in self._held.get(line.target, {}) and relay is not None and relay.running

    def opened(self, line: Line) -> None:
        """A dial through a relay was accepted."""
        self.dials += 1
        self._carried[line] = None

    def stalled(self, relay: int) -> None:
        """A relay passes nothing on any more, and says nothing."""
        for line in [line for line in self._carried if line.via == relay]:
            self._network.cut_through(line)

    def broke(self, line: Line) -> None:
        """A connection is broken: a reservation over it is lost."""
        for each in (line, line.back):
            self._carried.pop(each, None)
            if self._held.get(each.source, {}).get(each.target) is each:
                self._release(each)

    def _look(self, _: object) -> None:
        """Every node takes reservations where it needs some, and gives up those it does not."""
        for end in self._network.ends:
            if end is None or not end.running:
                continue
            held = self._held.setdefault(end.index, {})
            needs = end.reach in (Reach.PRIVATE, Reach.RELAYED)
            for line in list(end.lines.values()) if needs else ():
                if len(held) < RESERVATIONS and line.target not in held and self._serves(line):
                    held[line.target] = line
                    if len(held) == 1:
                        end.take(Relayed(True))
            for line in list(held.values()) if not needs else ():
                self._release(line)
        self._network.loop.after(LOOK_S, self._look)

    def _serves(self, line: Line) -> bool:
        """Whether the other end of a node's connection gives it a reservation."""
        if line.broken or not line.up or line.via is not None:
            return False
        relay: End | None = self._network.ends[line.target]
        return (
            relay is not None
            and relay.running
            and relay.reach is Reach.PUBLIC
            and self._network.place(line.target).is_public
        )

    def _release(self, line: Line) -> None:
        """A reservation is lost, and every connection over it."""
        held = self._held[line.source]
        del held[line.target]
        for carried in list(self._carried):
            if carried.via == line.target and carried.target == line.source:
                if line.cut:
                    self._network.cut_through(carried)
                else:
                    self._network.lose(carried)
        if not held:
            self._network.loop.after(0.0, self._tell_lost, line)

    def _tell_lost(self, line: Line) -> None:
        if not self._held[line.source] and self._network.ends[line.source] is line.sender:
            line.sender.take(Relayed(False))
