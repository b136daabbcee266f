"""Zones: the keys that a node is answerable for, by brute force and by cutting."""

from itertools import pairwise
from random import Random

from hypothesis import assume, given
from hypothesis import strategies as st

from pulsarcast.model.ids import PeerId, peer_id_of, peer_key
from pulsarcast.model.keys import KEY_BITS
from pulsarcast.protocol.dht.routing import RoutingTable
from pulsarcast.protocol.dht.zone import PIECES_MAX, Piece, shared_ranges, zone_of
from pulsarcast.protocol.messages import Contact


def some_peers(count: int, seed: int) -> list[PeerId]:
    rng = Random(seed)
    return [peer_id_of(rng.randbytes(32)) for _ in range(count)]


def piece_of(pieces: list[Piece], key: int) -> Piece | None:
    found = [piece for piece in pieces if piece.first <= key <= piece.last]
    assert len(found) <= 1, "pieces overlap"
    return found[0] if found else None


def is_cut_short(pieces: list[Piece]) -> bool:
    """Whether there may be larger pieces than the r closest peers make."""
    return len(pieces) >= PIECES_MAX - 1


@given(
    count=st.integers(1, 60),
    seed=st.integers(0, 10_000),
    replicas=st.integers(1, 5),
    keys=st.lists(st.integers(0, 2**256 - 1), min_size=20, max_size=20),
)
def test_a_zone_holds_the_keys_that_have_us_among_their_closest_and_no_others(
    count: int, seed: int, replicas: int, keys: list[int]
) -> None:
    me, *others = peers = some_peers(count, seed)
    pieces = zone_of(me, others, replicas)
    mine = peer_key(me)
    # Random keys are mostly far from us: look at our neighbourhood too.
    for key in [*keys, *(mine ^ (key >> shift) for shift, key in enumerate(keys))]:
        closest = sorted(peers, key=lambda peer: peer_key(peer) ^ key)[:replicas]
        piece = piece_of(pieces, key)
        if me in closest:
            assert piece is not None
            assert set(closest) <= set(piece.peers)
        if piece is not None and not is_cut_short(pieces):
            assert sorted(piece.peers) == sorted(closest)


@given(count=st.integers(1, 60), seed=st.integers(0, 10_000), replicas=st.integers(1, 5))
def test_pieces_come_in_key_order(count: int, seed: int, replicas: int) -> None:
    me, *others = some_peers(count, seed)
    pieces = zone_of(me, others, replicas)
    assert all(before.last < after.first for before, after in pairwise(pieces))


@given(count=st.integers(1, 300), seed=st.integers(0, 10_000), replicas=st.integers(1, 5))
def test_the_contacts_around_us_decide_our_zone(count: int, seed: int, replicas: int) -> None:
    me, *others = some_peers(count, seed)
    table = RoutingTable(me, bucket_size=20, retry_s=30.0)
    for peer in others:
        table.saw(Contact(peer), 0.0)
    some = zone_of(me, (contact.peer for contact in table.around(replicas)), replicas)
    everyone = zone_of(me, (contact.peer for contact in table), replicas)
    assume(not is_cut_short(everyone))
    assert shared_ranges(some, me).keys() == shared_ranges(everyone, me).keys()
    assert [(piece.first, piece.last, sorted(piece.peers)) for piece in some] == [
        (piece.first, piece.last, sorted(piece.peers)) for piece in everyone
    ]


@given(count=st.integers(2, 60), seed=st.integers(0, 10_000))
def test_two_peers_that_know_the_same_share_the_same_ranges(count: int, seed: int) -> None:
    peers = some_peers(count, seed)
    me = peers[0]
    pieces = zone_of(me, peers[1:], 3)
    assume(not is_cut_short(pieces))
    ours = shared_ranges(pieces, me)
    for peer, ranges in ours.items():
        others = [other for other in peers if other != peer]
        theirs = zone_of(peer, others, 3)
        assert is_cut_short(theirs) or shared_ranges(theirs, peer)[me] == ranges


def test_alone_we_are_answerable_for_everything() -> None:
    me = some_peers(1, 1)[0]
    assert zone_of(me, (), 3) == [Piece(0, 2**256 - 1, (me,))]
    assert shared_ranges(zone_of(me, (), 3), me) == {}


def test_peers_whose_keys_begin_alike_do_not_cut_the_keyspace_to_shreds() -> None:
    """Twenty bits alike are found among a thousand ids, and made a million pieces of every zone."""
    keys = sorted((peer_key(each), each) for each in some_peers(3_000, 1))
    alike = max(pairwise(keys), key=lambda pair: KEY_BITS - (pair[0][0] ^ pair[1][0]).bit_length())
    (first, one), (second, other) = alike
    assert KEY_BITS - (first ^ second).bit_length() >= 20
    me, *honest = some_peers(4, 2)
    pieces = zone_of(me, [one, other, *honest], 3)
    assert len(pieces) <= PIECES_MAX
    everybody = [me, one, other, *honest]
    for number in range(1000):
        key = Random(number).getrandbits(KEY_BITS)
        closest = sorted(everybody, key=lambda peer: peer_key(peer) ^ key)[:3]
        piece = piece_of(pieces, key)
        assert me not in closest or (piece is not None and set(closest) <= set(piece.peers))
