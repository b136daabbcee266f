"""The registry of sequencers: the topics that the node sequences, and how it becomes a sequencer.

A version of a topic names the node as a sequencer. The node hears of it from the topic's author,
from another sequencer, or from a peer that asks for a publication. It reads the topic itself before
it joins (docs/spec/sequencing.md).
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
from pulsarcast.protocol.messages import RequestReferred, RequestToPublish
from pulsarcast.protocol.publishing.outbox import Outbox
from pulsarcast.protocol.publishing.publisher import Publisher
from pulsarcast.protocol.sequencing.log import ENTRY, SNAPSHOT, Log, read_log
from pulsarcast.protocol.sequencing.messages import SequencerMessage, Summon
from pulsarcast.protocol.sequencing.raft_member import RaftMember
from pulsarcast.protocol.sequencing.state import (
    STORE,
    VOTE,
    PersistentState,
    read_persistent_state,
)
from pulsarcast.protocol.store import DropState, Write
from pulsarcast.protocol.topic.life import FollowReason
from pulsarcast.protocol.topic.topic import Topic
from pulsarcast.protocol.topic.versions import Versions
from pulsarcast.protocol.turn import Turn

SEQUENCED_TOPICS_MAX = 64
"""Topics that the node sequences at a time: any author can name it, and its memory is finite."""
CHECKED_MAX = 256
"""Topics remembered as not naming the node, or as having removed it: bounds memory."""
FORMER_MAX = 256
"""Topics that the node sequences no more and whose Raft state its disk keeps: bounds the disk."""


class SequencerRegistry:
    """The Raft members that the node runs, one for each topic that it sequences."""

    def __init__(
        self,
        context: Context,
        descriptors: Descriptors,
        following: Following,
        publisher: Publisher,
        outbox: Outbox,
    ) -> None:
        self.context = context
        self.turn = context.turn
        self.descriptors = descriptors
        self.following = following
        self.publisher = publisher
        self.outbox = outbox
        self.by_topic: dict[Cid, RaftMember] = {}
        self._loaded_rows: dict[Cid, dict[str, bytes]] = {}
        """Rows from the disk, by topic and table, until the topic is opened."""
        self._loaded_entries: dict[Cid, dict[int, bytes]] = {}
        """Log entries from the disk, by topic and index, until the topic is opened."""
        self._former: dict[Cid, tuple[PersistentState, Log]] = {}
        """Raft state on the disk of the topics that the node closed since its start."""
        self._removed_in: dict[Cid, int] = {}
        """Topics that removed the node, and the number of the newest version known then."""
        self._lookups: dict[Cid, None] = {}
        """Topics that the node is reading, to see whether they name it."""
        self._not_named_by: dict[tuple[Cid, Cid | None], None] = {}
        """Topics, with the version that a peer mentioned, that do not name the node."""

    @property
    def request_count(self) -> int:
        """How many publish requests wait, in all topics."""
        return sum(len(member.queue) for member in self.by_topic.values())

    @property
    def entry_count(self) -> int:
        """How many entries the logs hold, in all topics."""
        return sum(len(member.sequencer.log) for member in self.by_topic.values())

    # Starting, and opening and closing topics.

    def load(self, tables: Mapping[str, Mapping[bytes, bytes]], *, disk_was_restored: bool) -> None:
        """Read votes and logs from the disk.

        A disk that comes from a backup may lack the last votes. So it counts as a lost disk, and
        its rows are dropped: a later incarnation that opens a topic first must not find them.
        """
        if disk_was_restored:
            each = (STORE, VOTE, SNAPSHOT, ENTRY)
            drops = (DropState(table, key) for table in each for key in tables.get(table, {}))
            self.turn.persist(*drops)
            return
        for table in (STORE, VOTE, SNAPSHOT):
            for key, value in tables.get(table, {}).items():
                self._loaded_rows.setdefault(Cid(key), {})[table] = value
        for key, value in tables.get(ENTRY, {}).items():
            index = int.from_bytes(key[CID_BYTES:], "big")
            self._loaded_entries.setdefault(Cid(key[:CID_BYTES]), {})[index] = value

    def open(self, topic: Topic) -> None:
        """The node follows a topic: run its Raft member, if the topic names the node.

        A node whose disk has a log runs it also when it is replaced: its successors may need it.
        """
        is_sequencer = self._names_this_node(topic.versions) or STORE in self._loaded_rows.get(
            topic.id, {}
        )
        if topic.id in self.by_topic or not topic.is_sequenced or not is_sequencer:
            return
        rows = self._loaded_rows.pop(topic.id, {})
        entries = self._loaded_entries.pop(topic.id, {})
        former = self._former.pop(topic.id, None)
        member = self.by_topic[topic.id] = self.context.part(RaftMember)(
            self.context,
            topic,
            self.publisher,
            self.outbox,
            self,
            saved=former[0] if former else read_persistent_state(rows.get(STORE), rows.get(VOTE)),
            log=former[1] if former else read_log(entries, rows.get(SNAPSHOT)),
        )
        member.sequencer.start(again=former is not None)

    def close(self, topic: Cid) -> None:
        """The node leaves a topic: stop its Raft member."""
        member = self.by_topic.pop(topic, None)
        if member is not None:
            member.sequencer.stop()
            state = member.sequencer.state
            saved = PersistentState(state.store, state.term, state.voted_for)
            self._former[topic] = (saved, state.log)

    def remove(self, topic: Cid) -> None:
        """A committed change of members has removed the node from the sequencers of a topic.

        The disk keeps store, votes and log: a version that the node does not know yet may name it
        again, and the leader may count on them.
        """
        member = self.by_topic.get(topic)
        if member is None:
            return
        self._removed_in[topic] = member.versions.current.number
        if len(self._removed_in) > CHECKED_MAX:
            del self._removed_in[next(iter(self._removed_in))]
        self.close(topic)

        def released() -> None:
            if topic not in self.by_topic:  # Else a version has named the node again meanwhile.
                self.following.drop_reason(topic, FollowReason.SEQUENCER)

        self.turn.persist(*self._forget_oldest(), then=released)

    def _forget_oldest(self) -> list[Write]:
        """Bound the disk: any author can name the node and replace it, as often as it likes."""
        writes: list[Write] = []
        while len(self._loaded_rows) + len(self._former) > FORMER_MAX:
            topic = next(iter(self._loaded_rows or self._former))
            rows, entries = self._loaded_rows.pop(topic, {}), self._loaded_entries.pop(topic, {})
            former = self._former.pop(topic, None)
            log = former[1] if former else read_log(entries, rows.get(SNAPSHOT))
            writes += log.cut_from(topic, log.snapshot.index + 1)
            writes += [DropState(table, topic) for table in (STORE, VOTE, SNAPSHOT)]
        return writes

    def renewed(self, topic: Topic) -> None:
        """A followed topic has a new version: it may name the node, or other sequencers."""
        member = self.by_topic.get(topic.id)
        if member is not None:
            member.sequencer.renewed()
        else:
            self._join_if_named(topic.versions)

    def arrived(self, topic: Cid, event: EventDescriptor) -> None:
        """An event of a topic is in the node's history."""
        member = self.by_topic.get(topic)
        if member is not None:
            member.arrived(event)

    # Messages.

    def receive(self, sender: PeerId, message: SequencerMessage) -> None:
        """Pass a message of another sequencer on, or see whether its topic names the node."""
        member = self.by_topic.get(message.topic)
        if member is not None:
            member.sequencer.receive(sender, message)
        else:
            self.summoned(message.topic)

    def receive_request(self, sender: PeerId, topic: Cid, message: RequestToPublish) -> None:
        """A peer asks for a publication in a topic of sequencers, or in one that is unknown."""
        member = self.by_topic.get(topic)
        if member is not None:
            member.queue.receive(sender, message, member.topic)
            return
        versions = self.descriptors.get(topic)
        if versions is None or self._names_this_node(versions):
            self.summoned(topic)
        elif versions.first.is_sequenced:
            # The author may know the first version only: the node has been replaced since.
            request_id = decode_request(message.block).request_id
            referred = RequestReferred(topic, request_id, versions.current.sequencers[0])
            self.turn.send(sender, referred)

    def summoned(self, topic: Cid, version: Cid | None = None) -> None:
        """A peer says that a topic names the node, in some version: read it, and join if so."""
        known = self.following.topics.get(topic)
        if (
            topic in self.by_topic
            or topic in self._lookups
            or (topic, version) in self._not_named_by
        ):
            return
        if len(self.by_topic) + len(self._lookups) >= SEQUENCED_TOPICS_MAX:
            return
        if known is not None and self._join_if_named(known.versions):
            return
        if known is not None and (version is None or version in known.versions.by_cid):
            return
        self._lookups[topic] = None

        def found(versions: Versions | None) -> None:
            if versions is None or version is None or version in versions.by_cid:
                decide(versions)
                return

            def newer(chain: list[TopicDescriptor]) -> None:
                try:
                    for each in chain:
                        self.following.add_version(versions, each)
                except RemoteError:
                    pass  # A version that breaks the rules names no sequencer.
                decide(versions)

            self.descriptors.find_version(topic, version, newer)

        def decide(versions: Versions | None) -> None:
            del self._lookups[topic]
            if versions is not None and not self._join_if_named(versions):
                self._not_named_by[(topic, version)] = None
                if len(self._not_named_by) > CHECKED_MAX:
                    del self._not_named_by[next(iter(self._not_named_by))]

        self.descriptors.find(topic, found)

    def _names_this_node(self, versions: Versions) -> bool:
        """Whether a topic names the node; if it removed it before, in a newer version than then."""
        since = self._removed_in.get(versions.first.cid, -1)
        return versions.names(self.turn.me) and versions.current.number > since

    def _join_if_named(self, versions: Versions) -> bool:
        """Follow a topic that names the node, and run its Raft member; whether it is named."""
        if not self._names_this_node(versions):
            return False
        following = self.following
        following.follow(versions, FollowReason.SEQUENCER, from_start=True)
        topic = self.following.topics.get(versions.first.cid)
        if topic is not None and following.followed.is_followed(topic.id):
            self.open(topic)
        return True


def summon(turn: Turn, versions: Versions) -> None:
    """Tell the sequencers that a topic's newest version names that it does."""
    current = versions.current
    version = None if current is versions.first else current.cid
    for peer in current.sequencers:
        if peer != turn.me:
            turn.send(peer, Summon(versions.first.cid, version))
