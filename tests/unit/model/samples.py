"""Identities, descriptors and strategies that the tests of this room share."""

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st

from pulsarcast.model.events import (
    Attribute,
    EventDescriptor,
    Position,
    Sequence,
    SignedRequest,
    publish_own,
    publish_request,
    sign_request,
)
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.model.topics import (
    AttributeRule,
    DeliveryOrder,
    Dissemination,
    EventLinking,
    Mark,
    Retention,
    TopicDescriptor,
    TopicSettings,
    create_meta_topic,
    create_topic,
)
from tests.support.people import unordered

ALICE = Identity.from_seed(b"alice".ljust(32, b"."))
BOB = Identity.from_seed(b"bob".ljust(32, b"."))
CAROL = Identity.from_seed(b"carol".ljust(32, b"."))
CREATED = 1_577_836_800_000_000  # 2020-01-01T00:00:00Z
NONCE = bytes(range(16))
TOPIC = cid_of(b"some topic")
FIRST = Sequence(7, 1)
FOURTH = Sequence(9, 4)


def own_event(
    topic: Cid = TOPIC,
    *,
    identity: Identity = ALICE,
    version: Cid | None = None,
    payload: bytes = b"hello",
    name: str = "",
    attributes: dict[str, Attribute] | None = None,
    sequence: Sequence = FIRST,
    parents: tuple[Cid, ...] = (),
    position: Position | None = None,
    extensions: dict[str, object] | None = None,
    marks: tuple[Mark, ...] = (),
    is_merge: bool = False,
) -> EventDescriptor:
    """An event whose author publishes it."""
    return publish_own(
        identity,
        topic=topic,
        version=topic if version is None else version,
        payload=payload,
        name=name,
        attributes=attributes or {},
        created=CREATED,
        nonce=NONCE,
        sequence=sequence,
        parents=parents,
        position=position,
        extensions=extensions or {},
        marks=marks,
        is_merge=is_merge,
    )


def request(
    topic: Cid = TOPIC, *, identity: Identity = BOB, sequence: Sequence = FOURTH
) -> SignedRequest:
    """What Bob asks to have published."""
    return sign_request(
        identity, topic=topic, payload=b"please", created=CREATED, nonce=NONCE, sequence=sequence
    )


def requested_event(topic: Cid = TOPIC, *, version: Cid | None = None) -> EventDescriptor:
    """What Bob asked for and Alice published."""
    return publish_request(
        ALICE,
        request(topic),
        version=topic if version is None else version,
        sequence=Sequence(7, 2),
        parents=(cid_of(b"the event before"),),
    )


def topic(settings: TopicSettings | None = None, *, name: str = "news") -> TopicDescriptor:
    """Alice's topic, with its meta topic."""
    meta = create_meta_topic(ALICE, name, created=CREATED, nonce=NONCE)
    chosen = unordered() if settings is None else settings
    return create_topic(ALICE, name, chosen, created=CREATED, meta=meta.cid)


# Strategies

PEOPLE = (ALICE, BOB, CAROL, *(Identity.from_seed(bytes([n]) * 32) for n in range(5)))
identities = st.sampled_from(PEOPLE)
peers = st.sampled_from([identity.peer_id for identity in PEOPLE])
cids = st.binary(max_size=1).map(cid_of)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
counts = st.integers(1, (1 << 63) - 1)
times = st.integers(0, 253_402_300_799_999_999)
nonces = st.binary(min_size=16, max_size=16)
floats = st.floats(allow_nan=False, allow_infinity=False)
names = st.text(min_size=1, max_size=64)  # 64 characters are at most 256 bytes
# Byte strings that look like content ids are what the encoding is most easily broken by.
tricky_bytes = st.binary(max_size=80) | cids | st.binary(max_size=80).map(lambda b: b"\x01" + b)
attribute_values = int64 | floats | st.text(max_size=20) | st.booleans() | tricky_bytes
attributes = st.dictionaries(names, attribute_values, max_size=5)
sequences = st.builds(Sequence, st.integers(0, (1 << 63) - 1), counts)
positions = st.builds(Position, st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 63) - 1))
links = st.lists(cids, max_size=4, unique=True).map(tuple)
values: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | int64 | floats | st.text(max_size=8) | tricky_bytes,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("/"), inner)
    ),
    max_leaves=8,
)
extensions = st.dictionaries(st.text(max_size=8) | st.just("/"), values, max_size=3)


@st.composite
def own_events(draw: st.DrawFn) -> EventDescriptor:
    """Any event whose author publishes it."""
    topic = draw(cids)
    return publish_own(
        draw(identities),
        topic=topic,
        version=draw(cids | st.just(topic)),
        payload=draw(tricky_bytes),
        name=draw(names | st.just("")),
        attributes=draw(attributes),
        created=draw(times),
        nonce=draw(nonces),
        sequence=draw(sequences),
        parents=draw(links),
        position=draw(st.none() | positions),
        after=draw(links),
        expires=draw(st.none() | times),
        extensions=draw(extensions),
    )


@st.composite
def signed_requests(draw: st.DrawFn) -> SignedRequest:
    """Any request."""
    return sign_request(
        draw(identities),
        topic=draw(cids),
        payload=draw(tricky_bytes),
        name=draw(names | st.just("")),
        attributes=draw(attributes),
        created=draw(times),
        nonce=draw(nonces),
        sequence=draw(sequences),
        expires=draw(st.none() | times),
        after=draw(links),
    )


@st.composite
def requested_events(draw: st.DrawFn) -> EventDescriptor:
    """Any event that someone was asked to publish; now and then the author does it after all."""
    author = draw(identities)
    signed = draw(signed_requests())
    return publish_request(
        author,
        signed,
        version=draw(cids | st.just(signed.request.topic)),
        sequence=draw(sequences | st.just(signed.request.sequence)),
        parents=draw(links),
        position=draw(st.none() | positions),
        extensions=draw(extensions),
    )


@st.composite
def barriers(
    draw: st.DrawFn, own: Mark | None = None, least: int = 0
) -> tuple[tuple[Cid, ...], tuple[Mark, ...]]:
    """Links in order, each with its mark; none is the own place or behind it."""
    linked = sorted(draw(st.lists(cids, min_size=least, max_size=4, unique=True)))
    numberings = st.tuples(peers, st.integers(0, (1 << 63) - 1))
    if own is not None:
        numberings = numberings | st.just(own[:2]) | st.tuples(st.just(own.publisher), counts)
    known = draw(
        st.lists(numberings, min_size=len(linked), max_size=len(linked), unique=True).filter(
            lambda some: own is None or own.number > 1 or own[:2] not in some
        )
    )
    marks = tuple(
        Mark(*each, draw(st.integers(1, own.number - 1)))
        if own is not None and each == own[:2]
        else Mark(*each, draw(counts))
        for each in known
    )
    return tuple(linked), marks


@st.composite
def causal_events(draw: st.DrawFn) -> EventDescriptor:
    """Any event of causal order; some are merges."""
    identity, topic, sequence = draw(identities), draw(cids), draw(sequences)
    is_merge = draw(st.booleans())
    own = Mark(identity.peer_id, *sequence)
    linked, known = draw(barriers(own, least=int(is_merge)))
    return publish_own(
        identity,
        topic=topic,
        version=draw(cids | st.just(topic)),
        payload=b"" if is_merge else draw(tricky_bytes),
        created=draw(times),
        nonce=draw(nonces),
        sequence=sequence,
        parents=linked,
        marks=known,
        is_merge=is_merge,
    )


@st.composite
def causal_requests(draw: st.DrawFn) -> SignedRequest:
    """Any request of causal order."""
    after, known = draw(barriers())
    return sign_request(
        draw(identities),
        topic=draw(cids),
        payload=draw(tricky_bytes),
        created=draw(times),
        nonce=draw(nonces),
        sequence=draw(sequences),
        after=after,
        marks=known,
    )


@st.composite
def causal_answers(draw: st.DrawFn) -> EventDescriptor:
    """Any event of causal order that someone was asked to publish."""
    identity, signed, sequence = draw(identities), draw(causal_requests()), draw(sequences)
    own = Mark(identity.peer_id, *sequence)
    # An event must not follow itself, whoever says so.
    assume(not any(seen[:2] == own[:2] for seen in signed.request.marks))
    linked, known = draw(barriers(own))
    return publish_request(
        identity,
        signed,
        version=signed.request.topic,
        sequence=sequence,
        parents=linked,
        marks=known,
    )


events = own_events() | requested_events() | causal_events() | causal_answers()


def _peer_lists(least: int = 0) -> st.SearchStrategy[tuple[PeerId, ...]]:
    return st.lists(peers, min_size=least, max_size=3, unique=True).map(tuple)


@st.composite
def rules(draw: st.DrawFn) -> AttributeRule:
    """Any attribute rule."""
    kind = draw(st.sampled_from(["int", "float", "str", "bool", "timestamp"]))
    if kind == "bool":
        return AttributeRule(draw(names), kind)
    if kind == "str":
        first, last = sorted((draw(names), draw(names)))
        return AttributeRule(draw(names), kind, draw(st.sampled_from([None, first])), last)
    bounds = sorted((draw(floats | int64), draw(floats | int64)))
    if kind != "float":
        bounds = sorted((draw(int64), draw(int64)))
    low, high = bounds
    return AttributeRule(draw(names), kind, draw(st.sampled_from([None, low])), high)


@st.composite
def topic_settings(draw: st.DrawFn, before: TopicDescriptor | None = None) -> TopicSettings:
    """Any settings that do not contradict each other, nor the version before."""
    if before is None:
        order = draw(st.sampled_from(DeliveryOrder))
        dissemination = draw(st.sampled_from(Dissemination))
        root = draw(st.none() | peers)
    else:
        order, dissemination, root = before.delivery_order, before.dissemination, before.root
    total = order is DeliveryOrder.TOTAL
    # Where there are several, they cannot be changed.
    sequencers = draw(_peer_lists()) if before is None or not total else before.sequencers
    takes_requests = draw(st.booleans())
    bounds = st.none() | st.integers(0, (1 << 63) - 1)
    publishers = () if total else draw(_peer_lists())
    return TopicSettings(
        open=not total and not publishers and draw(st.booleans()),
        publishers=publishers,
        request_to_publish=takes_requests,
        requesters=draw(st.none() | _peer_lists()) if takes_requests else None,
        linking=EventLinking.LAST_SEEN
        if order is DeliveryOrder.CAUSAL
        else draw(st.sampled_from(EventLinking)),
        order=order,
        dissemination=dissemination,
        root=root,
        sequencers=sequencers,
        recovery_keys=draw(_peer_lists()) if before is None else before.recovery_keys[:1],
        retention=draw(st.builds(Retention, bounds, bounds, bounds)),
        attributes=draw(st.lists(rules(), max_size=3, unique_by=lambda rule: rule.name).map(tuple)),
        payload_bytes_max=draw(st.integers(0, 1 << 20)),
        extensions=draw(st.sampled_from([{}, {"a": [1, {"/": b"\x01"}]}])),
    )


marks = st.lists(
    st.builds(Mark, peers, st.integers(0, (1 << 63) - 1), counts),
    max_size=3,
    unique_by=lambda mark: mark[:2],
)
