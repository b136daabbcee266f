"""Uplinks: all that a node sends leaves over one, in the order in which real links send it.

What waits for a connection waits in the same lanes as on a real one (`wire.lanes`): control first,
then the topics in turn, large frames in parts. The connections of a node take turns as well, with a
piece each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappush
from typing import TYPE_CHECKING

from pulsarcast.model import trace
from pulsarcast.model.errors import RemoteError
from pulsarcast.protocol.inputs import LinkFree, LinkFull, Moving
from pulsarcast.protocol.messages import Message, topic_of
from pulsarcast.simulation.lines import WRITE_BYTES, Line
from pulsarcast.simulation.loop import Loop
from pulsarcast.wire.codec import decode, encode
from pulsarcast.wire.framing import FrameReader, write_frames
from pulsarcast.wire.lanes import CONTROL, FREE_BYTES, FULL_BYTES, QUEUE_BYTES_MAX, Lanes, lane_of
from pulsarcast.wire.parts import Joiner

if TYPE_CHECKING:
    from pulsarcast.model.ids import PeerId
    from pulsarcast.simulation.network import Network


class Uplink:
    """The way out of one node: one piece after the other."""

    __slots__ = ("_bandwidth", "_busy", "_loop", "_waiting")

    def __init__(self, loop: Loop, bandwidth: float) -> None:
        self._loop = loop
        self._bandwidth = bandwidth
        """Bytes a second."""
        self._waiting: dict[UplinkLine, None] = {}
        """In the order of their turn."""
        self._busy = False

    def add(self, line: UplinkLine) -> None:
        """Something waits on a line."""
        self._waiting[line] = None
        if not self._busy:
            self._send()

    def _send(self, _: None = None) -> None:
        self._busy = False
        while self._waiting and not self._busy:
            line = next(iter(self._waiting))
            del self._waiting[line]
            if line.is_lost:
                line.give_up()
                continue
            self._busy = True
            data = line.take()
            if line.has_more:
                self._waiting[line] = None
            taken_s = (len(data) + WRITE_BYTES) / self._bandwidth
            self._loop.after(taken_s, line.put, data)
            self._loop.after(taken_s, self._send)


class UplinkLine(Line):
    """A line whose bytes wait for those that the node sends to others."""

    __slots__ = ("_control", "_is_full", "_joiner", "_lanes", "_leaves", "_reader", "_tell")

    def __init__(
        self, network: Network, source: int, speaker: PeerId, target: int, peer: PeerId
    ) -> None:
        super().__init__(network, source, speaker, target, peer)
        self._control: deque[bytes] = deque()
        self._lanes = Lanes()
        self._reader = FrameReader()
        self._joiner = Joiner()
        self._is_full = False
        """Whether the sender was told that much waits."""
        self._leaves = False
        """Whether a piece is leaving now."""
        self._tell: Callable[[Line], None] | None = None
        """Whom to call once all has arrived, if nothing more is said."""

    def settle(self) -> None:
        """How long it takes depends on what else the node sends."""

    def send(self, message: Message) -> None:
        """Let a message wait for its turn."""
        if not self.ready:
            self._send_later(message)
            return
        self.traffic.count(message)
        framed = write_frames([encode(message)])
        if type(message) in CONTROL:
            self._control.append(framed)
        else:
            self._lanes.put(lane_of(message), framed)
        self.network.uplink(self.source).add(self)
        queued_bytes = self.queued_bytes
        if queued_bytes > QUEUE_BYTES_MAX:
            self.network.reset(self)
        elif queued_bytes > FULL_BYTES and not self._is_full:
            self._is_full = True
            self.loop.after(0.0, self.sender.take, LinkFull(self.peer))

    @property
    def queued_bytes(self) -> int:
        """What waits for its turn."""
        return sum(map(len, self._control)) + self._lanes.queued_bytes

    @property
    def has_more(self) -> bool:
        """Whether anything waits."""
        return bool(self._control or self._lanes)

    @property
    def is_lost(self) -> bool:
        """Whether what waits will not be heard: the connection broke, and was not closed."""
        return self.broken and not self.sound

    def take(self) -> bytes:
        """The next piece that leaves: control, if there is any."""
        self._leaves = True
        self.traffic.writes += 1
        if not self._control:
            return self._lanes.take()
        data = b"".join(self._control)
        self._control.clear()
        return data

    def put(self, data: bytes) -> None:
        """A piece has left, and arrives after those before it."""
        self.last_s = max(self.last_s, self.loop.now + self.latency_s())
        heappush(self.loop.heap, (self.last_s, self.loop.tick(), self.on_arrival, data))
        self._leaves = False
        if self._is_full and not self.broken and self.queued_bytes <= FREE_BYTES:
            self._is_full = False
            self.sender.take(LinkFree(self.peer))
        if self._tell is not None:
            tell, self._tell = self._tell, None
            self.finish(tell)

    def arrive(self, carried: bytes) -> None:
        """A piece has come: its receiver hears the messages that are whole with it."""
        if not self.sound:
            self.traffic.lost += 1
            return
        if not self.receiver.running:
            self._stall(carried)
            return
        try:
            frames = self._joiner.join(self._reader.feed(carried))
        except RemoteError as error:
            self.receiver.blame(self.speaker, error)
            return
        if not frames:
            self.receiver.take(Moving(self.speaker))
        for frame in frames:
            if self.sound:
                self._decode(frame)

    def give_up(self) -> None:
        """What waits is lost with the connection."""
        self._control.clear()
        self._lanes.clear()
        if self._tell is not None:
            super().finish(self._tell)

    def finish(self, tell: Callable[[Line], None]) -> None:
        """Tell the other end once all that waits has left, and arrived."""
        if self._leaves or self.has_more:
            self._tell = tell
        else:
            super().finish(tell)


class TracedUplinkLine(UplinkLine):
    """The same, that says in the trace what its ends send and receive."""

    __slots__ = ()

    def send(self, message: Message) -> None:
        """Let a message wait for its turn, and say so."""
        if self.ready:
            size = self.traffic.size_of(message)
            kind = type(message).__name__
            self.sender.note(trace.RpcSent(kind, topic_of(message), self.peer, size))
        super().send(message)

    def _decode(self, carried: bytes) -> None:
        try:
            message = decode(carried)
        except RemoteError:
            pass  # said below
        else:
            kind = type(message).__name__
            size = len(carried)
            self.receiver.note(trace.RpcReceived(kind, topic_of(message), self.speaker, size))
        super()._decode(carried)
