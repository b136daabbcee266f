"""The zone of a node: the keys that it is responsible for, and its co-replicas of each.

docs/spec/pulsarcast.md, The DHT.

A block belongs to the r peers closest to its key. Cut the keyspace in halves, again and again: all
peers of a half are closer to every key of that half than any peer of the other half. So after a few
cuts around the node's own key, the r closest peers are the same for all keys of a piece. Replicas
compare such pieces, and not single keys.

Two peers whose keys begin alike take turns as the closer one, along all keys: n bits alike make 2^n
pieces, and whoever looks for ids can have many bits alike. So the largest pieces are cut first, and
not all: one that stays whole belongs to a few peers too many, which hold a part of its keys each.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from pulsarcast.model.ids import PeerId, peer_key
from pulsarcast.model.keys import KEY_BITS, Key

PIECES_MAX = 256
"""Bounds the pieces of a zone: of 97 in 100 nodes among 5 to 100 they are fewer than 140."""


class Piece(NamedTuple):
    """Keys first..last, all of which belong to the same peers."""

    first: Key
    last: Key
    peers: tuple[PeerId, ...]
    """All peers responsible for some of it, the node itself among them."""


def zone_of(me: PeerId, others: Iterable[PeerId], replicas: int) -> list[Piece]:
    """The pieces that a node is responsible for among the peers it knows, in key order."""
    mine = peer_key(me)
    peers = {peer_key(peer): peer for peer in others}
    peers[mine] = me
    pieces: list[Piece] = []
    # Groups of peers' keys, each closer to every key of the piece than all later groups.
    waiting: deque[tuple[Key, int, list[list[Key]]]] = deque([(0, KEY_BITS, [list(peers)])])
    while waiting:
        first, bits, groups = waiting.popleft()
        is_whole = len(pieces) + len(waiting) >= PIECES_MAX - 1
        if is_whole or not bits or sum(map(len, groups)) <= replicas:
            answerable = tuple(peers[key] for group in groups for key in group)
            pieces.append(Piece(first, first + (1 << bits) - 1, answerable))
            continue
        bits -= 1
        bit = 1 << bits
        lower: list[list[Key]] = []
        upper: list[list[Key]] = []
        for group in groups:
            zeros = [key for key in group if not key & bit] if len(group) > 1 else group
            if not zeros or len(zeros) == len(group):
                lower.append(group)
                upper.append(group)
            else:
                ones = [key for key in group if key & bit]
                lower += (zeros, ones)
                upper += (ones, zeros)
        for start, halves in ((first, lower), (first | bit, upper)):
            close = _closest_groups(halves, replicas, mine)
            if close is not None:
                waiting.append((start, bits, close))
    return sorted(pieces)


def _closest_groups(groups: list[list[Key]], replicas: int, mine: Key) -> list[list[Key]] | None:
    """As many groups as it takes for r peers, or None if the node is in none of them."""
    close: list[list[Key]] = []
    count = 0
    found = False
    for group in groups:
        close.append(group)
        found = found or mine in group
        count += len(group)
        if count >= replicas:
            break
    return close if found else None


def shared_ranges(pieces: Iterable[Piece], me: PeerId) -> dict[PeerId, list[tuple[Key, Key]]]:
    """For each peer, the ranges of keys that both it and the node are responsible for."""
    shared: dict[PeerId, list[tuple[Key, Key]]] = {}
    for first, last, peers in pieces:
        for peer in peers:
            if peer == me:
                continue
            ranges = shared.setdefault(peer, [])
            if ranges and ranges[-1][1] + 1 == first:
                ranges[-1] = (ranges[-1][0], last)
            else:
                ranges.append((first, last))
    return shared
