"""The overlay that a topic's author chose, with the heartbeats that belong to it."""

from collections import Counter

from pulsarcast.model.topics import Dissemination, TopicDescriptor
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination.cube import DisseminationCube
from pulsarcast.protocol.dissemination.cube_heartbeat import CubeHeartbeat
from pulsarcast.protocol.dissemination.overlay import Conversation, Overlay, OverlayOwner
from pulsarcast.protocol.dissemination.tree import DisseminationTree
from pulsarcast.protocol.dissemination.tree_heartbeat import Heartbeat
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.turn import Turn


def choose_overlay(
    topic: TopicDescriptor,
    turn: Turn,
    dht: Kademlia,
    parameters: Parameters,
    owner: OverlayOwner,
    counts: Counter[str],
) -> tuple[Overlay, Conversation]:
    """A tree or a cube, as the topic's first version says: it never changes."""
    if topic.dissemination is Dissemination.CUBE:
        cube = DisseminationCube(topic.cid, topic.root_peer, turn, dht, parameters, owner, counts)
        return cube, CubeHeartbeat(topic.cid, turn, parameters, cube, owner, counts)
    tree = DisseminationTree(topic.cid, topic.root_peer, turn, dht, parameters, owner, counts)
    return tree, Heartbeat(topic.cid, turn, parameters, tree, owner, counts)
