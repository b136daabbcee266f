"""Walks: fetches events by content id, and runs the walks of a node, some at a time.

The node need not follow the topics of these events. It remembers for a while which members of a
topic it found, so that the pages of one walk do not search for them again.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias, assert_never

from msgspec import Struct

from pulsarcast.model.errors import Busy, Refusal, RemoteError, TopicNotFound
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.model.pointers import Named
from pulsarcast.model.topics import TopicDescriptor
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination.member_finder import MemberFinder
from pulsarcast.protocol.following.descriptors import Descriptors
from pulsarcast.protocol.history.open_events import OpenEvents
from pulsarcast.protocol.history.walk import Page, Walk
from pulsarcast.protocol.messages import (
    FrontierPage,
    JoinAccepted,
    JoinReferred,
    JoinRefused,
    Range,
)
from pulsarcast.protocol.store import Block, LoadBlock
from pulsarcast.protocol.topic.followed import FollowedTopics
from pulsarcast.protocol.topic.frontier import Source
from pulsarcast.protocol.topic.versions import Versions

WALKS_MAX = 16
"""Walks at a time: bounds memory to as many pages, and what was fetched for them."""
MEMBERS_MAX = 8
"""Members of a topic that are remembered for walks."""
SEARCHES_MAX = 3
"""Searches for a member before a walk goes on without; the last one begins with a lookup."""
TOPICS_MAX = 64
"""Topics whose members are remembered."""
FRESH_S = 60.0
"""How long the members and the newest version of a topic are remembered."""

NO_EVENT_TOPIC = TopicNotFound(
    "the event's topic was not found, and without it no event can be judged: "
    "check that peers are connected"
).refusal
TOO_MANY_WALKS = Busy("too many walks at a time: try again later").refusal

Walked: TypeAlias = Callable[[Page | Refusal], None]
"""Takes a page, or why there is none."""


class _Known(Struct):
    """What walks remember of a topic that the node does not follow."""

    until_s: float
    members: list[PeerId] | None = None


class _Search(Struct):
    """A search for members of a topic, and the walks that wait for it."""

    finder: MemberFinder
    waiting: list[Callable[[list[PeerId]], None]]
    tries: int = 0


class Walks:
    """The walks of one node."""

    def __init__(
        self, context: Context, dht: Kademlia, descriptors: Descriptors, followed: FollowedTopics
    ) -> None:
        self._context = context
        self._turn = context.turn
        self._dht = dht
        self._descriptors = descriptors
        self._followed = followed
        self._walks: list[Walk] = []
        self._searches: dict[Cid, _Search] = {}
        self._known: dict[Cid, _Known] = {}

    def __len__(self) -> int:
        return len(self._walks)

    # Fetching.

    def fetch(self, cid: Cid, topic: Cid | None, then: Callable[[bytes | None], None]) -> None:
        """Find a block: on the disk, in the DHT, or at members of a topic that the caller names."""

        def loaded(answer: Block) -> None:
            if answer.block is not None:
                then(answer.block)
            else:
                self._dht.find_block(cid, looked_up)

        def looked_up(block: bytes | None) -> None:
            if block is not None or topic is None:
                then(block)
            else:
                self._descriptors.find(topic, with_versions)

        def with_versions(versions: Versions | None) -> None:
            if versions is None:
                then(None)
            else:
                self.find_members(versions.first.cid, ask_members)

        def ask_members(members: list[PeerId]) -> None:
            if not members:
                then(None)
                return
            member, *others = members
            self._dht.want_blocks(member, [cid], partial(answered, others))

        def answered(others: list[PeerId], blocks: tuple[bytes, ...] | None) -> None:
            found = next((block for block in blocks or () if cid_of(block) == cid), None)
            if found is not None:
                then(found)
            else:
                ask_members(others)

        self._turn.load(LoadBlock(cid), Block, loaded)

    # Walking.

    def begin(self, event: EventDescriptor, limit: int, then: Walked) -> None:
        """Give the first page of a walk back from an event, which is its first."""
        self._begin(OpenEvents(event.topic), event, limit, then)

    def go_on(self, cursor: bytes, limit: int, then: Walked) -> None:
        """Give the page behind a cursor; raises LocalError if it is none."""
        self._begin(OpenEvents.from_bytes(cursor), None, limit, then)

    def _begin(
        self, open_events: OpenEvents, first: EventDescriptor | None, limit: int, then: Walked
    ) -> None:
        def found(versions: Versions | None) -> None:
            if versions is None:
                then(NO_EVENT_TOPIC)
            elif len(self._walks) >= WALKS_MAX:
                then(TOO_MANY_WALKS)
            else:
                context, dht = self._context, self._dht
                walk = Walk(context, dht, self, versions, open_events, limit, then)
                self._walks.append(walk)
                walk.begin(first)

        self._find_topic(open_events.topic, found)

    def _find_topic(self, topic: Cid, then: Callable[[Versions | None], None]) -> None:
        """The versions of a topic, up to the newest."""
        followed = self._followed.members.get(topic)
        if followed is not None:
            # A copy: only renewal adds versions to a topic that the node follows.
            then(followed.versions.copy())
            return

        def found(versions: Versions | None) -> None:
            if versions is None or self._is_fresh(topic):
                then(versions)
                return
            self._remember(topic)
            author, name = versions.first.author, versions.first.name
            self._dht.get_pointer(author, name, partial(pointed, versions))

        def pointed(versions: Versions, named: Named | None) -> None:
            pointer = None if named is None else named.pointer
            if pointer is None or pointer.topic != topic or pointer.cid in versions.by_cid:
                then(versions)
            else:
                self.find_version(topic, pointer.cid, partial(added, versions))

        def added(versions: Versions, newer: list[TopicDescriptor]) -> None:
            try:
                for each in newer:
                    versions.add(each)
            except RemoteError as error:
                self._context.rejected(self._turn.me, topic, error)
            then(versions)

        self._descriptors.find(topic, found)

    def find_version(
        self, topic: Cid, version: Cid, then: Callable[[list[TopicDescriptor]], None]
    ) -> None:
        """The versions from the first unknown one up to `version`, oldest first."""
        self._descriptors.find_version(topic, version, then)

    def has_log(self, topic: Cid) -> bool:
        """Whether the node keeps a log of the topic."""
        return self._followed.get(topic) is not None

    def retired(self, topic: Cid, source: Source) -> int | None:
        """Up to which number a numbering is retired, if the node follows the topic."""
        followed = self._followed.members.get(topic)
        if followed is None:
            return None
        mark = followed.frontier.mark(*source)
        return 0 if mark is None else mark.retired

    def walked(self, walk: Walk) -> None:
        """A walk has ended."""
        self._walks.remove(walk)

    # Members.

    def find_members(self, topic: Cid, then: Callable[[list[PeerId]], None]) -> None:
        """Find some members of a topic; `then` gets an empty list if there are none."""
        followed = self._followed.members.get(topic)
        if followed is not None:
            then(list(dict.fromkeys(followed.neighbours()))[:MEMBERS_MAX])
            return
        known = self._known.get(topic)
        if known is not None and known.members is not None and self._is_fresh(topic):
            then(list(known.members))
            return
        search = self._searches.get(topic)
        if search is not None:
            search.waiting.append(then)
            return
        versions = self._descriptors.get(topic)
        assert versions is not None, "a walk knows its topic"
        finder = MemberFinder(topic, versions.first.root_peer, self._context, self._dht)
        self._searches[topic] = _Search(finder, [then])
        self._search(topic)

    def _search(self, topic: Cid) -> None:
        search = self._searches[topic]
        search.tries += 1
        search.finder.find(partial(self._found, topic))

    def _found(self, topic: Cid, members: list[PeerId]) -> None:
        search = self._searches[topic]
        if not members and search.tries < SEARCHES_MAX:
            self._search(topic)
            return
        del self._searches[topic]
        self._remember(topic).members = members[:MEMBERS_MAX]
        for then in search.waiting:
            then(members[:MEMBERS_MAX])

    def failed(self, topic: Cid, member: PeerId) -> None:
        """A member did not answer, or not what it was asked."""
        known = self._known.get(topic)
        if known is not None and known.members and member in known.members:
            known.members.remove(member)
            # Without any, the next walk searches again.
            known.members = known.members or None

    def _is_fresh(self, topic: Cid) -> bool:
        known = self._known.get(topic)
        return known is not None and self._turn.now < known.until_s

    def _remember(self, topic: Cid) -> _Known:
        known = self._known.pop(topic, None) or _Known(0.0)
        known.until_s = self._turn.now + FRESH_S
        self._known[topic] = known
        if len(self._known) > TOPICS_MAX:
            del self._known[next(iter(self._known))]
        return known

    # What peers say.

    def receive_range(self, sender: PeerId, message: Range) -> bool:
        """Take a member's events; False if no walk waits for them."""
        return any(walk.fetching.receive_range(sender, message) for walk in list(self._walks))

    def receive_page(self, sender: PeerId, message: FrontierPage) -> None:
        """A member shows marks, perhaps because a walk asked for them."""
        for walk in [each for each in self._walks if each.topic == message.topic]:
            walk.fetching.receive_marks(sender, message)

    def answer_joiner(
        self, sender: PeerId, message: JoinAccepted | JoinReferred | JoinRefused
    ) -> None:
        """A peer answers a search for a member."""
        search = self._searches.get(message.topic)
        if search is None:
            return
        match message:
            case JoinAccepted():
                search.finder.accepted(sender, message)
            case JoinReferred():
                search.finder.search.referred(sender, message)
            case JoinRefused():
                search.finder.search.refused(sender, message)
            case _ as unreachable:
                assert_never(unreachable)

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""
        for walk in list(self._walks):
            walk.fetching.peer_lost(peer)
        for search in list(self._searches.values()):
            search.finder.search.lost(peer)
