"""Seats: all topics that we are a sequencer of, and how we come to be one.

An author names us in its topic; we hear of it from the author, from another sequencer, or from
somebody who wants something published. We look at the topic itself before we believe it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pulsarcast.model.certificates import make_certificate
from pulsarcast.model.ids import CID_BYTES, Cid, PeerId
from pulsarcast.protocol.following import Why
from pulsarcast.protocol.messages import RequestToPublish
from pulsarcast.protocol.sequencing.log import BASE, ENTRY, Log, read_log
from pulsarcast.protocol.sequencing.messages import SequencerMessage, Summon
from pulsarcast.protocol.sequencing.seat import Seat
from pulsarcast.protocol.sequencing.sequencer import STORE, VOTE, Saved, Sequencer, read_saved
from pulsarcast.protocol.versions import Versions

if TYPE_CHECKING:
    from pulsarcast.protocol.node import Node
    from pulsarcast.protocol.topic import Topic

SEATS_MAX = 64
"""Topics that we are a sequencer of at a time: whoever names us in more has to do without us."""
LOOKED_MAX = 256
"""Topics of which we remember that they do not name us."""


class Seats:
    """The topics that we are a sequencer of."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.make_sequencer: Callable[..., Sequencer] = Sequencer
        self.make_certificate = make_certificate
        self.by_topic: dict[Cid, Seat] = {}
        self._saved: dict[Cid, dict[str, bytes]] = {}
        self._entries: dict[Cid, dict[int, bytes]] = {}
        self._left: dict[Cid, tuple[Saved, Log]] = {}
        """Seats that we left in this life, and what is on our disk of them."""
        self._looking: dict[Cid, None] = {}
        self._strange: dict[Cid, None] = {}

    def __len__(self) -> int:
        return sum(len(seat.desk) for seat in self.by_topic.values())

    @property
    def entries(self) -> int:
        """How much is in our logs."""
        return sum(len(seat.sequencer.log) for seat in self.by_topic.values())

    # Coming and going.

    def restore(self, tables: dict[str, dict[bytes, bytes]], *, is_restored: bool) -> None:
        """Remember from the disk what we voted, and what is in our logs.

        A disk that was restored may have forgotten votes: it counts as one that was lost.
        """
        for table in (STORE, VOTE, BASE):
            for key, value in tables.get(table, {}).items():
                if not (is_restored and table == STORE):
                    self._saved.setdefault(Cid(key), {})[table] = value
        for key, value in tables.get(ENTRY, {}).items():
            index = int.from_bytes(key[CID_BYTES:], "big")
            self._entries.setdefault(Cid(key[:CID_BYTES]), {})[index] = value

    def open(self, topic: Topic) -> None:
        """We follow a topic as one of its sequencers: take our seat."""
        if topic.id in self.by_topic or not names(topic.versions, self.node.turn.me):
            return
        saved = self._saved.pop(topic.id, {})
        entries = self._entries.pop(topic.id, {})
        left = self._left.pop(topic.id, None)
        seat = self.by_topic[topic.id] = Seat(
            self.node,
            topic,
            self.make_sequencer,
            saved=left[0] if left else read_saved(saved.get(STORE), saved.get(VOTE)),
            log=left[1] if left else read_log(entries, saved.get(BASE)),
        )
        seat.sequencer.start()

    def close(self, topic: Cid) -> None:
        """We leave a topic."""
        seat = self.by_topic.pop(topic, None)
        if seat is not None:
            sequencer = seat.sequencer
            sequencer.stop()
            saved = Saved(sequencer.store, sequencer.term, sequencer.voted_for)
            self._left[topic] = (saved, sequencer.log)

    # What others say.

    def receive(self, sender: PeerId, message: SequencerMessage) -> None:
        """Another sequencer says something."""
        seat = self.by_topic.get(message.topic)
        if seat is not None:
            seat.sequencer.receive(sender, message)
        else:
            self.summoned(message.topic)

    def receive_request(self, sender: PeerId, topic: Cid, message: RequestToPublish) -> bool:
        """Somebody wants something published; whether this is a matter of ours."""
        seat = self.by_topic.get(topic)
        if seat is None:
            self.summoned(topic)
            return False
        seat.desk.receive(sender, message)
        return True

    def summon(self, versions: Versions) -> None:
        """Tell a new topic's sequencers that they are."""
        for peer in versions.first.sequencers:
            if peer != self.node.turn.me:
                self.node.turn.send(peer, Summon(versions.first.cid))

    def summoned(self, topic: Cid) -> None:
        """Somebody says that a topic names us: see for ourselves."""
        known = topic in self.node.topics or topic in self._looking or topic in self._strange
        if known or len(self.by_topic) + len(self._looking) >= SEATS_MAX:
            if topic in self.node.topics and topic not in self.by_topic:
                self._take(self.node.topics[topic].versions)
            return
        self._looking[topic] = None

        def found(versions: Versions | None) -> None:
            del self._looking[topic]
            if versions is not None:
                self._take(versions)

        self.node.descriptors.find(topic, found)

    def _take(self, versions: Versions) -> None:
        if names(versions, self.node.turn.me):
            self.node.following.follow(versions, Why.SEQUENCER, from_start=True)
            return
        self._strange[versions.first.cid] = None
        if len(self._strange) > LOOKED_MAX:
            del self._strange[next(iter(self._strange))]


def names(versions: Versions, peer: PeerId) -> bool:
    """Whether a peer is one of several sequencers of a topic."""
    return versions.first.is_sequenced and peer in versions.first.sequencers
