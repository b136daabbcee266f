"""The network: how connections open, and everything that can go wrong with them.

A connection is two `Line`s, one per direction. It never delivers a message after having lost an
earlier one: once something is lost, the whole connection is broken, and stays so until its ends
are told with `PeerLost`. Real streams behave so, and the core relies on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from pulsarcast.model.ids import PeerId
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.inputs import DialledBack, PeerLost, PeerUp
from pulsarcast.protocol.messages import Contact, ReachChanged
from pulsarcast.simulation.hardware.uplinks import TracedUplinkLine, Uplink, UplinkLine
from pulsarcast.simulation.lines import End, Line, TracedLine
from pulsarcast.simulation.links import Links
from pulsarcast.simulation.loop import Loop
from pulsarcast.simulation.places import Place, network_of
from pulsarcast.simulation.relays import Relays
from pulsarcast.simulation.traffic import Traffic

DIAL_TIMEOUT_S = 5.0
"""How long a dial tries to reach someone who does not answer at all."""
CUT_NOTICED_S = 15.0
"""How long an open connection takes to notice that nothing comes through."""
NOWHERE = -1
"""The index of a peer that is no node of this world."""


class Network:
    """All connections of a world. Nodes are known by index; a process comes and goes."""

    def __init__(
        self,
        loop: Loop,
        links: Links,
        rng: Random,
        *,
        through_wire: bool,
        trace_rpc: bool = False,
        uplink: float | None = None,
    ) -> None:
        self.loop = loop
        self.links = links
        self.rng = rng
        self.traffic = Traffic(through_wire=through_wire)
        self.indices: dict[PeerId, int] = {}
        self.ends: list[End | None] = []
        """The process of each node, or None while it is down."""
        self._line: type[Line] = TracedLine if trace_rpc else Line
        if uplink is not None:
            self._line = TracedUplinkLine if trace_rpc else UplinkLine
        self._uplink = uplink
        self._uplinks: dict[int, Uplink] = {}
        self._groups: dict[int, int] | None = None
        self._cut: list[Line] = []
        self._places: dict[int, Place] = {}
        self.relays: Relays | None = None

    def use_lines(self, line: type[Line]) -> None:
        """Make connections of another kind from now on."""
        self._line = line

    def use_links(self, links: Links) -> None:
        """Let messages take another time from now on, over open connections too."""
        self.links = links
        for end in self.ends:
            for line in end.lines.values() if end is not None else ():
                if line.accepted:
                    line.settle()

    def add(self, peer: PeerId) -> int:
        """A new node, that has no process yet."""
        index = len(self.ends)
        # Of clones, that have one peer id, the first is the one that others find.
        self.indices.setdefault(peer, index)
        self.ends.append(None)
        return index

    def uplink(self, index: int) -> Uplink:
        """The way out of a node, where the network has such."""
        if index not in self._uplinks:
            assert self._uplink is not None, "bytes of this network wait for nothing"
            self._uplinks[index] = Uplink(self.loop, self._uplink)
        return self._uplinks[index]

    # Places.

    def use_relays(self) -> None:
        """Let public nodes carry connections to nodes that cannot be dialled."""
        self.relays = Relays(self)

    def place(self, index: int) -> Place:
        """The place of a node that has one."""
        return self._places[index]

    def settle(self, index: int, place: Place) -> bool:
        """Put a node into a place; returns whether its address is another one now.

        Connections to and from the old address carry nothing any more, and the ends find out late.
        """
        before, self._places[index] = self._places.get(index), place
        end = self.ends[index]
        moved = before is not None and place.has_moved(before)
        if moved and end is not None:
            for line in list(end.lines.values()):
                self.cut_through(line)
        return moved

    def is_open(self, source: int, target: int) -> bool:
        """Whether no NAT and no firewall drops a dial from one node to another."""
        place = self._places.get(target)
        return place is None or place.can_be_dialled_from(self._places[source])

    def are_apart(self, a: int, b: int) -> bool:
        """Whether the network is cut between two nodes."""
        groups = self._groups
        return groups is not None and groups.get(a, -1) != groups.get(b, -1)

    def dial_back(self, sender: End, peer: PeerId) -> None:
        """Try to open a second connection to a connected peer; tells the sender what came of it."""
        line = sender.lines.get(peer)
        if line is None or line.broken or line.via is not None:
            self.loop.after(0.0, sender.take, DialledBack(peer))
            return
        end = self.ends[line.target]
        reached = end is not None and end.running and self.is_open(line.source, line.target)
        if not reached or self._apart(line):
            self.loop.after(DIAL_TIMEOUT_S, sender.take, DialledBack(peer))
            return
        place = self._places.get(line.target)
        address = "/memory"
        if place is not None:
            address = place.address_for(self.place(line.source), line.target)
        wait_s = line.latency_s() + line.back.latency_s()
        self.loop.after(wait_s, sender.take, DialledBack(peer, address))

    def stalled(self, index: int) -> None:
        """A process was paused: what it carries for others waits, and nobody is told."""
        if self.relays is not None:
            self.relays.stalled(index)

    # Opening.

    def dial(self, sender: End, peer: PeerId) -> Line:
        """Open a connection; what is said meanwhile waits in the line."""
        target = self.indices.get(peer, NOWHERE)
        assert target != sender.index, "a node does not dial itself"
        other = self.ends[target] if target != NOWHERE else None
        if other is not None:
            theirs = other.lines.get(sender.peer)
            waits = theirs is not None and not theirs.accepted and not theirs.broken
            if (
                theirs is not None
                and waits
                and theirs.target == sender.index
                and (theirs.via is not None or self.is_open(target, sender.index))
            ):
                # Both dial at once: it becomes one connection.
                return self._register(theirs.back, sender)
        line = self._line(self, sender.index, sender.peer, target, peer)
        line.back = self._line(self, target, peer, sender.index, sender.peer)
        line.back.back = line
        line.back.receiver = sender
        if target != NOWHERE and self.relays is not None and not self.is_open(line.source, target):
            line.via = line.back.via = self.relays.find(line.source, target)
        self._register(line, sender)
        if target == NOWHERE:
            self.loop.after(DIAL_TIMEOUT_S, self._give_up, line)
        else:
            self.loop.after(line.latency_s(), self._knock, line)
        return line

    def _register(self, line: Line, sender: End) -> Line:
        line.sender = sender
        line.over = False
        sender.lines[line.peer] = line
        return line

    def _knock(self, line: Line) -> None:
        if line.broken:
            return
        end = self.ends[line.target]
        if self._is_barred(line) or self._apart(line):
            self.loop.at(line.dialled_s + DIAL_TIMEOUT_S, self._give_up, line)
        elif end is None:
            self.loop.after(line.back.latency_s(), self._give_up, line)
        elif not end.running:
            end.hold(self._accept, line)
            self.loop.at(line.dialled_s + DIAL_TIMEOUT_S, self._give_up, line)
        else:
            self._accept(line)

    def _is_barred(self, line: Line) -> bool:
        """Whether a dial is dropped on its way: nobody answers it."""
        if line.via is None:
            return not self.is_open(line.source, line.target)
        return self.relays is None or not self.relays.carries(line)

    def _is_in_vain(self, line: Line) -> bool:
        return not line.accepted and not line.broken and self._is_barred(line)

    def _accept(self, line: Line) -> None:
        if line.broken:
            return
        receiver = self.ends[line.target]
        assert receiver is not None, "nobody accepts for a process that is gone"
        old = receiver.lines.get(line.speaker)
        if old is not None and old is not line.back and self._is_in_vain(old):
            # What waits for a dial that is dropped goes over the connection that comes in.
            line.back.waiting, old.waiting = old.waiting, []
            old.over = True
            self._break(old)
        elif old is not None and old is not line.back:
            if old.target != line.source:
                # A clone of the peer at the other end takes its place: that one hears of it too.
                self._break(old)
                self.loop.after(old.latency_s(), self._tell, old.back)
            # It has not heard yet that the last connection ended: this is how it learns.
            self._tell(old)
        back = self._register(line.back, receiver)
        line.receiver = receiver
        for each in (line, back):
            each.accepted = each.sound = True
            each.settle()
        back.last_s = self.loop.now + back.latency_s()
        self.loop.at(back.last_s, self._opened, line)
        back.up = True
        if line.via is not None and self.relays is not None:
            self.relays.opened(line)
        if self._places:
            line.told, back.told = line.sender.reach, receiver.reach
        back.release()
        receiver.take(self._peer_up(back, reached=False))

    def _opened(self, line: Line) -> None:
        if line.broken:
            return
        if not line.sender.running:
            line.sender.hold(self._opened, line)
            return
        line.up = True
        line.release()
        line.sender.take(self._peer_up(line, reached=True))
        if self._places and line.sender.reach is not line.told and not line.broken:
            # It changed after the Hello had left, when the peer was not connected yet.
            line.send(ReachChanged(line.sender.reach))

    def _peer_up(self, line: Line, *, reached: bool) -> PeerUp:
        """What the sender of a line is told when it is open."""
        place = self._places.get(line.target)
        if place is None:
            return PeerUp(Contact(line.peer), reach=Reach.PUBLIC)
        here = self._places[line.source]
        seen = place if line.via is None else self._places[line.via]
        return PeerUp(
            Contact(line.peer, place.addresses(line.target)),
            network_of(seen.seen_from(here)),
            reached,
            near=line.via is None and place.is_near(here),
            reach=line.back.told,
            relayed=line.via is not None,
        )

    def _give_up(self, line: Line) -> None:
        if not line.accepted:
            self._break(line)
            self._tell(line)
            self._tell(line.back)

    # Ending.

    def leave(self, end: End) -> None:
        """A process was killed: what it said and what was said to it is lost."""
        for line in list(end.lines.values()):
            self._break(line)
            line.over = True
            if not line.cut:
                self.loop.after(line.latency_s(), self._tell, line.back)
        end.lines.clear()

    def close(self, line: Line) -> None:
        """The sender ends a connection in good order: what it said still arrives."""
        back = line.back
        del line.sender.lines[line.peer]
        line.over = True
        # Whoever has not heard yet that we are up cannot hear anything before that we are not.
        sound = line.sound and back.up
        self._break(line)
        if not back.over:
            line.sound = sound
            line.finish(self._tell)

    def reset(self, line: Line) -> None:
        """A connection breaks at once, and both ends know."""
        if not line.broken:
            self._break(line)
            self.loop.after(0.0, self._tell, line)
            self.loop.after(0.0, self._tell, line.back)

    def lose(self, line: Line) -> None:
        """What carried a connection is gone: the ends hear of it as soon as news travels."""
        if not line.broken:
            self._break(line)
            for each in (line, line.back):
                self.loop.after(each.latency_s(), self._tell, each)

    def cut(self, groups: Sequence[Iterable[int]]) -> None:
        """Let nothing through between groups; nodes in no group are together in one more."""
        self._groups = {index: number for number, group in enumerate(groups) for index in group}
        for end in self.ends:
            for line in list(end.lines.values()) if end is not None else ():
                if self._apart(line):
                    self.cut_through(line)

    def heal(self) -> None:
        """Let everything through again; connections that were cut end now."""
        self._groups = None
        lines, self._cut = self._cut, []
        for line in lines:
            self.loop.after(0.0, self._tell, line)
            self.loop.after(0.0, self._tell, line.back)

    def cut_through(self, line: Line) -> None:
        """Nothing goes through a connection any more, and its ends notice late."""
        line.sound = line.back.sound = False
        if line.broken:
            return
        line.cut = line.back.cut = True
        self._break(line)
        noticed_s = self.loop.now + CUT_NOTICED_S
        if line.accepted:
            self._cut.append(line)
        else:
            noticed_s = max(line.dialled_s + DIAL_TIMEOUT_S, self.loop.now)
        for each in (line, line.back):
            self.loop.at(noticed_s, self._tell, each)

    def _apart(self, line: Line) -> bool:
        if line.via is None:
            return self.are_apart(line.source, line.target)
        return self.are_apart(line.source, line.via) or self.are_apart(line.via, line.target)

    def _break(self, line: Line) -> None:
        for each in (line, line.back):
            each.broken = True
            each.ready = each.sound = False
            each.drop_waiting()
        if self.relays is not None:
            self.relays.broke(line)

    def _tell(self, line: Line) -> None:
        """The sender of this line learns that its connection has ended."""
        if line.over:
            return
        if not line.sender.running:
            line.sender.hold(self._tell, line)
            return
        line.over = True
        line.back.sound = False
        del line.sender.lines[line.peer]
        line.sender.take(PeerLost(line.peer))
