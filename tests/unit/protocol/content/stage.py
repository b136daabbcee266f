"""A node that holds a place of a content tree, with its peers played by a test."""

from itertools import count
from random import Random
from typing import TypeVar

from pulsarcast.model.events import EventDescriptor, publish_own
from pulsarcast.model.filters import parse
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import PeerId, peer_key
from pulsarcast.model.requests import Sequence
from pulsarcast.model.subscriptions import decode_subscription, sign_subscription
from pulsarcast.model.topics import AttributeRule, TopicDescriptor
from pulsarcast.protocol.content.messages import Held
from pulsarcast.protocol.content.place import PieceKey, Place, kept_of
from pulsarcast.protocol.effects import Send
from pulsarcast.protocol.messages import Contact
from pulsarcast.protocol.node import Node
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.topic.versions import Versions
from tests.support.people import ALICE, BOB, CREATED_US, EPOCH, nonce, peer, topic_of, unordered

SCHEMA = (AttributeRule("price", "float", 0.0, 100.0),)
SETTINGS = unordered(attributes=SCHEMA, content_routing=True, publishers=(BOB.peer_id,))
WHERE = "price < 50"
AT = 9
PEERS = [peer(f"peer {number}") for number in range(40)]


def distance(who: PeerId, topic: TopicDescriptor, at: int = AT) -> int:
    """How far a peer is from the key of a node of the tree, the held one if none is said."""
    return peer_key(who) ^ Place(topic.topic, "price", at).key


def _in_the_middle() -> TopicDescriptor:
    """A topic with peers on both sides of the place's holder, so that tests have both.

    Of the farther ones some are closer to the nodes above the place: questions go there.
    """
    for number in count():
        topic = topic_of(BOB, SETTINGS, name=f"news {number}")
        ours = distance(ALICE.peer_id, topic)
        farther = [each for each in PEERS if distance(each, topic) > ours]
        if len(farther) == len(PEERS) // 2 and all(
            min(distance(each, topic, above) for each in farther)
            < distance(ALICE.peer_id, topic, above)
            for above in (AT >> 1, AT >> 2)
        ):
            return topic
    raise AssertionError


TOPIC = _in_the_middle()
MessageT = TypeVar("MessageT")


def held_of(who: Identity, *, sid: int = 1, low: float = 0.0) -> Held:
    """A piece of a subscription to all that costs less than 50."""
    record = sign_subscription(
        who, topic=TOPIC.topic, version=TOPIC.cid, sid=sid, number=1, lease_s=60, where=WHERE
    )
    return Held(record.block, 0, low, 0.5, False, 60)


def event_at(price: float, *, number: int = 1, publisher: Identity = BOB) -> EventDescriptor:
    """An event at a price."""
    return publish_own(
        publisher,
        topic=TOPIC.topic,
        version=TOPIC.cid,
        payload=b"hello",
        attributes={"price": price},
        created=CREATED_US,
        nonce=nonce(f"{price}/{number}"),
        sequence=Sequence(EPOCH, number),
        parents=(),
    )


class Stage:
    """A node that holds one place, and peers by their distance to the place's key."""

    def __init__(self) -> None:
        self.node = Node(ALICE, Random(1), Parameters())
        self.node.descriptors.keep(Versions(TOPIC))
        self.content = self.node.content
        self.place = self.hold(AT)
        ours = self._far(self.node.turn.me)
        peers = sorted(PEERS, key=self._far)
        self.closer = [each for each in peers if self._far(each) < ours]
        self.farther = [each for each in peers if self._far(each) > ours]

    def _far(self, who: PeerId) -> int:
        return distance(who, TOPIC)

    def hold(self, at: int) -> Place:
        """Be the home of a node, with one piece in it."""
        place = self.content.homes.places[TOPIC.topic, "price", at] = Place(
            TOPIC.topic, "price", at
        )
        place.is_owner = True
        self.put(place, held_of(BOB))
        self.content.upkeep.touched(place)
        return place

    def put(self, place: Place, held: Held, *, expires_s: float = 1e9) -> PieceKey:
        """Keep a piece."""
        record = decode_subscription(held.record)
        kept = kept_of(held, record, parse(WHERE, SCHEMA), expires_s)
        place.put(kept, SCHEMA)
        return kept.key

    @property
    def is_held(self) -> bool:
        """Whether we still have the place."""
        return (TOPIC.topic, "price", AT) in self.content.homes.places

    def meet(self, *peers: PeerId) -> None:
        """Know of some peers."""
        for each in peers:
            self.node.dht.saw(Contact(each))

    def tend(self) -> None:
        """A round of upkeep."""
        timer = self.content.upkeep._timer
        assert timer is not None
        self.node.turn.fired(timer)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, for all but the rounds."""
        self.node.turn.now += seconds
        for timer in list(self.node.turn._timers):
            if timer != self.content.upkeep._timer:
                self.node.turn.fired(timer)

    def told(self, kind: type[MessageT]) -> list[tuple[PeerId, MessageT]]:
        """What of a kind went out since the last look."""
        effects, self.node.turn.effects = self.node.turn.effects, []
        return [
            (effect.peer, effect.message)
            for effect in effects
            if isinstance(effect, Send) and isinstance(effect.message, kind)
        ]
