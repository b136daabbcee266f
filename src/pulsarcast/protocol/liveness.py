"""Liveness: which connected peers are silent (docs/spec/pulsarcast.md, Silent peers).

It belongs to a connection and not to a topic: all topics, trees and cubes share it. A watched peer
that was not heard for `BEAT_S` is asked to speak. Anything that it says is a sign of life. One that
does not answer within its bound is suspected: other parts route around it at once. The bound
follows the peer's own answers, as a retransmission timer does (RFC 6298). A suspected peer that
speaks is no longer suspected; one that stays silent for `GIVE_UP_S` loses its connection.

One timer serves all connections. A node that slept itself suspects nobody: it cannot know who spoke
meanwhile.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from pulsarcast.model.ids import PeerId, peer_key
from pulsarcast.protocol.effects import DropPeer
from pulsarcast.protocol.messages import Alive
from pulsarcast.protocol.turn import Turn

TICK_S: Final = 0.75
"""How often the watched peers are looked at."""
BEAT_S: Final = 1.5
"""How long a watched peer may be silent before it is asked."""
BEAT_ASLEEP_S: Final = 6.0
"""The same, where only sleeping topics rely on the peer: an event that such a silence holds up
comes some seconds later, and a node with a thousand quiet topics asks a quarter as often."""
LATER_S: Final = 1.0
"""How much longer the one of two with the higher id waits: its own answers tell it enough."""
BOUND_S: Final = 2.5
"""How long a peer has for its first answer: a round trip of 2 x 800 ms, the thesis' worst delays,
and a slow turn."""
BOUND_S_MIN: Final = 1.75
"""Shortest bound: a machine that is busy for a second is not silent."""
BOUND_S_MAX: Final = 8.0
SLEPT_S: Final = 1.5
"""A timer that is so late, or a wall clock that runs so far ahead, says that the node slept."""
GIVE_UP_S: Final = 60.0
"""How long a suspected peer keeps its connection: long enough for most naps."""

ASK: Final = Alive(answer=True)
ANSWER: Final = Alive(answer=False)


class LivenessOwner(Protocol):
    """Asked of the node whose peers are watched."""

    def watched(self) -> Iterable[PeerId]:
        """The peers that the node relies on, connected or not."""

    def watched_asleep(self) -> Iterable[PeerId]:
        """The peers that its sleeping topics rely on."""

    def fell_silent(self, peer: PeerId) -> None:
        """A peer is suspected."""

    def spoke_again(self, peer: PeerId) -> None:
        """A peer is suspected no longer."""

    def gave_up(self, peer: PeerId) -> None:
        """The connection to a suspected peer is closed."""


class _Watched:
    """A peer that is watched."""

    __slots__ = ("asked_s", "bound_s", "deviation_s", "mean_s")

    def __init__(self) -> None:
        self.asked_s: float | None = None
        """Since when an answer is due."""
        self.bound_s = BOUND_S
        self.mean_s = 0.0
        self.deviation_s = 0.0

    def answered(self, after_s: float) -> None:
        """The peer took so long to answer."""
        if not self.mean_s:
            self.mean_s, self.deviation_s = after_s, after_s / 2
        else:
            self.deviation_s += (abs(after_s - self.mean_s) - self.deviation_s) / 4
            self.mean_s += (after_s - self.mean_s) / 8
        bound_s = self.mean_s + 4 * self.deviation_s + TICK_S
        self.bound_s = min(max(bound_s, BOUND_S_MIN), BOUND_S_MAX)
        self.asked_s = None


class Liveness:
    """The silence of one node's peers."""

    __slots__ = ("_heard_s", "_owner", "_ticked_s", "_ticked_us", "_turn", "_watched", "suspected")

    def __init__(self, turn: Turn, owner: LivenessOwner) -> None:
        self._turn = turn
        self._owner = owner
        self._heard_s: dict[PeerId, float] = {}
        """When each connected peer was heard last."""
        self._watched: dict[PeerId, _Watched] = {}
        self.suspected: dict[PeerId, float] = {}
        """The connected peers that are silent, and since when."""
        self._ticked_s = 0.0
        self._ticked_us = 0

    def start(self) -> None:
        """Begin to watch."""
        self._ticked_s, self._ticked_us = self._turn.now, self._turn.wall_us
        # Nodes that start together look at different times, so that one of two asks the other.
        self._turn.after(TICK_S * (peer_key(self._turn.me) % 97 / 97), self._tick)

    def up(self, peer: PeerId) -> None:
        """There is a connection to a peer."""
        self._heard_s[peer] = self._turn.now
        self.heard(peer)

    def heard(self, peer: PeerId) -> None:
        """A peer sent a message, or moves bytes; without a connection that says nothing."""
        if peer not in self._heard_s:
            return
        self._heard_s[peer] = self._turn.now
        if self.suspected and self.suspected.pop(peer, None) is not None:
            self._owner.spoke_again(peer)

    def receive(self, sender: PeerId, message: Alive) -> None:
        """A peer is alive, and may ask whether the node is."""
        if message.answer:
            self._turn.send(sender, ANSWER)

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""
        self._heard_s.pop(peer, None)
        self._watched.pop(peer, None)
        self.suspected.pop(peer, None)

    def footprint(self) -> dict[str, int]:
        """How many entries are in memory."""
        return {"liveness": len(self._heard_s) + len(self._watched) + len(self.suspected)}

    def _tick(self) -> None:
        turn = self._turn
        turn.after(TICK_S, self._tick)
        passed_s = turn.now - self._ticked_s
        by_wall_s = (turn.wall_us - self._ticked_us) / 1e6
        self._ticked_s, self._ticked_us = turn.now, turn.wall_us
        if passed_s > TICK_S + SLEPT_S or by_wall_s > TICK_S + SLEPT_S:
            self._woke()
        else:
            self._look()
            if self.suspected:
                self._give_up()

    def _woke(self) -> None:
        """The node slept: every peer has a fresh period to speak in."""
        now = self._turn.now
        for watched in self._watched.values():
            watched.asked_s = None
        for peer in self._heard_s:
            self._heard_s[peer] = now
        for peer in self.suspected:
            self.suspected[peer] = now

    def _look(self) -> None:
        """Ask the watched peers that are silent, and suspect those that do not answer."""
        before, self._watched = self._watched, {}
        silent = self._look_at(self._owner.watched(), BEAT_S, before)
        silent += self._look_at(self._owner.watched_asleep(), BEAT_ASLEEP_S, before)
        for peer in silent:
            del self._watched[peer]
            self.suspected[peer] = self._turn.now
            self._owner.fell_silent(peer)

    def _look_at(
        self, peers: Iterable[PeerId], beat_s: float, before: dict[PeerId, _Watched]
    ) -> list[PeerId]:
        """Ask those of some peers that are silent; returns those that do not answer."""
        now, heard_s = self._turn.now, self._heard_s
        silent: list[PeerId] = []
        for peer in peers:
            heard = heard_s.get(peer)
            if heard is None or peer in self._watched or peer in self.suspected:
                continue
            watched = self._watched[peer] = before.get(peer) or _Watched()
            if watched.asked_s is None:
                later_s = 0.0 if self._turn.me < peer else LATER_S
                if now - heard >= beat_s + later_s:
                    watched.asked_s = now
                    self._turn.send(peer, ASK)
            elif heard >= watched.asked_s:
                watched.answered(heard - watched.asked_s)
            elif now - watched.asked_s >= watched.bound_s:
                silent.append(peer)
        return silent

    def _give_up(self) -> None:
        """Close connections to peers that were silent for long."""
        until_s = self._turn.now - GIVE_UP_S
        for peer in [peer for peer, since_s in self.suspected.items() if since_s <= until_s]:
            self._turn.effects.append(DropPeer(peer, "silent"))
            self._owner.gave_up(peer)
