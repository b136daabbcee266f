"""The surroundings of one part of content routing; the DHT and the owner are fakes."""

from typing import Any, cast

from pulsarcast.model.filters import parse
from pulsarcast.model.ids import PeerId, peer_key
from pulsarcast.model.subscriptions import decode_subscription
from pulsarcast.protocol.content.messages import Held
from pulsarcast.protocol.content.place import Place, PlaceId, kept_of
from pulsarcast.protocol.content.routing import Routing
from pulsarcast.protocol.content.shape_hints import ShapeHints
from pulsarcast.protocol.content.space import key_of_node
from pulsarcast.protocol.content.spaces import Spaces
from pulsarcast.protocol.content.splitting import Splitting
from pulsarcast.protocol.content.trees import Trees
from pulsarcast.protocol.topic.versions import Versions
from tests.support.parts import Core
from tests.support.people import peer
from tests.unit.protocol.content.stage import SCHEMA, TOPIC, WHERE


def closest_to(at: int) -> PeerId:
    """Of many peers the closest to the key of a node of the tree."""
    key = key_of_node(TOPIC.topic, "price", at)
    return min((peer(f"peer {number}") for number in range(40)), key=lambda p: peer_key(p) ^ key)


class Parts:
    """Routing, spaces and trees of one node, and places that a test puts there."""

    def __init__(self, *known: PeerId) -> None:
        self.core = Core()
        self.core.network.known = list(known)
        self.core.descriptors.keep(Versions(TOPIC))
        self.core.sync()
        self.context, self.turn, self.owner = self.core.context, self.core.turn, self.core.owner
        self.node = cast("Any", self.owner)
        self.trees = Trees()
        self.routing = Routing(self.context, self.core.dht)
        self.spaces = Spaces(self.core.descriptors, self.core.following)
        self.places: dict[PlaceId, Place] = {}
        self.splitting = Splitting(self.context, self.trees, self.node)
        self.hints = ShapeHints(self.context, self.routing, self.trees, self.places, self.node)

    def hold(self, at: int, *pieces: Held) -> Place:
        """Be the home of a node of the tree."""
        place = self.places[TOPIC.topic, "price", at] = Place(TOPIC.topic, "price", at)
        place.is_owner = True
        for held in pieces:
            record = decode_subscription(held.record)
            place.put(kept_of(held, record, parse(WHERE, SCHEMA), 1e9), SCHEMA)
        return place
