"""What a part of content routing needs around it, in tests that build it alone."""

from collections.abc import Callable
from random import Random
from typing import TypeVar, cast

from pulsarcast.model.ids import Cid, PeerId, peer_key
from pulsarcast.model.keys import Key
from pulsarcast.model.subscriptions import decode_subscription
from pulsarcast.protocol.content.messages import Held, Installed, MatchedEvent, PlaceState
from pulsarcast.protocol.content.place import Place, kept_of
from pulsarcast.protocol.content.routing import Routing
from pulsarcast.protocol.content.space import Widths
from pulsarcast.protocol.content.spaces import filter_of
from pulsarcast.protocol.context import NO_PARTS, Context, Parts
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.effects import Send
from pulsarcast.protocol.messages import Contact
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.topic.versions import Versions
from pulsarcast.protocol.turn import Turn
from tests.support.people import ALICE
from tests.unit.protocol.content.stage import SCHEMA, TOPIC

MessageT = TypeVar("MessageT")


class KnownPeers:
    """Some peers, as the DHT knows them."""

    def __init__(self, *peers: PeerId) -> None:
        self._peers = peers

    def closest_known(self, key: Key, count: int = 1) -> list[Contact]:
        """As `Kademlia` does."""
        nearest = sorted(self._peers, key=lambda each: peer_key(each) ^ key)
        return [Contact(each) for each in nearest[:count]]


class KnownTopic:
    """One topic, whose versions are known already, as `Spaces` has them."""

    def __init__(self) -> None:
        self.versions = Versions(TOPIC)

    def find(self, topic: Cid, version: Cid, then: Callable[[Versions | None], None]) -> None:
        """As `Spaces` does."""
        then(self.versions)


class Home:
    """Holds places for their parts, and remembers what they ask of it."""

    def __init__(self) -> None:
        self.places: dict[tuple[Cid, str, int], Place] = {}
        self.halved: list[Place] = []
        self.routed: list[PlaceState] = []
        self.learnt_of: list[tuple[tuple[Cid, str, int], int]] = []
        self.lines_heard = 0
        self.samples: list[Widths] = []
        self.answers: list[tuple[PeerId, Installed]] = []
        self.matched: list[MatchedEvent] = []

    def begin(self, topic: Cid, attribute: str, at: int) -> Place:
        place = self.places[(topic, attribute, at)] = Place(topic, attribute, at)
        place.is_owner = True
        return place

    def halve(self, place: Place) -> None:
        self.halved.append(place)

    def route_state(self, message: PlaceState) -> None:
        self.routed.append(message)

    def learnt(self, where: tuple[Cid, str, int], asked: int) -> None:
        self.learnt_of.append((where, asked))

    def heard_line(self, topic: Cid, attribute: str) -> None:
        self.lines_heard += 1

    def sampled(self, topic: Cid, attribute: str, widths: Widths) -> None:
        self.samples.append(widths)

    def installed(self, sender: PeerId, message: Installed) -> None:
        self.answers.append((sender, message))

    def deliver(self, message: MatchedEvent) -> None:
        self.matched.append(message)


def a_context(parts: Parts = NO_PARTS) -> Context:
    """The surroundings of a part of Alice's node."""
    return Context(Turn(ALICE, Random(1)), Parameters(), parts=parts)


def a_routing(context: Context, *peers: PeerId) -> Routing:
    """Routing to some peers."""
    return Routing(context, cast(Kademlia, KnownPeers(*peers)))


def put(place: Place, held: Held) -> None:
    """Keep a piece at a place."""
    record = decode_subscription(held.record)
    place.put(kept_of(held, record, filter_of(TOPIC, record.where), 1e9), SCHEMA)


def sent(context: Context, kind: type[MessageT]) -> list[tuple[PeerId, MessageT]]:
    """Messages of a kind that went out."""
    return [
        (effect.peer, effect.message)
        for effect in context.turn.effects
        if isinstance(effect, Send) and isinstance(effect.message, kind)
    ]
