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
from pulsarcast.protocol.inputs import PeerLost, PeerUp
from pulsarcast.protocol.messages import Contact
from pulsarcast.simulation.lines import End, Line, TracedLine
from pulsarcast.simulation.links import Links
from pulsarcast.simulation.loop import Loop
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
        self, loop: Loop, links: Links, rng: Random, *, through_wire: bool, trace_rpc: bool = False
    ) -> None:
        self.loop = loop
        self.links = links
        self.rng = rng
        self.traffic = Traffic(through_wire=through_wire)
        self.indices: dict[PeerId, int] = {}
        self.ends: list[End | None] = []
        """The process of each node, or None while it is down."""
        self._line: type[Line] = TracedLine if trace_rpc else Line
        self._groups: dict[int, int] | None = None
        self._cut: list[Line] = []

    def use_lines(self, line: type[Line]) -> None:
        """Make connections of another kind from now on."""
        self._line = line

    def add(self, peer: PeerId) -> int:
        """A new node, that has no process yet."""
        index = len(self.ends)
        # Of clones, that have one peer id, the first is the one that others find.
        self.indices.setdefault(peer, index)
        self.ends.append(None)
        return index

    # Opening.

    def dial(self, sender: End, peer: PeerId) -> Line:
        """Open a connection; what is said meanwhile waits in the line."""
        target = self.indices.get(peer, NOWHERE)
        assert target != sender.index, "a node does not dial itself"
        other = self.ends[target] if target != NOWHERE else None
        if other is not None:
            theirs = other.lines.get(sender.peer)
            waits = theirs is not None and not theirs.accepted and not theirs.broken
            if theirs is not None and waits and theirs.target == sender.index:
                # Both dial at once: it becomes one connection.
                return self._register(theirs.back, sender)
        line = self._line(self, sender.index, sender.peer, target, peer)
        line.back = self._line(self, target, peer, sender.index, sender.peer)
        line.back.back = line
        line.back.receiver = sender
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
        if self._apart(line):
            self.loop.at(line.dialled_s + DIAL_TIMEOUT_S, self._give_up, line)
        elif end is None:
            self.loop.after(line.back.latency_s(), self._give_up, line)
        elif not end.running:
            end.hold(self._accept, line)
            self.loop.at(line.dialled_s + DIAL_TIMEOUT_S, self._give_up, line)
        else:
            self._accept(line)

    def _accept(self, line: Line) -> None:
        if line.broken:
            return
        receiver = self.ends[line.target]
        assert receiver is not None, "nobody accepts for a process that is gone"
        old = receiver.lines.get(line.speaker)
        if old is not None and old is not line.back:
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
        back.release()
        receiver.take(PeerUp(Contact(line.speaker), reach=Reach.PUBLIC))

    def _opened(self, line: Line) -> None:
        if line.broken:
            return
        if not line.sender.running:
            line.sender.hold(self._opened, line)
            return
        line.up = True
        line.release()
        line.sender.take(PeerUp(Contact(line.peer), reach=Reach.PUBLIC))

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
            self.loop.at(max(line.last_s, self.loop.now + line.latency_s()), self._tell, line.back)

    def reset(self, line: Line) -> None:
        """A connection breaks at once, and both ends know."""
        if not line.broken:
            self._break(line)
            self.loop.after(0.0, self._tell, line)
            self.loop.after(0.0, self._tell, line.back)

    def cut(self, groups: Sequence[Iterable[int]]) -> None:
        """Let nothing through between groups; nodes in no group are together in one more."""
        self._groups = {index: number for number, group in enumerate(groups) for index in group}
        for end in self.ends:
            for line in list(end.lines.values()) if end is not None else ():
                if self._apart(line):
                    self._cut_through(line)

    def heal(self) -> None:
        """Let everything through again; connections that were cut end now."""
        self._groups = None
        lines, self._cut = self._cut, []
        for line in lines:
            self.loop.after(0.0, self._tell, line)
            self.loop.after(0.0, self._tell, line.back)

    def _cut_through(self, line: Line) -> None:
        line.sound = line.back.sound = False
        if line.broken:
            return
        self._break(line)
        noticed_s = self.loop.now + CUT_NOTICED_S
        if line.accepted:
            self._cut.append(line)
        else:
            noticed_s = max(line.dialled_s + DIAL_TIMEOUT_S, self.loop.now)
        for each in (line, line.back):
            each.cut = True
            self.loop.at(noticed_s, self._tell, each)

    def _apart(self, line: Line) -> bool:
        groups = self._groups
        return groups is not None and groups.get(line.source, -1) != groups.get(line.target, -1)

    def _break(self, line: Line) -> None:
        for each in (line, line.back):
            each.broken = True
            each.ready = each.sound = False
            each.drop_waiting()

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
