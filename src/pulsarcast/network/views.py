"""Views of a running node: its topics, its neighbours in their trees, its connections."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

import trio
from msgspec.structs import replace

from pulsarcast.model.api import (
    BelowView,
    BootstrapView,
    FollowedView,
    MayPublish,
    PeerView,
    ReachKind,
    ReachReport,
    ReachView,
    ReaderView,
    RelayingView,
    SequencingView,
)
from pulsarcast.model.ids import Cid, PeerId, cid_text, peer_text
from pulsarcast.model.reach import Reach
from pulsarcast.model.topic_types import Dissemination, TopicDescriptor
from pulsarcast.network.below import part_name
from pulsarcast.network.multiaddrs import is_loopback
from pulsarcast.network.neighbours import Neighbours
from pulsarcast.network.relay_server import RelayServer
from pulsarcast.network.subscriptions import Feed, Reader
from pulsarcast.protocol.content.following import ContentTopic
from pulsarcast.protocol.messages import Contact
from pulsarcast.protocol.node import Node as Core
from pulsarcast.protocol.sequencing.raft_member import RaftMember
from pulsarcast.protocol.topic.life import FollowReason
from pulsarcast.protocol.topic.log import TopicLog
from pulsarcast.protocol.topic.topic import Topic

_REACH_KINDS: Final[Mapping[Reach, ReachKind]] = {
    Reach.UNKNOWN: "unknown",
    Reach.PUBLIC: "public",
    Reach.RELAYED: "relayed",
    Reach.PRIVATE: "private",
}


def topic_view(
    core: Core, topic: Topic, feeds: Mapping[Cid, Feed], aliases: Mapping[str, str]
) -> FollowedView:
    """A topic that the node follows as a member."""
    tree, footprint = topic.view(), topic.footprint()
    member = core.sequencer_registry.by_topic.get(topic.id)
    return replace(
        _view(core.turn.me, topic.id, topic.descriptor, topic.log, feeds, aliases),
        below=below_of(core, topic.id),
        above=[cid_text(top) for top in core.following.below.tops_of(topic.id)],
        subscribed=tree.subscribed,
        parent=None if tree.parent is None else peer_text(tree.parent),
        children=_texts(tree.children),
        lazy=_texts(tree.lazy),
        # In a cube everyone is the root of its own tree.
        is_root=tree.root or topic.descriptor.dissemination is Dissemination.CUBE,
        starved=core.is_starved(topic),
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


def below_of(core: Core, topic: Cid) -> BelowView | None:
    """The sub-topics that the node's subscription to a topic takes in, if it does."""
    if FollowReason.BELOW not in core.followed.reasons(topic):
        return None
    found = core.following.below.view(topic)
    return BelowView(
        followed=found.followed,
        joining=found.joining,
        left_out={cid_text(cid): why for cid, why in found.left_out.items()},
        left_out_count=found.left_out_count,
    )


def readers_of(feed: Feed, feeds: Mapping[Cid, Feed]) -> list[ReaderView]:
    """The readers of a topic, and their offsets."""
    return [
        ReaderView(
            name=name,
            done=feed.newest if done is None else done,
            behind=_behind(feed, reader) + _behind_below(feed.topic, name, reader, feeds),
            connected=reader.subscription is not None,
            below=reader.below is not None,
        )
        for name, reader in feed.readers.items()
        if name not in feed.parts
        for done in (reader.done,)
    ]


def _behind(feed: Feed, reader: Reader) -> int:
    done = reader.done
    return 0 if done is None else max(0, feed.newest - done)


def _behind_below(top: Cid, name: str, reader: Reader, feeds: Mapping[Cid, Feed]) -> int:
    if reader.below is None:
        return 0
    key = part_name(name, top)
    return sum(_behind(feed, feed.readers[key]) for feed in feeds.values() if key in feed.parts)


def topics_of(
    core: Core, feeds: Mapping[Cid, Feed], aliases: Mapping[str, str] = {}
) -> list[FollowedView]:
    """All topics that the node follows, but for those that only announce versions of others."""
    return [
        *(
            topic_view(core, topic, feeds, aliases)
            for topic in core.topics.values()
            if not topic.is_meta
        ),
        *(
            _content_view(core.turn.me, topic, feeds, aliases)
            for topic in core.content.topics.values()
        ),
    ]


def _content_view(
    me: PeerId, topic: ContentTopic, feeds: Mapping[Cid, Feed], aliases: Mapping[str, str]
) -> FollowedView:
    return replace(
        _view(me, topic.id, topic.versions.current, topic.log, feeds, aliases),
        held_back=topic.held_back,
        filters=[wanted.text() for wanted in topic.wanted.values()],
    )


def _view(
    me: PeerId,
    topic: Cid,
    descriptor: TopicDescriptor,
    log: TopicLog,
    feeds: Mapping[Cid, Feed],
    aliases: Mapping[str, str],
) -> FollowedView:
    """A topic, as if the node had no neighbours in its tree."""
    topic_id = cid_text(topic)
    feed = feeds.get(topic)
    return FollowedView(
        id=topic_id,
        name=descriptor.name,
        author=peer_text(descriptor.author),
        version=descriptor.number,
        order=descriptor.delivery_order.value,
        dissemination=descriptor.dissemination.value,
        open=descriptor.allowed_publishers is None,
        may_publish=_may_publish(descriptor, me),
        description=descriptor.description,
        tags=list(descriptor.tags),
        aliases=[alias for alias, named in aliases.items() if named == topic_id],
        subscribed=True,
        newest=log.newest,
        parent=None,
        children=[],
        lazy=[],
        is_root=False,
        starved=False,
        held_back=0,
        missing=0,
        readers=[] if feed is None else readers_of(feed, feeds),
    )


def _may_publish(descriptor: TopicDescriptor, me: PeerId) -> MayPublish:
    if descriptor.may_publish(me):
        return "yes"
    return "by request" if descriptor.may_request(me) else "no"


def peers_of(neighbours: Neighbours) -> list[PeerView]:
    """The connections to other peers."""
    found = (neighbours.connection_to(peer) for peer in neighbours.connected())
    return [
        PeerView(
            peer=peer_text(link.peer),
            address=link.remote_address,
            dialled=link.dialled,
            reach=_REACH_KINDS[connection.hello.reach],
            relay="" if link.relay is None else peer_text(link.relay),
            bytes_in=link.bytes_in,
            bytes_out=link.bytes_out,
            queued_bytes=link.queued_bytes,
        )
        for connection in found
        if connection is not None and connection.hello is not None
        for link in (connection.link,)
    ]


def bootstrap_of(core: Core, neighbours: Neighbours) -> list[BootstrapView]:
    """The bootstrap peers, and whether they answer."""
    connected = set(neighbours.connected())
    return [_bootstrap_view(core, neighbours, each, connected) for each in core.dht.bootstrap]


def _bootstrap_view(
    core: Core, neighbours: Neighbours, contact: Contact, connected: Container[PeerId]
) -> BootstrapView:
    view = BootstrapView(
        peer=peer_text(contact.peer), addresses=list(contact.addresses), state="trying"
    )
    refused = neighbours.refused(contact.peer)
    if contact.peer in connected:
        return replace(view, state="connected")
    if refused is not None:
        ago_us = int((trio.current_time() - refused.since_s) * 1e6)
        since_us = time.time_ns() // 1000 - ago_us
        return replace(view, state="unreachable", since_us=since_us, reason=refused.reason)
    return replace(view, state="idle") if core.dht.knows(contact.peer) else view


def reach_of(
    core: Core,
    addresses: Sequence[str],
    bound: Sequence[str],
    relays: Iterable[PeerId],
    holes: tuple[int, int],
) -> ReachView:
    """Whether and how others can dial the node, which listens at `bound` and tells `addresses`.

    `relays` have a reservation for it; `holes` were punched and not punched.
    """
    found = core.dht.reachability
    view = ReachView(
        kind=_REACH_KINDS[found.reach],
        since_us=found.since_us or None,
        address=found.outside,
        reports=[
            ReachReport(
                peer=peer_text(each.peer),
                reached=each.reached,
                address=each.address,
                near=each.near,
                at_us=each.at_us,
            )
            for each in found.reports.values()
        ],
        relays=[peer_text(peer) for peer in relays],
        punched=holes[0],
        not_punched=holes[1],
    )
    return replace(view, advice=_advice(view, addresses, bound))


def _advice(reach: ReachView, addresses: Sequence[str], bound: Sequence[str]) -> str:
    """What the operator can do so that others dial the node."""
    if not addresses:
        return "the node advertises no address: set node.listen or node.announce"
    if all(map(is_loopback, bound)):
        return "the node listens on this machine only: set node.listen to reach further"
    if reach.kind == "unknown":
        return "no peer has tried to dial the node: name a bootstrap peer of another network"
    if reach.kind == "public":
        is_near = all(each.near for each in reach.reports)
        return "only peers of this network have dialled the node so far" if is_near else ""
    ports = sorted({each.rpartition("/")[2] for each in bound})
    return (
        f"forward TCP port {', '.join(ports)} from the router to this machine, or open it in the "
        "firewall; where the router has another port outside, set node.announce (--announce)"
    )


def relaying_of(relaying: RelayServer) -> RelayingView:
    """What the node does as a relay for others."""
    return RelayingView(
        peers=relaying.reservation_count,
        circuits=relaying.circuit_count,
        bytes=relaying.bytes_relayed,
    )


def _texts(peers: tuple[PeerId, ...]) -> list[str]:
    return [peer_text(peer) for peer in peers]
