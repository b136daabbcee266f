"""The shelf: the listings that a node keeps for others, and fairness between their authors.

docs/spec/discovery.md, Keeping.

Room is short under a key, and in all; an author has a share of either. The author with the most
listings gives way to one that has at least two fewer, so that no author's listings push out
another's last one. Where all have equally many the newcomer is refused: new identities cost
nothing, and must not push out old ones.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.keys import Key
from pulsarcast.model.listings import AUTHOR_QUOTA, Listing, author_key
from pulsarcast.protocol.limits import LISTINGS_MAX

KEPT_MAX = 8192
"""Bounds the listings kept under all keys: 10 MB of disk and memory, if all are of full size."""

AUTHOR_SHARE = 4
"""An author has at most one in so many of these places."""

Place: TypeAlias = tuple[Key, PeerId, Cid]
"""A key, an author and a topic: room for one listing."""


class Shelf:
    """Listings by key."""

    __slots__ = ("_by_author", "_by_key", "_size")

    def __init__(self) -> None:
        self._by_key: dict[Key, dict[Place, Listing]] = {}
        self._by_author: dict[PeerId, dict[Place, None]] = {}
        self._size = 0

    def __len__(self) -> int:
        """How many listings are kept: one under two keys counts twice."""
        return self._size

    def __iter__(self) -> Iterator[tuple[Place, Listing]]:
        """Every listing, with its place."""
        for under in self._by_key.values():
            yield from under.items()

    def kept_under(self) -> list[Key]:
        """The keys under which something is kept."""
        return list(self._by_key)

    def get(self, key: Key, listing: Listing) -> Listing | None:
        """What is kept in a listing's place."""
        return self._by_key.get(key, {}).get((key, listing.author, listing.topic))

    def under(self, key: Key) -> list[Listing]:
        """The listings under a key; authors take turns."""
        counts: Counter[PeerId] = Counter()
        turns: list[tuple[int, Listing]] = []
        for listing in self._by_key.get(key, {}).values():
            turns.append((counts[listing.author], listing))
            counts[listing.author] += 1
        return [listing for _, listing in sorted(turns, key=lambda each: each[0])]

    def is_full(self, key: Key) -> bool:
        """Whether a further listing under a key, of some author, may find no room."""
        kept = self._by_key.get(key, {})
        by_author = Counter(author for _, author, _ in kept)
        return len(kept) >= LISTINGS_MAX or any(
            count >= _quota(key, author) for author, count in by_author.items()
        )

    def put(self, key: Key, listing: Listing) -> list[Place] | None:
        """Keep a listing; returns those that make way for it, or None if it finds no room."""
        place = (key, listing.author, listing.topic)
        is_new = place not in self._by_key.get(key, {})
        making_way = self._make_way(key, listing) if is_new else []
        if making_way is None:
            return None
        for other in making_way:
            self.drop(other)
        if is_new:
            self._size += 1
            self._by_author.setdefault(listing.author, {})[place] = None
        self._by_key.setdefault(key, {})[place] = listing
        return making_way

    def drop(self, place: Place) -> None:
        """Forget a listing."""
        key, author, _ = place
        del self._by_key[key][place]
        if not self._by_key[key]:
            del self._by_key[key]
        del self._by_author[author][place]
        if not self._by_author[author]:
            del self._by_author[author]
        self._size -= 1

    def _make_way(self, key: Key, listing: Listing) -> list[Place] | None:
        """The listings that a new one may push out; None: it has to stay out itself."""
        kept = self._by_key.get(key, {})
        by_author: dict[PeerId, list[Place]] = {}
        for place in kept:
            by_author.setdefault(place[1], []).append(place)
        own = by_author.get(listing.author, [])
        if len(own) >= _quota(key, listing.author):
            first = min(own, key=lambda place: kept[place].expires_us)
            return [first] if kept[first].expires_us < listing.expires_us else None
        in_all = self._by_author.get(listing.author, {})
        has_its_share = len(in_all) >= KEPT_MAX // AUTHOR_SHARE
        others: list[Place] | None = []
        if len(kept) >= LISTINGS_MAX:
            others = _of_the_greediest(by_author, than=len(own))
        elif self._size >= KEPT_MAX and not has_its_share:
            others = _of_the_greediest(self._by_author, than=len(in_all))
        if others is None:
            return None
        return [next(iter(in_all)), *others] if has_its_share else others


def _quota(key: Key, author: PeerId) -> int:
    """Bounds an author's listings under a key; its own key has room for no other's."""
    return LISTINGS_MAX if key == author_key(author) else AUTHOR_QUOTA


def _of_the_greediest(
    by_author: Mapping[PeerId, Collection[Place]], *, than: int
) -> list[Place] | None:
    """The oldest listing of the author with the most, if another that has `than` is due more."""
    most = max(by_author.values(), key=len)
    return [next(iter(most))] if len(most) >= than + 2 else None
