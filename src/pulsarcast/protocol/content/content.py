"""Content-based subscriptions of one node: connects the parts that hold, publish and subscribe.

docs/spec/content.md.

`homes` and `upkeep` hold tree nodes for other peers. `probing` sends the node's events to the
leaves, and `subscriber` installs its filters there. `following` takes the events that arrive, and
completes them through `comparing` with members, whose side is `members`.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import assert_never

import msgspec

from pulsarcast.model.errors import Conflict, LocalError, NotFollowed, RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.content.following import TABLE, ContentTopic, FilterRow
from pulsarcast.protocol.content.homes import Homes
from pulsarcast.protocol.content.members import Members
from pulsarcast.protocol.content.messages import (
    AskShape,
    CompareContent,
    ContentCompared,
    ContentMessage,
    Installed,
    MatchedEvent,
    PlaceState,
    PlaceSubscription,
    PlaceTaken,
    ProbeEvent,
    TreeHint,
    TreeShape,
)
from pulsarcast.protocol.content.probing import Probing
from pulsarcast.protocol.content.routing import Routing
from pulsarcast.protocol.content.spaces import (
    Spaces,
    is_routed,
    own_filter,
    read_filter,
    routes_of,
)
from pulsarcast.protocol.content.subscriber import Subscriber
from pulsarcast.protocol.content.trees import Trees
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.following.descriptors import Descriptors
from pulsarcast.protocol.following.following import Following, OnDisk
from pulsarcast.protocol.messages import JoinAccepted, JoinReferred
from pulsarcast.protocol.publishing.numbering import Numberings
from pulsarcast.protocol.store import DropState
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.state import Resumed
from pulsarcast.protocol.topic.versions import Versions

START_S_MAX = 60.0
"""Bounds how long a new subscription searches for a member to start from."""
ENDED_MAX = 1024
"""Bounds the ended filters whose number is remembered; the oldest is forgotten first."""
FILTERS_MAX = 64
"""Bounds the node's filters per topic: one question to a member names them all."""


class Content:
    """The parts of one node that serve content-based subscriptions."""

    def __init__(
        self,
        context: Context,
        dht: Kademlia,
        topics: dict[Cid, ContentTopic],
        numberings: Numberings,
        descriptors: Descriptors,
        following: Following,
    ) -> None:
        self.context = context
        self.numberings = numberings
        self.descriptors = descriptors
        self.following = following
        self.turn = context.turn
        self.counts = context.counts
        self.decode = context.decode
        self.trees = Trees()
        self.spaces = Spaces(descriptors, following)
        self.routing = context.part(Routing)(context, dht)
        self.homes = Homes(context, self.routing, self.spaces, self.trees, dht.marks, self)
        self.upkeep = self.homes.upkeep
        self.probing = Probing(context, self.trees, self.homes)
        self.subscriber = Subscriber(context, self.homes, self.spaces, self.trees)
        self.members = Members(context)
        self.dht = dht
        self.topics = topics
        """Topics that the node follows by content."""
        self._ended: dict[tuple[Cid, int], int] = {}
        """Numbers of ended filters: a home knows such a filter until its lease ends."""

    # Requests of applications.

    def follow(
        self,
        versions: Versions,
        sid: int,
        where: str,
        then: Callable[[], None],
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        """Subscribe to a filter's events; `then` runs once the subscription has its start.

        If no member gives it one in time, the filter is forgotten again, and `failed` runs.

        Raises LocalError if the filter cannot be routed.
        """
        cid = versions.first.cid
        topic = self.topics.get(cid)
        if not is_routed(versions.current) or versions.first.is_sequenced:
            raise LocalError("this topic's events are not routed by content")
        if cid in self.following.topics:
            raise Conflict(
                "the node is a member of this topic and gets all of its events: unsubscribe first"
            )
        if topic is not None and sid not in topic.wanted and len(topic.wanted) >= FILTERS_MAX:
            raise LocalError(f"more than {FILTERS_MAX} filters on one topic")
        wanted = own_filter(versions.current, where)
        routes_of(wanted, self.spaces.domains(versions))  # If it raises, the filter before stays.
        number = self._next_number(topic, cid, sid)
        self.subscriber.cancel(cid, sid)
        self.subscriber.install(versions, sid, number, where)
        if topic is None:
            topic = self.topics[cid] = self._make(versions)
            topic.want(sid, number, wanted)
            topic.begin(self.numberings.last_link(cid))
            self.descriptors.follow(versions)
            topic.open()
        else:
            # After a restart a filter is read by the version that it was written for.
            self.descriptors.follow(versions)
            topic.want(sid, number, wanted)
        if topic.started:
            self.turn.persist(*topic.rows(), then=partial(_run, [topic.say_filters, then]))
            return
        topic.wait(sid, then, failed)
        self.turn.after(START_S_MAX, partial(self._give_up, topic, sid, number))

    def _make(self, versions: Versions, resumed: Resumed | None = None) -> ContentTopic:
        return ContentTopic(self.context, versions, self.spaces, self.dht, resumed)

    def _next_number(self, topic: ContentTopic | None, cid: Cid, sid: int) -> int:
        """The number of a filter's next form: homes of an earlier form refuse lower ones."""
        last = None if topic is None else topic.numbers.get(sid)
        if last is None:
            last = self._ended.pop((cid, sid), -2)
        return last + 2

    def _give_up(self, topic: ContentTopic, sid: int, number: int) -> None:
        """No member has given the subscription its start: there may be no member."""
        is_current = self.topics.get(topic.id) is topic and topic.numbers.get(sid) == number
        if is_current and not topic.started:
            waiting = topic.waiting(sid)
            self.unfollow(topic.id, sid, lambda: _run(failed for _, failed in waiting))

    def unfollow(self, cid: Cid, sid: int, then: Callable[[], None]) -> None:
        """End a filter's subscription; the last one ends the topic."""
        topic = self.topics.get(cid)
        if topic is None or sid not in topic.wanted:
            raise NotFollowed("the node does not follow this topic by this filter")
        topic.wanted.pop(sid, None)
        self._ended.pop((cid, sid), None)
        self._ended[cid, sid] = topic.numbers.pop(sid)
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        # A caller that still waits for the start was subscribed for a moment.
        waiting = topic.waiting(sid)
        self.subscriber.cancel(cid, sid)
        drop = DropState(TABLE, cid + sid.to_bytes(8, "big"))
        if topic.wanted:
            said = topic.say_filters if topic.started else _nothing
            ended = [said, *(started for started, _ in waiting), then]
            self.turn.persist(drop, then=partial(_run, ended))
            return
        del self.topics[cid]
        topic.close()
        self.descriptors.unfollow(cid)
        # Cancelled only once the end is on the disk: after a crash the subscription is still there.
        ended = [topic.say_ended, *(started for started, _ in waiting), then]
        forgotten = [*topic.requests.forget(), *topic.forget_heads()]
        root = topic.versions.first.root_peer
        marks = sorted(mark for mark in topic.frontier if mark.publisher == self.turn.me)
        self.following.forget_content(
            cid, root, marks, [drop, DropState("cursor", cid)], forgotten, partial(_run, ended)
        )

    def restore(self, disk: OnDisk) -> None:
        """Resume after a restart the subscriptions that are on the disk."""
        cursors = disk.rows("cursor")
        for key, value in disk.rows(TABLE).items():
            cid, sid = Cid(key[:-8]), int.from_bytes(key[-8:], "big")
            versions = self.descriptors.get(cid)
            if versions is None:
                continue
            row = msgspec.json.decode(value, type=FilterRow)
            try:
                _, wanted = read_filter(versions, row.where)
            except RemoteError:
                continue  # The disk has no version whose schema reads the filter.
            topic = self.topics.get(cid)
            if topic is None:
                frontier, index = Frontier(disk.marks.get(cid, [])), disk.logs.get(cid, 0)
                cursor = int.from_bytes(cursors.get(cid, b""), "big")
                topic = self.topics[cid] = self._make(versions, Resumed(frontier, index, cursor))
                self.descriptors.follow(versions)
            topic.want(sid, row.number + 2, wanted)

    def resume(self) -> None:
        """At a start, once peers can be asked: install the filters again."""
        self.homes.began_s = self.turn.now
        for topic in list(self.topics.values()):
            for sid, wanted in topic.wanted.items():
                number, where = topic.numbers[sid], wanted.text()
                version, _ = read_filter(topic.versions, where)
                self.subscriber.install(topic.versions, sid, number, where, version=version)
            self.turn.persist(*topic.rows())
            topic.open()

    # Events that the node publishes.

    def publish(self, event: EventDescriptor) -> None:
        """An event of this node is on its disk: send it to the leaves."""
        if event.is_silent:
            return
        own = self.topics.get(event.topic)
        if own is not None:
            try:
                own.receive(event, 0, routed=True)
            except RemoteError as error:
                # Meanwhile a version has arrived that takes the node's right to publish away.
                self.context.rejected(self.turn.me, event.topic, error)

        def found(versions: Versions | None) -> None:
            if versions is not None and is_routed(versions.current):
                self.probing.publish(event, self.spaces.places(versions, event.request.attributes))

        self.spaces.find(event.topic, event.version, found, always=True)

    # Messages of peers.

    def receive(self, sender: PeerId, message: ContentMessage) -> None:
        """Take a peer's message; raises RemoteError if the peer should not have sent it."""
        match message:
            case ProbeEvent():
                self.homes.probe(message, sender)
            case MatchedEvent():
                self.deliver(message)
            case PlaceSubscription():
                self.homes.place(message, sender)
            case Installed():
                self.subscriber.installed(sender, message)
            case PlaceState():
                self.homes.route_state(message, sender)
            case PlaceTaken():
                self.homes.state_taken(message, sender)
            case TreeHint():
                self.homes.shape_hints.hear(message)
            case AskShape():
                self.homes.shape_hints.queries.asked(message, sender)
            case TreeShape():
                self.homes.shape_hints.queries.answered(message)
            case CompareContent():
                self.members.answer(sender, message, self.following.topics.get(message.topic))
            case ContentCompared():
                topic = self.topics.get(message.topic)
                if topic is not None:
                    topic.comparing.receive(sender, message)
            case _ as unreachable:
                assert_never(unreachable)

    def installed(self, sender: PeerId, message: Installed) -> None:
        """A leaf keeps a piece of a subscription of this node."""
        self.subscriber.installed(sender, message)

    def heard_line(self, topic: Cid, attribute: str) -> None:
        """The root's home has told the cut-off line."""
        self.subscriber.follow_line(topic, attribute)

    def deliver(self, message: MatchedEvent) -> None:
        """A subscription of this node matches an event."""
        event = self.decode(message.block)
        topic = self.topics.get(event.topic)
        if topic is not None:
            topic.receive(event, message.hops, routed=True)

    def accepted(self, sender: PeerId, message: JoinAccepted) -> None:
        """A member accepts a search of this node."""
        topic = self.topics.get(message.topic)
        if topic is not None:
            topic.finder.accepted(sender, message)

    def referred(self, sender: PeerId, message: JoinReferred) -> None:
        """A peer that a search of this node asked names another."""
        topic = self.topics.get(message.topic)
        if topic is not None:
            topic.finder.search.referred(sender, message)

    def lost(self, peer: PeerId) -> None:
        """A connection ended, or could not be made."""
        for probe in self.routing.lost(peer):
            self.counts["content_probe_again"] += 1
            try:
                self.homes.probe(probe, None)
            except RemoteError as error:
                # The node did not check it as a hop. As its home it does.
                self.context.rejected(peer, probe.topic, error)
        self.upkeep.lost(peer)
        self.subscriber.lost(peer)
        for topic in self.topics.values():
            topic.comparing.lost(peer)

    def footprint(self) -> dict[str, int]:
        """How much is in memory."""
        return {
            "content_places": len(self.homes.places),
            "content_kept": self.homes.kept_count,
            "content_trees": len(self.trees),
            "content_questions": len(self.homes.shape_hints.queries),
            "content_marks": sum(
                len(topic.frontier) + len(topic.comparing) for topic in self.topics.values()
            ),
        }


def _run(each: Iterable[Callable[[], None]]) -> None:
    """Run one after the other."""
    for then in each:
        then()


def _nothing() -> None:
    """Nothing is to be done yet."""
