"""Lines: one direction of a connection, first in, first out."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import TYPE_CHECKING, Any, Protocol

from pulsarcast.model import trace
from pulsarcast.model.errors import RemoteError
from pulsarcast.model.ids import PeerId
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.inputs import Input, MessageReceived
from pulsarcast.protocol.messages import Message, topic_of
from pulsarcast.wire.codec import decode

if TYPE_CHECKING:
    from pulsarcast.simulation.network import Network

WRITE_BYTES = 30
"""What a write costs besides its frames: the header of a Yamux frame (12 bytes), length and tag of
a Noise message (2 and 16). Counted where bandwidth is limited."""
STALLED_BYTES_MAX = 2 * 1024 * 1024
"""Bytes that wait for a process that does not read before its writer is reset, as in libp2p."""


class End(Protocol):
    """A process, as the network sees it: one end of its connections."""

    index: int
    peer: PeerId
    lines: dict[PeerId, Line]
    running: bool
    """False while it is paused, and once it is gone."""

    @property
    def reach(self) -> Reach:
        """What the node knows of its own reach."""

    def take(self, given: Input) -> None:
        """Handle an input now, or once it runs again."""

    def hold(self, act: Callable[[Any], None], given: Any) -> None:
        """Do something once it runs again, in the order in which it came."""

    def blame(self, peer: PeerId, error: RemoteError) -> None:
        """A peer sent what cannot be read."""

    def note(self, record: trace.Record) -> None:
        """Write something into the trace in the process' name."""


class Line:
    """One direction of a connection: what `source` says to `target`."""

    __slots__ = (
        "accepted",
        "back",
        "broken",
        "cut",
        "dialled_s",
        "free_s",
        "last_s",
        "loop",
        "network",
        "on_arrival",
        "over",
        "peer",
        "ready",
        "receiver",
        "sender",
        "sound",
        "source",
        "speaker",
        "stalled_bytes",
        "steady_s",
        "target",
        "told",
        "traffic",
        "up",
        "via",
        "waiting",
        "write_s",
    )

    back: Line
    """The other direction."""
    sender: End
    receiver: End
    """Who was dialled is known once it accepts."""

    def __init__(
        self, network: Network, source: int, speaker: PeerId, target: int, peer: PeerId
    ) -> None:
        self.network = network
        self.loop = network.loop
        self.traffic = network.traffic
        self.source = source
        self.speaker = speaker
        self.target = target
        self.peer = peer
        """Whom the speaker speaks to."""
        self.accepted = False
        self.up = False
        """Whether the sender was told that its peer is up."""
        self.ready = False
        """Whether what is said goes out."""
        self.sound = False
        """Whether what arrives is heard."""
        self.broken = False
        """Nothing goes through any more, and the ends are told some time."""
        self.over = True
        """The sender knows that it has ended, or never knew of it."""
        self.cut = False
        self.via: int | None = None
        """The node that relays the connection, if it is not direct."""
        self.told = Reach.UNKNOWN
        """What the sender's Hello says of the sender."""
        self.dialled_s = self.loop.now
        self.last_s = 0.0
        """When the last message arrives: the next one may not be earlier."""
        self.free_s = 0.0
        """When the last byte has left, where bandwidth is limited."""
        self.write_s = -1.0
        """When the last write leaves: what is sent until then travels with it."""
        self.steady_s: float | None = None
        self.stalled_bytes = 0
        self.waiting: list[Message] = []
        # Kept, because making a bound method for each message would cost more than the call.
        self.on_arrival = self.arrive

    def send(self, message: Message) -> None:
        """Put a message on its way, or in the queue while we are still dialling."""
        if not self.ready:
            self._send_later(message)
            return
        traffic = self.traffic
        if message is not traffic.message:
            traffic.measure(message)
        tally = traffic.tally
        tally.messages += 1
        tally.bytes += traffic.size
        if traffic.events:
            tally.events += traffic.events
        loop = self.loop
        steady_s = self.steady_s
        if steady_s is None:
            when_s = self._arrival_s(traffic.size)
        else:
            when_s = loop.now + steady_s
            if loop.now > self.write_s:
                self.write_s = loop.now
                traffic.writes += 1
        if when_s < self.last_s:  # noqa: PLR1730  (max() would take twice as long)
            when_s = self.last_s
        self.last_s = when_s
        heappush(loop.heap, (when_s, loop.tick(), self.on_arrival, traffic.carried))

    def arrive(self, carried: Any) -> None:
        """A message has come to its receiver, who hears it if the connection still stands."""
        if not self.sound:
            self.traffic.lost += 1
            return
        receiver = self.receiver
        if not receiver.running:
            self._stall(carried)
        elif self.traffic.through_wire:
            self._decode(carried)
        else:
            receiver.take(MessageReceived(self.speaker, carried))

    def _decode(self, carried: bytes) -> None:
        try:
            message = decode(carried)
        except RemoteError as error:
            self.receiver.blame(self.speaker, error)
        else:
            self.receiver.take(MessageReceived(self.speaker, message))

    def settle(self) -> None:
        """Ask once what does not change: how long this line takes."""
        links = self.network.links
        self.steady_s = None
        if links.bandwidth is None and self.via is None:
            self.steady_s = links.steady_s(self.source, self.target)

    def release(self) -> None:
        """The connection is open: send what waited for it."""
        self.ready = True
        waiting, self.waiting = self.waiting, []
        for message in waiting:
            self.send(message)

    def drop_waiting(self) -> None:
        """What waited for the connection is lost with it."""
        self.traffic.lost += len(self.waiting)
        self.waiting = []

    def latency_s(self) -> float:
        """How long something small takes now."""
        links, rng = self.network.links, self.network.rng
        if self.via is None:
            return links.latency_s(self.source, self.target, rng)
        first_s = links.latency_s(self.source, self.via, rng)
        return first_s + links.latency_s(self.via, self.target, rng)

    def finish(self, tell: Callable[[Line], None]) -> None:
        """Nothing more is said: tell the other end once all that was has arrived."""
        self.loop.at(max(self.last_s, self.loop.now + self.latency_s()), tell, self.back)

    def _arrival_s(self, size: int) -> float:
        now = self.loop.now
        # Bytes leave one after the other: a long queue is what makes a slow link slow.
        begins_s = max(self.free_s, now)
        if now > self.write_s:
            self.write_s = begins_s
            self.traffic.writes += 1
            size += WRITE_BYTES
        bandwidth = self.network.links.bandwidth
        if bandwidth is not None:
            begins_s = self.free_s = begins_s + size / bandwidth
        return begins_s + self.latency_s()

    def _send_later(self, message: Message) -> None:
        if self.broken:
            self.traffic.lost += 1
        else:
            self.waiting.append(message)

    def _stall(self, carried: Any) -> None:
        self.stalled_bytes += self.traffic.size_of(carried)
        if self.stalled_bytes > STALLED_BYTES_MAX:
            self.network.reset(self)
        else:
            self.receiver.hold(self._unstall, carried)

    def _unstall(self, carried: Any) -> None:
        self.stalled_bytes = 0
        self.arrive(carried)


class TracedLine(Line):
    """A line that says in the trace what its ends send and receive (level `rpc`)."""

    __slots__ = ()

    def send(self, message: Message) -> None:
        """Put a message on its way, and say so once it goes out."""
        if self.ready:
            size = self.traffic.size_of(message)
            self.sender.note(
                trace.RpcSent(type(message).__name__, topic_of(message), self.peer, size)
            )
        super().send(message)

    def arrive(self, carried: Any) -> None:
        """A message has come to its receiver, who says so and hears it."""
        if self.sound and self.receiver.running:
            try:
                message = decode(carried) if self.traffic.through_wire else carried
            except RemoteError:
                message = None
            if message is not None:
                size = self.traffic.size_of(carried)
                self.receiver.note(
                    trace.RpcReceived(type(message).__name__, topic_of(message), self.speaker, size)
                )
        super().arrive(carried)
