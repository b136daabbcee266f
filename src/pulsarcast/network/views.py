"""Views of a running node: its topics, its neighbours in their trees, its connections."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from pulsarcast.model.api import FollowedView, MayPublish, PeerView, ReaderView, SequencingView
from pulsarcast.model.ids import Cid, PeerId, cid_text, peer_text
from pulsarcast.model.topic_types import Dissemination, TopicDescriptor
from pulsarcast.network.neighbours import Neighbours
from pulsarcast.network.subscriptions import Feed
from pulsarcast.protocol.content.following import ContentTopic
from pulsarcast.protocol.node import Node as Core
from pulsarcast.protocol.sequencing.raft_member import RaftMember
from pulsarcast.protocol.topic.log import TopicLog
from pulsarcast.protocol.topic.topic import Topic


def topic_view(
    me: PeerId,
    topic: Topic,
    feed: Feed | None,
    aliases: Mapping[str, str],
    member: RaftMember | None = None,
) -> FollowedView:
    """A topic that the node follows as a member."""
    tree, footprint = topic.view(), topic.footprint()
    return replace(
        _view(me, topic.id, topic.descriptor, topic.log, feed, aliases),
        subscribed=tree.subscribed,
        parent=None if tree.parent is None else peer_text(tree.parent),
        children=_texts(tree.children),
        lazy=_texts(tree.lazy),
        # In a cube everyone is the root of its own tree.
        is_root=tree.root or topic.descriptor.dissemination is Dissemination.CUBE,
        held_back=footprint["held_back"],
        missing=footprint["wants"],
        sequencing=None if member is None else sequencing_of(member),
        halted=None if topic.halted is None else topic.halted.message,
    )


def sequencing_of(member: RaftMember) -> SequencingView:
    """What the node knows of a topic's sequencers, as one of them."""
    state = member.sequencer.state
    return SequencingView(
        leader=None if state.leader is None else peer_text(state.leader),
        term=state.term,
        leads=state.leads,
        has_vote=state.has_vote,
        held=member.events.held(),
    )


def readers_of(feed: Feed) -> list[ReaderView]:
    """The readers of a topic, and their offsets."""
    return [
        ReaderView(
            name=name,
            done=feed.newest if done is None else done,
            behind=0 if done is None else max(0, feed.newest - done),
            connected=reader.subscription is not None,
        )
        for name, reader in feed.readers.items()
        for done in (reader.done,)
    ]


def topics_of(
    core: Core, feeds: Mapping[Cid, Feed], aliases: Mapping[str, str] = {}
) -> list[FollowedView]:
    """All topics that the node follows, but for those that only announce versions of others."""
    me, members = core.turn.me, core.sequencer_registry.by_topic
    return [
        *(
            topic_view(me, topic, feeds.get(cid), aliases, members.get(cid))
            for cid, topic in core.topics.items()
            if not topic.is_meta
        ),
        *(
            _content_view(me, topic, feeds.get(cid), aliases)
            for cid, topic in core.content.topics.items()
        ),
    ]


def _content_view(
    me: PeerId, topic: ContentTopic, feed: Feed | None, aliases: Mapping[str, str]
) -> FollowedView:
    return replace(
        _view(me, topic.id, topic.versions.current, topic.log, feed, aliases),
        held_back=topic.held_back,
        filters=[wanted.text() for wanted in topic.wanted.values()],
    )


def _view(
    me: PeerId,
    topic: Cid,
    descriptor: TopicDescriptor,
    log: TopicLog,
    feed: Feed | None,
    aliases: Mapping[str, str],
) -> FollowedView:
    """A topic, as if the node had no neighbours in its tree."""
    topic_id = cid_text(topic)
    return FollowedView(
        id=topic_id,
        name=descriptor.name,
        author=peer_text(descriptor.author),
        version=descriptor.number,
        order=descriptor.delivery_order.value,
        dissemination=descriptor.dissemination.value,
        open=descriptor.allowed_publishers is None,
        may_publish=_may_publish(descriptor, me),
        aliases=[alias for alias, named in aliases.items() if named == topic_id],
        subscribed=True,
        newest=log.newest,
        parent=None,
        children=[],
        lazy=[],
        is_root=False,
        held_back=0,
        missing=0,
        readers=[] if feed is None else readers_of(feed),
    )


def _may_publish(descriptor: TopicDescriptor, me: PeerId) -> MayPublish:
    if descriptor.may_publish(me):
        return "yes"
    return "by request" if descriptor.may_request(me) else "no"


def peers_of(neighbours: Neighbours) -> list[PeerView]:
    """The connections to other peers."""
    return [
        PeerView(
            peer=peer_text(link.peer),
            address=link.remote_address,
            dialled=link.dialled,
            bytes_in=link.bytes_in,
            bytes_out=link.bytes_out,
            queued_bytes=link.queued_bytes,
        )
        for link in neighbours.links()
    ]


def _texts(peers: tuple[PeerId, ...]) -> list[str]:
    return [peer_text(peer) for peer in peers]
