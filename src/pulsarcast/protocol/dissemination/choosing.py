"""Builds the overlay that a topic's author chose, with its heartbeats."""

from pulsarcast.model.topics import Dissemination, TopicDescriptor
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination.cube import DisseminationCube
from pulsarcast.protocol.dissemination.cube_heartbeat import CubeHeartbeat
from pulsarcast.protocol.dissemination.overlay import Conversation, Overlay, OverlayOwner
from pulsarcast.protocol.dissemination.quiet_topics import QuietTopics
from pulsarcast.protocol.dissemination.riding import Branch, RidingHeartbeat, RidingOverlay
from pulsarcast.protocol.dissemination.tree import DisseminationTree
from pulsarcast.protocol.dissemination.tree_heartbeat import Heartbeat


def choose_overlay(
    topic: TopicDescriptor,
    context: Context,
    dht: Kademlia,
    quiet: QuietTopics,
    owner: OverlayOwner,
    *,
    started: bool,
) -> tuple[Overlay, Conversation]:
    """A tree or a cube, as the topic's first version says: it never changes.

    A meta topic rides on the overlay of its topic, and has a tree beside it.
    """

    def tree_of(*, started: bool) -> Branch:
        tree = context.part(DisseminationTree)(
            topic.cid, topic.root_peer, context, dht, owner, started=started
        )
        return Branch(tree, context.part(Heartbeat)(topic.cid, context, tree, quiet, owner))

    if topic.is_meta:
        riding = RidingOverlay(topic.cid, context, owner, tree_of, started=started)
        return riding, RidingHeartbeat(riding)
    if topic.dissemination is Dissemination.CUBE:
        cube = context.part(DisseminationCube)(
            topic.cid, topic.root_peer, context, dht, owner, started=started
        )
        return cube, context.part(CubeHeartbeat)(topic.cid, context, cube, quiet, owner)
    return tree_of(started=started)
