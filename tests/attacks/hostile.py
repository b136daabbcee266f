"""Hostile inputs: mutated bytes, and well-formed messages that are signed, malicious and wrong."""

from collections.abc import Callable
from random import Random
from typing import Any, get_args

from pulsarcast.model.cbor import decode as decode_cbor
from pulsarcast.model.cbor import encode as encode_cbor
from pulsarcast.model.cbor import opaque
from pulsarcast.model.errors import LocalError
from pulsarcast.model.events import (
    EventDescriptor,
    Position,
    Sequence,
    decode_request,
    publish_own,
    publish_request,
    sign_request,
)
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import CID_PREFIX, PEER_ID_PREFIX, Cid, PeerId, cid_of
from pulsarcast.model.listings import LISTING_BYTES_MAX, sign_listing, term_key
from pulsarcast.model.pointers import sign_pointer
from pulsarcast.model.reach import Reach
from pulsarcast.model.subscriptions import sign_subscription
from pulsarcast.model.topics import (
    META,
    TOPIC_BYTES_MAX,
    DeliveryOrder,
    EventLinking,
    Mark,
    Retention,
    TopicDescriptor,
    TopicSettings,
    create_meta_topic,
    create_topic,
    next_version,
)
from pulsarcast.protocol import messages
from pulsarcast.protocol.content.messages import (
    COUNTED_MAX,
    AskShape,
    CompareContent,
    Held,
    PlaceState,
    PlaceSubscription,
    ProbeEvent,
    Purpose,
    Stage,
    Target,
    TreeHint,
    TreeShape,
)
from pulsarcast.protocol.content.space import CUT_OFFS
from pulsarcast.protocol.limits import COUNT_MAX, HOPS_MAX, INTEGER_MAX
from pulsarcast.protocol.messages import Contact, Message, Role
from pulsarcast.protocol.sequencing.configs import Config, Member, pack_config
from pulsarcast.protocol.sequencing.log import Entry, EntryKind, Snapshot
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.wire import codec
from tests.support.people import CREATED_US, identity

KINDS: tuple[type, ...] = get_args(Message)
HOSTILES: tuple[Identity, ...] = tuple(identity(f"hostile {number}") for number in range(4))

# Few, so that what is well published by a hostile peer in an open topic stays little.
EPOCHS = (0, 7, INTEGER_MAX)
NEXT_EPOCH = 9
NUMBERS = (1, 1, 2, 2, 3, 4, 5, 9, 2**32, 2**62, INTEGER_MAX)
STRANGERS = 2048
"""Peers that are named and do not exist."""


class Hostile:
    """Makes one hostile thing after the other, always the same ones from the same seed."""

    def __init__(self, rng: Random, topics: list[TopicDescriptor], victim: PeerId) -> None:
        self.rng = rng
        self.topics = topics
        self.newer: list[TopicDescriptor] = []
        self.victim = victim
        self.events: list[EventDescriptor] = []
        self.frames: list[bytes] = [b"\x0a\x00"]
        """Some of what was made last: to be damaged."""
        self.requests: list[int] = [2, 4]
        """Numbers of questions that the victim asked of late: to be answered falsely."""
        self._next: dict[tuple[Cid, PeerId], tuple[int, Cid | None]] = {}
        """Streams that go on properly, so that what lies behind the first checks is reached."""
        self._makers: dict[str, Callable[[], object]] = {
            "address": lambda: "/a" * rng.choice((0, 1, 128)),
            "addresses": lambda: ("/ip4/127.0.0.1/tcp/1",) * rng.choice((0, 1, 16)),
            "answer": self.flip,
            "attempt": lambda: rng.choice((0, 1, 2, 3, rng.randrange(64), INTEGER_MAX)),
            "block": self.block,
            "blocks": lambda: tuple(self.block() for _ in range(rng.randrange(4))),
            "cid": self.cid,
            "cids": lambda: tuple(self.cid() for _ in range(rng.randrange(8))),
            "contact": self.contact,
            "contacts": self.contacts,
            "count": lambda: rng.choice((0, 1, 256, COUNT_MAX)),
            "size": lambda: rng.choice((0, 1, 65_536, COUNT_MAX)),
            "delay_us": lambda: rng.choice((0, 1, 1_000_000, INTEGER_MAX)),
            "digest": lambda: rng.randbytes(16),
            "hashes": lambda: rng.randbytes(16 * rng.choice((1, 2, 256))),
            "epoch": self.epoch,
            "event": lambda: rng.choice((None, self.cid())),
            "first": self.key,
            "fresh": self.flip,
            "full": self.flip,
            "handed_down": self.flip,
            "if_closest": self.flip,
            "hops": lambda: rng.choice((0, 1, 2, HOPS_MAX)),
            "key": self.key,
            "last": self.key,
            "listings": lambda: tuple(self.listing() for _ in range(rng.choice((0, 1, 3, 9)))),
            "marks": lambda: tuple(self.mark() for _ in range(rng.choice((0, 1, 3, 20)))),
            "members": self.contacts,
            "more": self.flip,
            "path": lambda: tuple(self.peer() for _ in range(rng.choice((0, 1, 2, 5, 256)))),
            "pointers": self.pointers,
            "private_root": self.flip,
            "publisher": self.peer,
            "ranges": lambda: tuple(self.key_range() for _ in range(rng.randrange(4))),
            "code": lambda: "x" * rng.choice((0, 10, 32)),
            "message": lambda: "x" * rng.choice((0, 10, 1024)),
            "replicas": lambda: rng.choice((0, 3, COUNT_MAX)),
            "regular": self.flip,
            "replicated": self.flip,
            "request": self.request_number,
            "request_id": lambda: rng.randbytes(32),
            "role": lambda: rng.choice(list(Role)),
            "root": self.peer,
            "settled": self.number,
            "topic": lambda: rng.choice((self.topic().topic, self.cid())),
            "at": self.node,
            "attribute": self.attribute,
            "about": self.node,
            "asker": lambda: rng.choice((None, self.peer())),
            "below": self.node,
            "have": lambda: rng.randbytes(8 * rng.randrange(4)),
            "home": lambda: rng.choice((None, self.peer())),
            "is_split": self.flip,
            "leaf": self.node,
            "log": lambda: rng.choice((0, 1, INTEGER_MAX)),
            "newest": self.small,
            "number": self.number,
            "order": lambda: rng.randbytes(8 * rng.randrange(4)),
            "piece": lambda: rng.choice((0, 1, COUNT_MAX)),
            "place": self.small,
            "purpose": lambda: rng.choice(list(Purpose)),
            "shape": lambda: rng.choice((b"", b"\x01", b"\x0c", rng.randbytes(rng.randrange(64)))),
            "cut": lambda: rng.randrange(len(CUT_OFFS)),
            "reach": lambda: rng.randrange(len(CUT_OFFS)),
            "widths": lambda: rng.randbytes(rng.randrange(len(CUT_OFFS) + 1)),
            "starts": tuple,
            "parts": lambda: rng.choice((0, 1, COUNTED_MAX)),
            "sid": self.small,
            "stage": lambda: rng.choice(list(Stage)),
            "targets": lambda: tuple(
                Target(self.attribute(), self.node(), self.node(), rng.choice(list(Stage)))
                for _ in range(rng.choice((0, 1, 4, 40)))
            ),
            "token": self.small,
            "where": lambda: tuple(self.where() for _ in range(rng.randrange(3))),
            "agreed": self.flip,
            "snapshot": lambda: self.snapshot() if rng.random() < 0.2 else None,
            "base": self.small,
            "before_index": self.small,
            "before_term": self.small,
            "certificate": lambda: rng.choice((b"", rng.randbytes(130), rng.randbytes(195))),
            "certificates": lambda: (),
            "certify": self.small,
            "committed": self.small,
            "entries": lambda: tuple(self.entry() for _ in range(rng.randrange(4))),
            "granted": self.flip,
            "held": self.small,
            "last_index": self.small,
            "last_term": self.small,
            "leader": lambda: rng.choice((None, self.peer())),
            "matched": self.small,
            "signatures": lambda: tuple(
                (self.small(), rng.randbytes(64)) for _ in range(rng.randrange(3))
            ),
            "store": self.store,
            "term": self.small,
            "pre_vote": self.flip,
            "version": self.version_named,
        }

    # What is said about subscriptions by content.

    def attribute(self) -> str:
        return self.rng.choice(("price", "number", "nothing", "p" * 200))

    def node(self) -> int:
        """Nodes of a tree: mostly near its root."""
        return self.rng.choice((1, 2, 3, 5, 12, self.rng.randrange(1, 2**12), 2**41 - 1))

    def where(self) -> str:
        return self.rng.choice(
            ("price < 10", "price < 10 and number > 50", "", "(" * 40, "x" * 999)
        )

    def held(self) -> Held:
        rng = self.rng
        record = rng.randbytes(40)
        if rng.random() < 0.9:
            topic = self.topic()
            record = sign_subscription(
                self.who(),
                topic=topic.topic,
                version=rng.choice((topic.topic, topic.cid)),
                sid=rng.randrange(4),
                number=rng.choice((0, 1, INTEGER_MAX)),
                lease_s=rng.choice((1, 86_400)),
                where=self.where(),
            ).block
        low, high = sorted((rng.random(), rng.random()))
        return Held(record, rng.randrange(4), low, high, self.flip(), rng.choice((0, 1, 86_400)))

    # What sequencers say.

    def small(self) -> int:
        """Numbers of terms, indices and positions: mostly those that there are."""
        return self.rng.choice((0, 0, 1, 1, 2, 3, self.rng.randrange(9), INTEGER_MAX))

    def store(self) -> bytes:
        return self.rng.choice((bytes(8), b"a store.", self.rng.randbytes(8)))

    def entry(self) -> Entry:
        rng = self.rng
        kind = rng.choice(list(EntryKind))
        bodies: dict[EntryKind, Callable[[], bytes]] = {
            EntryKind.EVENT: self.event,
            EntryKind.NOTHING: lambda: b"",
            EntryKind.MEMBERS: lambda: pack_config(self.config()),
        }
        body = bodies[kind]() if rng.random() < 0.8 else rng.randbytes(rng.randrange(99))
        return Entry(self.small(), self.small(), kind, body)

    def founders(self) -> tuple[Member, ...]:
        sequencers = self.topic().sequencers if self.flip() else (self.peer(),)
        return tuple(Member(peer, self.store()) for peer in sequencers)

    def version_named(self) -> Cid | None:
        return self.rng.choice((None, self.topic().cid, self.cid()))

    def config(self) -> Config:
        outgoing = self.founders() if self.flip() else ()
        return Config(self.founders(), outgoing, self.version_named())

    def snapshot(self) -> Snapshot:
        cid = self.rng.choice((None, self.cid()))
        return Snapshot(
            self.small(),
            self.small(),
            self.small(),
            cid,
            Config(self.founders()[:7], version=self.version_named()),
        )

    # Small things.

    def flip(self) -> bool:
        return self.rng.random() < 0.5

    def key(self) -> int:
        return self.rng.choice((0, self.rng.getrandbits(256), 2**256 - 1))

    def epoch(self) -> int:
        return self.rng.choice(EPOCHS)

    def number(self) -> int:
        return self.rng.choice(NUMBERS)

    def topic(self) -> TopicDescriptor:
        """A topic, or a newer version of one that a hostile author made."""
        if self.newer and self.rng.random() < 0.2:
            return self.rng.choice(self.newer)
        return self.rng.choice(self.topics)

    def who(self) -> Identity:
        return self.rng.choice(HOSTILES)

    def peer(self) -> PeerId:
        chance = self.rng.random()
        if chance < 0.4:
            return self.who().peer_id
        if chance < 0.5:
            return self.victim
        if chance < 0.6:
            return self.topic().author
        stranger = self.rng.randrange(STRANGERS)
        return PeerId(PEER_ID_PREFIX + stranger.to_bytes(32, "big"))

    def cid(self) -> Cid:
        chance = self.rng.random()
        if chance < 0.3 and self.events:
            return self.rng.choice(self.events).cid
        if chance < 0.6:
            return self.topic().cid
        return Cid(CID_PREFIX + self.rng.randrange(4096).to_bytes(32, "big"))

    def contact(self) -> Contact:
        addresses = ("/ip4/127.0.0.1/tcp/1",) if self.rng.random() < 0.2 else ()
        return Contact(self.peer(), addresses)

    def contacts(self) -> tuple[Contact, ...]:
        return tuple(self.contact() for _ in range(self.rng.choice((0, 1, 3, 20, 64))))

    def mark(self) -> MarkState:
        low, high = sorted((self.rng.choice((0, *NUMBERS)), self.rng.choice((0, *NUMBERS))))
        room = min(high + 1000, INTEGER_MAX)
        beyond = sorted({self.rng.randint(high + 1, room) for _ in range(3)}) if room > high else []
        cid = self.cid() if self.flip() else None
        retired = self.rng.choice((0, low, high))
        return MarkState(self.peer(), self.epoch(), low, high, cid, tuple(beyond), retired)

    def key_range(self) -> tuple[int, int, int, int]:
        first, last = sorted((self.key(), self.key()))
        return (first, last, self.rng.choice((0, 5, COUNT_MAX)), self.key())

    def request_number(self) -> int:
        if self.requests and self.flip():
            return self.rng.choice(self.requests)
        return self.rng.choice((0, 1, self.rng.randrange(200_000), INTEGER_MAX))

    # Descriptors: well signed, and wrong in some way.

    def event(self) -> bytes:
        """An event of a hostile identity."""
        rng = self.rng
        topic, who = self.topic(), self.who()
        parents = {self.cid() for _ in range(rng.choice((0, 0, 1, 1, 2, 64)))}
        version = topic.cid if rng.random() < 0.7 else self.cid()
        sequence = Sequence(self.epoch(), self.number())
        position = rng.choice((None, Position(0, self.number()), Position(self.number(), 1)))
        if topic.delivery_order is DeliveryOrder.TOTAL and rng.random() < 0.7:
            position = Position(0, sequence.number)
        payload = rng.choice((b"", b"x", rng.randbytes(100), topic.block))
        try:
            if rng.random() < 0.3:
                signed = sign_request(
                    self.who(),
                    topic=topic.topic,
                    payload=payload,
                    created=CREATED_US,
                    nonce=rng.choice((bytes(16), rng.randbytes(16))),
                    sequence=Sequence(self.epoch(), self.number()),
                    expires=rng.choice((None, 0, CREATED_US)),
                )
                made = publish_request(
                    who,
                    signed,
                    version=version,
                    sequence=sequence,
                    parents=sorted(parents),
                    position=position,
                )
            else:
                made = publish_own(
                    who,
                    topic=topic.topic,
                    version=version,
                    payload=payload,
                    created=CREATED_US,
                    nonce=rng.choice((bytes(16), rng.randbytes(16))),
                    sequence=sequence,
                    parents=sorted(parents),
                    position=position,
                    attributes={"a": rng.choice((1, 1.5, "x", True, b"y"))} if self.flip() else {},
                )
        except LocalError:
            return b"\xa0"
        return self._remember(made)

    def next_event(self) -> bytes:
        """The event that is next in its stream, with something hostile inside it."""
        rng = self.rng
        topic, who = self.topic(), self.who()
        if topic.allowed_publishers is not None and rng.random() < 0.9:
            who = HOSTILES[0]
        last, last_cid = self._next.get((topic.topic, who.peer_id), (0, None))
        total = topic.delivery_order is DeliveryOrder.TOTAL
        made = publish_own(
            who,
            topic=topic.topic,
            version=topic.cid,
            payload=self.announcement(topic) if topic.is_meta else b"next",
            created=CREATED_US,
            nonce=rng.randbytes(16),
            sequence=Sequence(NEXT_EPOCH, last + 1),
            position=Position(0, last + 1) if total else None,
            **self.links(topic, who, last, last_cid),
        )
        self._next[topic.topic, who.peer_id] = (last + 1, made.cid)
        return self._remember(made)

    def links(
        self, topic: TopicDescriptor, who: Identity, last: int, last_cid: Cid | None
    ) -> dict[str, Any]:
        """What an event follows: in causal order, what exists or not, by marks true or not."""
        if topic.delivery_order is not DeliveryOrder.CAUSAL:
            total = topic.delivery_order is DeliveryOrder.TOTAL
            return {"parents": () if last_cid is None or not total else (last_cid,)}
        marks: dict[Cid, Mark] = {}
        if last_cid is not None and self.flip():
            marks[last_cid] = Mark(who.peer_id, NEXT_EPOCH, last)
        for _ in range(self.rng.choice((0, 0, 1, 3, 40))):
            known = self.rng.choice(self.events) if self.events and self.flip() else None
            if known is not None and self.flip():
                mark = Mark(known.publisher, *known.sequence)
            else:
                mark = Mark(self.peer(), self.epoch(), self.number())
            if mark[:2] not in (each[:2] for each in marks.values()):
                marks[self.cid() if known is None else known.cid] = mark
        own = (who.peer_id, NEXT_EPOCH)
        heads = sorted(
            (cid, mark) for cid, mark in marks.items() if mark[:2] != own or mark.number <= last
        )
        return {"parents": [cid for cid, _ in heads], "marks": [mark for _, mark in heads]}

    def _remember(self, made: EventDescriptor) -> bytes:
        self.events.append(made)
        del self.events[:-64]
        return made.block

    def request(self) -> bytes:
        rng = self.rng
        after = sorted({self.cid() for _ in range(rng.randrange(3))})
        marks = [Mark(self.peer(), epoch, self.number()) for epoch, _ in enumerate(after)]
        return sign_request(
            self.who(),
            topic=self.topic().topic if rng.random() < 0.8 else self.cid(),
            payload=rng.randbytes(rng.choice((0, 10, 2000))),
            created=CREATED_US,
            nonce=rng.choice((bytes(16), rng.randbytes(16))),
            sequence=Sequence(self.epoch(), self.number()),
            expires=rng.choice((None, 0, 2 * CREATED_US)),
            after=after,
            marks=marks if self.flip() else (),
        ).block

    def announcement(self, meta: TopicDescriptor) -> bytes:
        """What an author says in its meta topic: mostly a version of the topic it belongs to."""
        mains = [t for t in (*self.topics, *self.newer) if t.subtopics.get(META) == meta.cid]
        return self.version(self.rng.choice(mains) if mains and self.rng.random() < 0.8 else None)

    def version(self, of: TopicDescriptor | None = None) -> bytes:
        """A topic, or the next version of one, by someone who may or may not."""
        rng = self.rng
        previous = self.topic() if of is None else of
        authors = [who for who in HOSTILES if who.peer_id == previous.author]
        who = authors[0] if authors and rng.random() < 0.7 else self.who()
        peers = tuple(hostile.peer_id for hostile in HOSTILES[: rng.randrange(1, 4)])
        order = rng.choice((DeliveryOrder.NONE, DeliveryOrder.PER_PUBLISHER, DeliveryOrder.TOTAL))
        if rng.random() < 0.7:
            # What never changes: else no version would follow another.
            order = previous.delivery_order
        named = rng.choice((None, (), peers)) if order is not order.TOTAL else peers
        settings = TopicSettings(
            open=named is None,
            publishers=named or (),
            linking=rng.choice(list(EventLinking)),
            order=order,
            sequencers=peers if order is DeliveryOrder.TOTAL else (),
            retention=rng.choice((Retention(), Retention(count=0), Retention(age_s=1))),
            payload_bytes_max=rng.choice((0, 10, 1 << 20)),
            root=previous.root if rng.random() < 0.8 else self.victim,
        )
        marks = {(self.peer(), self.epoch()): self.number() for _ in range(rng.randrange(3))}
        frontier = [Mark(*place, number) for place, number in marks.items()]
        try:
            if of is None and rng.random() < 0.2:
                made = create_meta_topic(who, "m", created=CREATED_US, nonce=bytes(16))
            elif of is None and rng.random() < 0.3:
                links = {"meta": self.cid(), "sub": self.cid()} if self.flip() else {}
                made = create_topic(
                    who, "t", settings, created=CREATED_US, meta=None, subtopics=links
                )
            else:
                made = next_version(
                    who,
                    previous,
                    settings,
                    created=CREATED_US,
                    valid_until=frontier,
                    flushed=frontier if rng.random() < 0.1 else (),
                )
                self.newer = [*self.newer[-15:], made]
        except LocalError:
            return self.unchecked_version(previous, who, order)
        return made.block

    @staticmethod
    def unchecked_version(previous: TopicDescriptor, who: Identity, order: DeliveryOrder) -> bytes:
        """The next version as one makes it who does not check whether it may follow."""
        fields = decode_cbor(previous.block, size_max=TOPIC_BYTES_MAX)
        assert isinstance(fields, dict)
        fields = {key: value for key, value in fields.items() if key not in ("s", "order")}
        if order is not DeliveryOrder.NONE:
            fields["order"] = order.value
        fields |= {"number": previous.number + 1, "first": previous.topic, "parent": previous.cid}
        if who.peer_id != previous.author:
            fields["signer"] = who.peer_id
        return encode_cbor({**fields, "s": opaque(who.sign("topic", encode_cbor(fields)))})

    def pointer(self) -> bytes:
        name = self.rng.choice(("news", "t", "m"))
        return sign_pointer(
            self.who(),
            name,
            self.rng.choice((0, 1, INTEGER_MAX)),
            self.cid(),
            topic=self.cid(),
            moves=self.rng.choice((0, 0, 1, INTEGER_MAX)),
        ).block

    def pointers(self) -> tuple[bytes, ...]:
        """Pointers of one name, or of two; of one signer, or of two."""
        return tuple(self.pointer() for _ in range(self.rng.choice((1, 1, 2))))

    def listing(self) -> bytes:
        """A listing of a topic that need not be the signer's; or something else."""
        rng = self.rng
        if rng.random() < 0.2:
            return self.block()[:LISTING_BYTES_MAX]
        who = self.who()
        settings = TopicSettings(
            description=rng.choice(("", "of a hostile", "w " * 200)),
            tags=rng.choice(((), ("weather",), tuple("abcdefgh"))),
        )
        created = CREATED_US + rng.randrange(1000)
        topic = create_topic(who, "t", settings, created=created, meta=None)
        expires_us = CREATED_US + rng.choice((-1, 3600, 86_400, 3 * 86_400, 10**9)) * 10**6
        made = sign_listing(who, topic, expires_us)
        return made.block if rng.random() < 0.9 else self.mutated(made.block)[:LISTING_BYTES_MAX]

    def block(self) -> bytes:
        chance = self.rng.random()
        if chance < 0.6:
            return self.event()
        if chance < 0.75:
            return self.version()
        if chance < 0.85:
            return self.request()
        if chance < 0.9:
            return self.pointer()
        return self.mutated(self.event())

    # Messages.

    def message(self) -> Message:
        """A message of any kind that the wire lets pass."""
        kind: Any = messages.EventMessage if self.rng.random() < 0.3 else self.rng.choice(KINDS)
        fields: dict[str, Any] = {name: self._makers[name]() for name in kind.__struct_fields__}
        if kind is messages.FetchRange:
            fields["first"], fields["last"] = sorted((self.number(), self.number()))
        elif kind is messages.CompareKeys:
            fields["digest"] = self.key()
        elif kind is messages.RequestToPublish:
            fields["block"] = self.request() if self.rng.random() < 0.9 else self.block()
        elif kind is messages.EventMessage:
            fields["block"] = self.rng.choice((self.next_event, self.event, self.block))()
        elif kind is messages.Range and self.flip():
            fields["certificates"] = tuple(
                self._makers["certificate"]() for _ in range(len(fields["blocks"]))
            )
        elif kind is PlaceSubscription:
            fields["held"] = self.held()
        elif kind is messages.CompareFrontiers:
            fields["parts"] = self._compared()
        elif kind is messages.FetchStart:
            fields["root"] = self.rng.choice((b"", self.rng.randbytes(16)))
            fields["parts"] = tuple(each.steps for each in self._compared())[:16] or (b"",)
        elif kind is messages.StartParts:
            fields |= self._start()
        elif kind is messages.FrontierPage:
            fields["parts"] = tuple(each.steps for each in self._compared())
        elif kind is PlaceState:
            fields["held"] = tuple(self.held() for _ in range(self.rng.choice((0, 1, 5))))
        elif kind is CompareContent:
            fields["base"] = self.small()
        elif kind is ProbeEvent:
            fields["block"] = self.event()
        elif kind is TreeHint and self.flip():
            fields["at"] = 0
        elif kind is messages.BlockFound and self.flip():
            fields["block"] = None
        elif kind is messages.PointerFound and self.flip():
            fields["pointers"] = ()
        elif kind is messages.StoreListings and self.flip():
            fields["key"] = term_key(self.rng.choice(("weather", "hostile", "a", "t")))
        elif kind is messages.ReachChanged:
            fields["reach"] = self.rng.choice(list(Reach))
        elif kind is messages.DialAnswer:
            fields["code"] = self.rng.choice(list(messages.DialCode))
        elif kind is messages.HandOver and self.flip():
            fields["contact"] = None
        frame = codec.encode(kind(**fields))
        self.frames.append(frame)
        del self.frames[:-256]
        return codec.decode(frame)

    def answers(self, asked: Message) -> list[Message]:
        """What a hostile peer says to a question: an answer of the right kind and number, often."""
        if self.rng.random() < 0.3:
            return []
        made: Message
        match asked:
            case messages.FindPeers(request, _):
                made = messages.Peers(request, self.contacts())
            case messages.FindBlock(request, _):
                block = self.block() if self.flip() else None
                made = messages.BlockFound(request, block, self.contacts())
            case messages.FindPointer(request, _):
                pointers = self.pointers() if self.flip() else ()
                made = messages.PointerFound(request, pointers, self.contacts())
            case messages.FindListings(request, _):
                listings = tuple(self.listing() for _ in range(self.rng.choice((0, 3, 20))))
                made = messages.ListingsFound(request, listings, self.flip(), self.contacts())
            case messages.StoreListings(request, _, listings):
                made = messages.Stored(request, tuple(map(cid_of, listings)))
            case messages.StoreBlocks(request, blocks):
                made = messages.Stored(request, (*map(cid_of, blocks), self.cid()))
            case messages.StorePointer(request, pointers):
                made = messages.Stored(request, tuple(map(cid_of, pointers)))
            case messages.WantBlocks(request, _):
                made = messages.StoreBlocks(request, (self.block(), self.event()))
            case messages.CompareKeys(request, first, last):
                cids = tuple(self.cid() for _ in range(5))
                made = messages.KeysDiffer(request, first, last, cids, ())
            case messages.FetchRange(request, topic):
                blocks = tuple(self.event() for _ in range(self.rng.randrange(4)))
                made = messages.Range(request, topic, blocks, self.flip())
            case AskShape(topic, attribute, at, token):
                made = TreeShape(topic, attribute, at, self.rng.randbytes(9), token)
            case messages.Meet(topic):
                made = messages.Members(topic, self.contacts())
            case messages.DialMe(request):
                code = self.rng.choice(list(messages.DialCode))
                made = messages.DialAnswer(request, code, "/a")
            case messages.Join(topic, attempt):
                return self._take_in(topic, attempt)
            case messages.RequestToPublish(block):
                signed = decode_request(block)
                event = self.cid() if self.flip() else None
                topic = signed.request.topic
                made = messages.RequestAnswered(topic, signed.request_id, event, 3, "no")
            case _:
                return []
        return [codec.decode(codec.encode(made))]

    def _take_in(self, topic: Cid, attempt: int) -> list[Message]:
        path = tuple(self.peer() for _ in range(self.rng.choice((0, 1, 2, 256))))
        if self.flip():
            return [messages.JoinReferred(topic, attempt, self.contact(), self.flip())]
        marks = tuple(self.mark() for _ in range(self.rng.choice((0, 1, 3))))
        return [
            messages.JoinAccepted(topic, attempt, path, self.contacts(), self.rng.randbytes(16)),
            messages.StartParts(topic, **self._start()),
            messages.FrontierPage(topic, marks, self.flip()),
            messages.CompareFrontiers(topic, self._compared()),
        ]

    def _start(self) -> dict[str, Any]:
        """Parts of a start that is made up, or whose hashes are right."""
        rng = self.rng
        marks = tuple(self.mark() for _ in range(rng.choice((0, 1, 9))))
        tree = Frontier(marks).snapshot()
        root = tree.digest() if self.flip() else rng.randbytes(16)
        content = tree.content([b""], rng.choice((1, 256)), 64)
        rows = tuple(messages.FrontierPart(*row) for row in content.rows)
        starts = (messages.PartHash(rng.choice((b"", b"\x01")), root),)
        parts = self._compared() if self.flip() else rows
        return {"root": root, "starts": starts, "parts": parts, "marks": tuple(content.marks)}

    def _compared(self) -> tuple[messages.FrontierPart, ...]:
        rng = self.rng
        return tuple(
            messages.FrontierPart(rng.randbytes(rng.choice((0, 1, 32))), rng.randbytes(256))
            for _ in range(rng.choice((0, 1, 64)))
        )

    # Bytes.

    def mutated(self, data: bytes) -> bytes:
        """Bytes that were something, once."""
        rng = self.rng
        raw = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(len(raw) + 1)
            match rng.randrange(7):
                case 0 if raw:
                    raw[at % len(raw)] ^= 1 << rng.randrange(8)
                case 1 if raw:
                    raw[at % len(raw)] = rng.choice((0, 0x7F, 0x80, 0xFF, rng.randrange(256)))
                case 2:
                    del raw[at:]
                case 3:
                    del raw[at : at + rng.choice((1, 2, 16))]
                case 4:
                    raw[at:at] = rng.randbytes(rng.choice((1, 2, 16)))
                case 5:
                    raw[at:at] = raw[: rng.randrange(64)]
                case _:
                    raw[at:at] = rng.choice((b"\x9f", b"\xbf", b"\xdb" * 9, b"\x81" * 50, b"\xf9"))
        return bytes(raw) or b"\0"
