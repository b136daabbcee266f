"""Surroundings of one part of a node: real parts below it, and fakes for the DHT and the owner."""

from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Any, TypeVar, cast

from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, PeerId, peer_key
from pulsarcast.model.keys import Key
from pulsarcast.model.listings import Listing
from pulsarcast.model.pointers import Named
from pulsarcast.model.topics import TopicDescriptor
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.expiry import Lifetime
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dht.mark_pages import MarkPages
from pulsarcast.protocol.dissemination.quiet_topics import QuietTopics
from pulsarcast.protocol.effects import Load, Persist, Reply, Send, SetTimer
from pulsarcast.protocol.following.descriptors import Descriptors
from pulsarcast.protocol.following.following import Following
from pulsarcast.protocol.following.handing_in import HandingIn
from pulsarcast.protocol.following.names import Names
from pulsarcast.protocol.following.own_listings import OwnListings
from pulsarcast.protocol.following.renewal import Renewal
from pulsarcast.protocol.history.walks import Walks
from pulsarcast.protocol.messages import Contact, Message
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.publishing.fencing import EpochFencing
from pulsarcast.protocol.publishing.numbering import Numberings
from pulsarcast.protocol.publishing.outbox import Outbox
from pulsarcast.protocol.publishing.outside import OutsidePublishing
from pulsarcast.protocol.publishing.publisher import Publisher
from pulsarcast.protocol.store import Answer, AnyWrite, PutBlock
from pulsarcast.protocol.topic.followed import FollowedTopics
from pulsarcast.protocol.topic.topic import Topic
from pulsarcast.protocol.topic.versions import Versions
from pulsarcast.protocol.topic.work import AtWork
from pulsarcast.protocol.turn import Turn
from tests.support.people import ALICE, CREATED_US
from tests.support.reach import reachability_of

EffectT = TypeVar("EffectT")


class Dht:
    """Plays the DHT: it knows some peers, and answers questions when the test says so."""

    def __init__(self, context: Context) -> None:
        self.reachability = reachability_of(context)
        nothing = cast("Any", None)
        self.marks = MarkPages(context, nothing, nothing, self.find_block)
        self.known: list[PeerId] = []
        self.full: list[PeerId] = []
        """Peers for which the disk has no room."""
        self.is_close = False
        """Whether the node is one of the r peers closest to any block."""
        self.kept_own: list[PutBlock] = []
        self.is_placing_much = False
        self.finding: list[tuple[Cid, Callable[[bytes | None], None]]] = []
        self.storing: list[tuple[list[bytes], Callable[[list[int]], None]]] = []
        self.pointing: list[tuple[Named, Callable[[int], None]]] = []
        self.resolving: list[Callable[[Named | None], None]] = []
        self.listing: list[tuple[Key, list[Listing], Callable[[int], None]]] = []
        self.searching: list[tuple[list[Key], Callable[[list[Listing], bool], None]]] = []
        self.lookups: list[tuple[Key, Callable[[list[Contact]], None]]] = []

    @property
    def known_count(self) -> int:
        return len(self.known)

    @property
    def known_with_room_count(self) -> int:
        return len(self.known)

    def has_room_for(self, peer: PeerId) -> bool:
        return peer not in self.full

    def found_no_room(self, place: str) -> None:
        """The test says who has room."""

    def saw(self, contact: Contact) -> None:
        """The test says which peers are known."""

    def closest_known(
        self, key: Key, count: int = 1, exclude: Collection[PeerId] = ()
    ) -> list[Contact]:
        peers = [each for each in self.known if each not in exclude]
        return [Contact(each) for each in sorted(peers, key=lambda p: peer_key(p) ^ key)[:count]]

    def lookup(self, key: Key, then: Callable[[list[Contact]], None]) -> None:
        self.lookups.append((key, then))

    def find_block(self, cid: Cid, then: Callable[[bytes | None], None]) -> None:
        self.finding.append((cid, then))

    def store(
        self,
        blocks: Sequence[bytes],
        then: Callable[[list[int]], None],
        *,
        keep_local: bool = True,
        also: Sequence[PeerId] = (),
    ) -> None:
        self.storing.append((list(blocks), then))

    def own_replica(self, cid: Cid, block: bytes, lifetime: Lifetime) -> PutBlock | None:
        return PutBlock(cid, block, Key(0), lifetime.expires_us) if self.is_close else None

    def kept(self, replica: PutBlock) -> None:
        self.kept_own.append(replica)

    def put_pointer(self, named: Named, then: Callable[[int], None]) -> None:
        self.pointing.append((named, then))

    def get_pointer(self, author: PeerId, name: str, then: Callable[[Named | None], None]) -> None:
        self.resolving.append(then)

    def put_listings(
        self, key: Key, listings: Sequence[Listing], then: Callable[[int], None]
    ) -> None:
        self.listing.append((key, list(listings), then))

    def find_listings(
        self, keys: Sequence[Key], then: Callable[[list[Listing], bool], None]
    ) -> None:
        self.searching.append((list(keys), then))

    def found(self, block: bytes | None) -> Cid:
        """Answer the oldest search for a block; returns what was searched for."""
        cid, then = self.finding.pop(0)
        then(block)
        return cid


class Owner:
    """Plays the node that a part belongs to, and remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: self.told.append(name)


class Core:
    """The parts of a node from publishing up to following; the DHT and the owner are fakes."""

    def __init__(self, who: Identity = ALICE, parameters: Parameters | None = None) -> None:
        self.turn = Turn(who, Random(1))
        self.turn.wall_us = CREATED_US
        self.context = Context(self.turn, Parameters() if parameters is None else parameters)
        self.network = Dht(self.context)
        self.dht = cast("Kademlia", self.network)
        self.owner = Owner()
        node = cast("Any", self.owner)
        self.quiet = QuietTopics(self.context)
        self.at_work = AtWork(self.turn)
        self.followed = FollowedTopics({}, self.quiet, self.at_work)
        self.outside = OutsidePublishing(self.context, self.dht)
        self.numberings = Numberings(self.context)
        self.fencing = EpochFencing(self.context, self.numberings, self.outside)
        self.publisher = Publisher(
            self.context, self.dht, self.numberings, self.outside, self.followed, node
        )
        self.outbox = Outbox(self.context, self.followed, node)
        self.descriptors = Descriptors(self.context, self.dht, self.outbox, self.outside)
        self.walks = Walks(self.context, self.dht, self.descriptors, self.followed)
        self.handing_in = HandingIn(
            self.context,
            self.followed,
            self.descriptors,
            self.outside,
            self.fencing,
            self.publisher,
        )
        self.renewal = Renewal(self.context, self.followed, self.descriptors, node)
        self.following = Following(
            self.context,
            self.dht,
            self.followed,
            self.descriptors,
            self.handing_in,
            self.renewal,
            node,
        )
        self.listings = OwnListings(self.context, self.dht, self.followed)
        self.names = Names(self.context, self.dht, self.followed, self.renewal)

    def topic(self, first: TopicDescriptor) -> Topic:
        """A topic that the node follows, whose owner is a fake."""
        owner = cast("Any", self.owner)
        versions = Versions(first)
        of_node = (self.context, self.dht, self.quiet, owner, self.fencing, self.at_work)
        topic = Topic(versions, *of_node, subscribed=True)
        self.followed.members[topic.id] = topic
        self.descriptors.follow(versions)
        return topic

    def wanted(self, kind: type[EffectT]) -> list[EffectT]:
        """The effects of a kind since the last look; the others stay."""
        found: list[EffectT] = [each for each in self.turn.effects if isinstance(each, kind)]
        self.turn.effects = [each for each in self.turn.effects if not isinstance(each, kind)]
        return found

    def sent(self) -> list[tuple[PeerId, Message]]:
        """What was sent since the last look."""
        return [(each.peer, each.message) for each in self.wanted(Send)]

    def replies(self) -> list[Reply]:
        """What commands were answered since the last look."""
        return self.wanted(Reply)

    def sync(self) -> list[AnyWrite]:
        """The disk has written everything; returns what."""
        persists = self.wanted(Persist)
        for each in persists:
            self.turn.persisted(each.token)
        return [write for each in persists for write in each.writes]

    def load(self, answer: Answer) -> None:
        """The disk answers the one question that it was asked."""
        (load,) = self.wanted(Load)
        self.turn.loaded(load.token, answer)

    def fire(self) -> list[float]:
        """Let all timers that were set since the last look run out; returns their delays."""
        timers = self.wanted(SetTimer)
        for each in timers:
            self.turn.fired(each.timer)
        return [each.delay_s for each in timers]
