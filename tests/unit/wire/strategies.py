"""Messages of every kind, within the bounds of the wire."""

from typing import Any, get_args

from hypothesis import strategies as st

from pulsarcast.model.cbor import encode
from pulsarcast.model.ids import CID_PREFIX, PEER_ID_PREFIX, Cid, PeerId
from pulsarcast.protocol import messages
from pulsarcast.protocol.content.messages import (
    CompareContent,
    Held,
    PlaceState,
    PlaceSubscription,
    ProbeEvent,
    Purpose,
    Stage,
    Target,
    TreeHint,
)
from pulsarcast.protocol.messages import Contact, Message, Role
from pulsarcast.protocol.sequencing.configs import Config, Member
from pulsarcast.protocol.sequencing.log import Base, Entry, EntryKind
from pulsarcast.protocol.store import MarkState

KINDS: tuple[type, ...] = get_args(Message)

_hash = st.binary(min_size=32, max_size=32)
peers = _hash.map(lambda raw: PeerId(PEER_ID_PREFIX + raw))
cids = _hash.map(lambda raw: Cid(CID_PREFIX + raw))
keys = st.integers(0, 2**256 - 1)
integers = st.integers(0, 2**63 - 1) | st.sampled_from([0, 1, 127, 128, 16383, 16384, 2**63 - 1])
numbers = st.integers(1, 2**63 - 1)
counts = st.integers(0, 2**32 - 1)
blocks = st.binary(min_size=1, max_size=300)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=64)
contacts = st.builds(Contact, peers, st.lists(texts, max_size=3).map(tuple))
digests = st.binary(min_size=16, max_size=32)


def tuples(of: st.SearchStrategy[Any], size_max: int = 4) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(of, max_size=size_max).map(tuple)


@st.composite
def marks(draw: st.DrawFn) -> MarkState:
    floor, high = sorted((draw(integers), draw(integers)))
    beyond = draw(st.sets(st.integers(high + 1, 2**63 - 1), max_size=4)) if high < 2**62 else ()
    return MarkState(
        draw(peers),
        draw(integers),
        floor,
        high,
        draw(st.none() | cids),
        tuple(sorted(beyond)),
        draw(st.integers(0, floor)),
    )


_stores = st.binary(min_size=8, max_size=8)
_signatures = st.binary(min_size=64, max_size=64)
_certificates = st.binary(max_size=512)
_entries = st.builds(Entry, integers, integers, st.sampled_from(EntryKind), st.binary(max_size=99))
_bases = st.builds(
    Base,
    integers,
    integers,
    integers,
    st.none() | cids,
    st.builds(Config, tuples(st.builds(Member, peers, _stores), 7), version=st.none() | cids),
)

_nodes = st.integers(1, 2**41 - 1)
_names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
_short_names = st.lists(st.binary(min_size=8, max_size=8), max_size=4).map(b"".join)
_targets = st.builds(Target, _names, _nodes, _nodes, st.sampled_from(Stage))
_shares = st.floats(0.0, 1.0)
_held = st.builds(
    lambda record, piece, ends, closed, left_s: Held(
        record, piece, min(ends), max(ends), closed, left_s
    ),
    st.binary(min_size=1, max_size=200),
    counts,
    st.tuples(_shares, _shares),
    st.booleans(),
    st.integers(0, 86_400),
)

_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "at": _nodes,
    "attribute": _names,
    "about": _nodes,
    "asker": st.none() | peers,
    "below": _nodes,
    "have": _short_names,
    "home": st.none() | peers,
    "is_split": st.booleans(),
    "leaf": _nodes,
    "log": integers,
    "newest": integers,
    "number": integers,
    "order": _short_names,
    "piece": counts,
    "place": integers,
    "purpose": st.sampled_from(Purpose),
    "shape": st.binary(max_size=64),
    "sid": integers,
    "stage": st.sampled_from(Stage),
    "targets": tuples(_targets),
    "token": integers,
    "where": tuples(texts),
    "agreed": st.booleans(),
    "base": st.none() | _bases,
    "before_index": integers,
    "before_term": integers,
    "certificate": _certificates,
    "certify": integers,
    "committed": integers,
    "entries": tuples(_entries),
    "granted": st.booleans(),
    "held": integers,
    "last_index": integers,
    "last_term": integers,
    "leader": st.none() | peers,
    "matched": integers,
    "signatures": tuples(st.tuples(integers, _signatures)),
    "store": _stores,
    "term": integers,
    "trial": st.booleans(),
    "answer": st.booleans(),
    "attempt": integers,
    "block": blocks,
    "blocks": tuples(blocks),
    "cid": cids,
    "cids": tuples(cids),
    "contact": contacts,
    "contacts": tuples(contacts),
    "count": counts,
    "digest": digests,
    "epoch": integers,
    "event": st.none() | cids,
    "first": keys,
    "fresh": st.booleans(),
    "handed_down": st.booleans(),
    "if_closest": st.booleans(),
    "hops": st.integers(0, 1024),
    "key": keys,
    "last": keys,
    "marks": tuples(marks()),
    "members": tuples(contacts),
    "more": st.booleans(),
    "path": tuples(peers),
    "pointer": blocks,
    "publisher": peers,
    "ranges": tuples(st.tuples(keys, keys, counts, keys)),
    "code": st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    "message": texts,
    "replicas": counts,
    "replicated": st.booleans(),
    "request": integers,
    "request_id": _hash,
    "role": st.sampled_from(Role),
    "root": peers,
    "settled": integers,
    "topic": cids,
    "version": st.none() | cids,
}

# Where a name means something else in one kind.
_OWN_FIELDS: dict[type, dict[str, st.SearchStrategy[Any]]] = {
    messages.BlockFound: {"block": st.none() | blocks},
    messages.PointerFound: {"pointer": st.none() | blocks},
    messages.HandOver: {"contact": st.none() | contacts},
    messages.CompareKeys: {"digest": keys},
    PlaceSubscription: {"held": _held},
    PlaceState: {"held": tuples(_held)},
    TreeHint: {"at": st.just(0) | _nodes},
    CompareContent: {"base": integers},
}


def of_kind(kind: type) -> st.SearchStrategy[Any]:
    """Messages of one kind, with every field filled in: a new field is a KeyError here."""
    if kind is messages.FetchRange:
        return st.tuples(numbers, numbers).flatmap(
            lambda ends: _build(kind, {"first": st.just(min(ends)), "last": st.just(max(ends))})
        )
    if kind is messages.Range:
        return st.lists(st.tuples(blocks, _certificates), max_size=4).flatmap(_range_of)
    if kind is ProbeEvent:
        # The topic is the one that the block names.
        return cids.flatmap(
            lambda topic: _build(
                kind, {"topic": st.just(topic), "block": st.just(encode({"r": {"t": topic}}))}
            )
        )
    return _build(kind, _OWN_FIELDS.get(kind, {}))


def _range_of(parts: list[tuple[bytes, bytes]]) -> st.SearchStrategy[Any]:
    events, certificates = (tuple(each) for each in zip(*parts, strict=True)) if parts else ((), ())
    own = {"blocks": st.just(events), "certificates": st.sampled_from([(), certificates])}
    return _build(messages.Range, own)


def _build(kind: Any, own: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    known = _FIELDS | own
    return st.builds(kind, **{name: known[name] for name in kind.__struct_fields__})


any_message = st.one_of([of_kind(kind) for kind in KINDS])
