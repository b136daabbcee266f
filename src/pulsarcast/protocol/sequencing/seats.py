"""Seats: all topics that we are a sequencer of, and how we come to be one.

An author names us in its topic; we hear of it from the author, from another sequencer, or from
somebody who wants something published. We look at the topic itself before we believe it.
"""

from __future__ import annotations

from collections.abc import Mapping

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import EventDescriptor, decode_request
from pulsarcast.model.ids import CID_BYTES, Cid, PeerId
from pulsarcast.model.topics import TopicDescriptor
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.following.descriptors import Descriptors
from pulsarcast.protocol.following.following import Following
from pulsarcast.protocol.following.renewal import Renewal
from pulsarcast.protocol.messages import RequestReferred, RequestToPublish
from pulsarcast.protocol.publishing.outbox import Outbox
from pulsarcast.protocol.publishing.publisher import Publisher
from pulsarcast.protocol.sequencing.log import ENTRY, SNAPSHOT, Log, read_log
from pulsarcast.protocol.sequencing.messages import SequencerMessage, Summon
from pulsarcast.protocol.sequencing.saved import STORE, VOTE, Saved, read_saved
from pulsarcast.protocol.sequencing.seat import Seat
from pulsarcast.protocol.store import DropState, Write
from pulsarcast.protocol.topic.life import FollowReason
from pulsarcast.protocol.topic.topic import Topic
from pulsarcast.protocol.topic.versions import Versions
from pulsarcast.protocol.turn import Turn

SEATS_MAX = 64
"""Topics that we are a sequencer of at a time: whoever names us in more has to do without us."""
LOOKED_MAX = 256
"""Topics of which we remember that they do not name us."""
LEFT_MAX = 256
"""Topics that we are no sequencer of any more, and of which our disk keeps what we knew as one."""


class Seats:
    """The topics that we are a sequencer of."""

    def __init__(
        self,
        context: Context,
        descriptors: Descriptors,
        following: Following,
        renewal: Renewal,
        publisher: Publisher,
        outbox: Outbox,
    ) -> None:
        self.context = context
        self.turn = context.turn
        self.descriptors = descriptors
        self.following = following
        self.renewal = renewal
        self.publisher = publisher
        self.outbox = outbox
        self.by_topic: dict[Cid, Seat] = {}
        self._saved: dict[Cid, dict[str, bytes]] = {}
        self._entries: dict[Cid, dict[int, bytes]] = {}
        self._left: dict[Cid, tuple[Saved, Log]] = {}
        """Seats that we left in this life, and what is on our disk of them."""
        self._dismissed: dict[Cid, int] = {}
        """Topics where others took our place, and in which version at the latest."""
        self._looking: dict[Cid, None] = {}
        self._strange: dict[tuple[Cid, Cid | None], None] = {}

    def __len__(self) -> int:
        return sum(len(seat.queue) for seat in self.by_topic.values())

    @property
    def entries(self) -> int:
        """How much is in our logs."""
        return sum(len(seat.sequencer.log) for seat in self.by_topic.values())

    # Coming and going.

    def restore(self, tables: Mapping[str, Mapping[bytes, bytes]], *, is_restored: bool) -> None:
        """Remember from the disk what we voted, and what is in our logs.

        A disk that was restored may have forgotten votes: it counts as one that was lost, also in
        later lives, of which some may be the first to come to a topic.
        """
        if is_restored:
            each = (STORE, VOTE, SNAPSHOT, ENTRY)
            drops = (DropState(table, key) for table in each for key in tables.get(table, {}))
            self.turn.persist(*drops)
            return
        for table in (STORE, VOTE, SNAPSHOT):
            for key, value in tables.get(table, {}).items():
                self._saved.setdefault(Cid(key), {})[table] = value
        for key, value in tables.get(ENTRY, {}).items():
            index = int.from_bytes(key[CID_BYTES:], "big")
            self._entries.setdefault(Cid(key[:CID_BYTES]), {})[index] = value

    def open(self, topic: Topic) -> None:
        """We follow a topic as one of its sequencers: take our seat."""
        # Where our disk has a log, we may be needed still by those who take our place.
        is_ours = self._names_us(topic.versions) or STORE in self._saved.get(topic.id, {})
        if topic.id in self.by_topic or not topic.is_sequenced or not is_ours:
            return
        saved = self._saved.pop(topic.id, {})
        entries = self._entries.pop(topic.id, {})
        left = self._left.pop(topic.id, None)
        seat = self.by_topic[topic.id] = self.context.part(Seat)(
            self.context,
            topic,
            self.publisher,
            self.outbox,
            self,
            saved=left[0] if left else read_saved(saved.get(STORE), saved.get(VOTE)),
            log=left[1] if left else read_log(entries, saved.get(SNAPSHOT)),
        )
        seat.sequencer.start(again=left is not None)

    def close(self, topic: Cid) -> None:
        """We leave a topic."""
        seat = self.by_topic.pop(topic, None)
        if seat is not None:
            sequencer = seat.sequencer
            sequencer.stop()
            saved = Saved(sequencer.store, sequencer.term, sequencer.voted_for)
            self._left[topic] = (saved, sequencer.log)

    def dismiss(self, topic: Cid) -> None:
        """Others have taken our place.

        Our disk keeps our store, votes and log: a version that we have not heard of may name us
        again, and its leader count on what we had.
        """
        seat = self.by_topic.get(topic)
        if seat is None:
            return
        self._dismissed[topic] = seat.versions.current.number
        if len(self._dismissed) > LOOKED_MAX:
            del self._dismissed[next(iter(self._dismissed))]
        self.close(topic)

        def released() -> None:
            if topic not in self.by_topic:  # Else a version has named us again meanwhile.
                self.following.release(topic)

        self.turn.persist(*self._forget_oldest(), then=released)

    def _forget_oldest(self) -> list[Write]:
        """A stranger can name us and then others as often as it likes: our disk has an end."""
        writes: list[Write] = []
        while len(self._saved) + len(self._left) > LEFT_MAX:
            topic = next(iter(self._saved or self._left))
            saved, entries = self._saved.pop(topic, {}), self._entries.pop(topic, {})
            left = self._left.pop(topic, None)
            log = left[1] if left else read_log(entries, saved.get(SNAPSHOT))
            writes += log.cut_from(topic, log.snapshot.index + 1)
            writes += [DropState(table, topic) for table in (STORE, VOTE, SNAPSHOT)]
        return writes

    def renewed(self, topic: Topic) -> None:
        """A topic that we follow has another version: it may name us, or others."""
        seat = self.by_topic.get(topic.id)
        if seat is not None:
            seat.sequencer.renewed()
        else:
            self._take(topic.versions)

    def arrived(self, topic: Cid, event: EventDescriptor) -> None:
        """An event of a topic is in our history."""
        seat = self.by_topic.get(topic)
        if seat is not None:
            seat.arrived(event)

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
        if seat is not None:
            seat.queue.receive(sender, message, seat.topic)
            return True
        versions = self.descriptors.get(topic)
        if versions is None or self._names_us(versions):
            self.summoned(topic)
        elif versions.first.is_sequenced:
            # The author may know of no version but the first: others have our place by now.
            request_id = decode_request(message.block).request_id
            referred = RequestReferred(topic, request_id, versions.current.sequencers[0])
            self.turn.send(sender, referred)
        return False

    def summoned(self, topic: Cid, version: Cid | None = None) -> None:
        """Somebody says that a topic names us, in some version: see for ourselves."""
        known = self.following.topics.get(topic)
        if topic in self.by_topic or topic in self._looking or (topic, version) in self._strange:
            return
        if len(self.by_topic) + len(self._looking) >= SEATS_MAX:
            return
        if known is not None and self._take(known.versions):
            return
        if known is not None and (version is None or version in known.versions.by_cid):
            return
        self._looking[topic] = None

        def found(versions: Versions | None) -> None:
            if versions is None or version is None or version in versions.by_cid:
                look(versions)
                return

            def newer(chain: list[TopicDescriptor]) -> None:
                try:
                    for each in chain:
                        self._add(versions, each)
                except RemoteError:
                    pass  # Whoever summoned us with this is not worth more.
                look(versions)

            self.descriptors.find_version(topic, version, newer)

        def look(versions: Versions | None) -> None:
            del self._looking[topic]
            if versions is not None and not self._take(versions):
                self._strange[(topic, version)] = None
                if len(self._strange) > LOOKED_MAX:
                    del self._strange[next(iter(self._strange))]

        self.descriptors.find(topic, found)

    def _add(self, versions: Versions, version: TopicDescriptor) -> None:
        topic = self.following.topics.get(versions.first.cid)
        if topic is not None:
            self.renewal.adopt(topic, version)
        else:
            versions.add(version)  # On the disk once we follow it.

    def _names_us(self, versions: Versions) -> bool:
        """Whether a topic has a seat for us: a new one, where others took our last."""
        since = self._dismissed.get(versions.first.cid, -1)
        return versions.names(self.turn.me) and versions.current.number > since

    def _take(self, versions: Versions) -> bool:
        """Take our seat, if we have one."""
        if not self._names_us(versions):
            return False
        following = self.following
        following.follow(versions, FollowReason.SEQUENCER, from_start=True)
        topic = self.following.topics.get(versions.first.cid)
        if topic is not None and following.followed.is_followed(topic.id):
            self.open(topic)
        return True


def summon(turn: Turn, versions: Versions) -> None:
    """Tell a topic's sequencers, by its newest version, that they are."""
    current = versions.current
    version = None if current is versions.first else current.cid
    for peer in current.sequencers:
        if peer != turn.me:
            turn.send(peer, Summon(versions.first.cid, version))
