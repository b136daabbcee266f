"""Listings in the DHT: keeps them under the keys of words, tags and authors, and finds them there.

docs/spec/discovery.md.

Many authors share a key, so a peer keeps several records under it, fairly (`shelf`). A listing is
in its time for as long as its author says, up to a bound. A newer listing of a topic replaces the
older one under every key, also where the newer one does not belong there any more: so a topic that
is not listed any longer, or lost a word, is not found by what it was.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from pulsarcast.model.errors import Rejection, RemoteError, Verdict
from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.model.keys import Key
from pulsarcast.model.listings import Listing, decode_listing, keys_of
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.expiry import AHEAD_US_MAX, listing_lifetime_us
from pulsarcast.protocol.dht.lookup import Lookup
from pulsarcast.protocol.dht.lookups import Lookups
from pulsarcast.protocol.dht.routing import RoutingTable
from pulsarcast.protocol.dht.shelf import Place, Shelf
from pulsarcast.protocol.dht.showing import Showing
from pulsarcast.protocol.messages import (
    Contact,
    DhtMessage,
    FindListings,
    ListingsFound,
    Stored,
    StoreListings,
)
from pulsarcast.protocol.store import DropState, PutState, StateRow
from pulsarcast.protocol.turn import Kept

TABLE = "listing"
SHOWN_MAX = 32
"""Bounds the listings in one message that shows them to other keepers."""
FOUND_MAX = 4096
"""Bounds the listings that one search takes in: hostile peers could answer without end."""


class Listings:
    """The listings that a node keeps, places and looks for."""

    __slots__ = ("_lookups", "_parameters", "_shelf", "_showing", "_table", "_to_show", "_turn")

    def __init__(
        self, context: Context, table: RoutingTable, lookups: Lookups, showing: Showing
    ) -> None:
        self._turn = context.turn
        self._parameters = context.parameters
        self._table = table
        self._lookups = lookups
        self._showing = showing
        self._shelf = Shelf()
        self._to_show: Iterator[tuple[Key, tuple[bytes, ...]]] = iter(())

    def __len__(self) -> int:
        """How many listings are kept."""
        return len(self._shelf)

    # Keeping.

    def restore(self, rows: Iterable[StateRow]) -> None:
        """Restore the listings that the disk remembers."""
        for row in rows:
            if row.table == TABLE:
                try:
                    listing = decode_listing(row.value)
                except RemoteError:
                    continue  # Written under other rules.
                self._shelf.put(int.from_bytes(row.key[:32], "big"), listing)

    def receive(self, sender: PeerId, message: StoreListings) -> None:
        """Keep listings for a peer, and say which ones are kept."""
        listings: list[Listing] = []
        refused: RemoteError | None = None
        for block in message.listings:
            try:
                listings.append(self._judged(block))
            except RemoteError as error:
                refused = refused or error

        def answer(kept: Sequence[Listing]) -> None:
            cids = tuple(cid_of(listing.block) for listing in kept)
            self._turn.send(sender, Stored(message.request, cids))

        self._take(message.key, listings, answer)
        if refused is not None:
            raise refused

    def answer(self, sender: PeerId, message: FindListings) -> None:
        """Name the listings under a key, and peers closer to it."""
        now_us = self._turn.wall_us
        blocks = [each.block for each in self._shelf.under(message.key) if each.expires_us > now_us]
        closest = self._table.closest(message.key, self._parameters.bucket_size, (sender,))
        is_full = self._shelf.is_full(message.key)
        found = ListingsFound(message.request, tuple(blocks), is_full, tuple(closest))
        self._turn.send(sender, found)

    def tend(self) -> None:
        """Drop the listings whose time is up, and show the next ones to their other keepers."""
        now_us = self._turn.wall_us
        over = {place: each for place, each in self._shelf if each.expires_us <= now_us}
        for place in over:
            self._shelf.drop(place)

        def synced(is_kept: bool) -> None:
            for (key, _, _), listing in () if is_kept else over.items():
                if self._shelf.get(key, listing) is None:
                    self._shelf.put(key, listing)  # It is still on the disk: try again later.

        if over:
            self._turn.keep(*map(_dropped, over), then=synced)
        piece = next(self._to_show, None)
        if piece is None:
            self._to_show = self._pieces()
            piece = next(self._to_show, None)
        if piece is not None:
            key, blocks = piece
            self._showing.show_to_known(key, StoreListings(0, key, blocks))

    def _pieces(self) -> Iterator[tuple[Key, tuple[bytes, ...]]]:
        """All that is kept, in the messages that show it."""
        for key in self._shelf.kept_under():
            blocks = [each.block for each in self._shelf.under(key)]
            for first in range(0, len(blocks), SHOWN_MAX):
                yield key, tuple(blocks[first : first + SHOWN_MAX])

    def _judged(self, block: bytes) -> Listing:
        listing = decode_listing(block)
        if not self._is_in_time(listing):
            # By this node's clock, which may be the wrong one.
            raise RemoteError("a listing out of its time", Verdict.IGNORE, code=Rejection.EXPIRED)
        return listing

    def _is_in_time(self, listing: Listing) -> bool:
        """Whether a listing is not over, and does not claim more time than listings have."""
        now_us = self._turn.wall_us
        latest_us = now_us + listing_lifetime_us(self._parameters) + AHEAD_US_MAX
        return now_us < listing.expires_us <= latest_us

    def _take(
        self, key: Key, listings: Iterable[Listing], then: Callable[[list[Listing]], None]
    ) -> None:
        """Put listings on the shelf, and on the disk; `then` hears which ones are there."""
        taken: list[Listing] = []
        new: list[Listing] = []
        writes: list[PutState | DropState] = []
        for listing in listings:
            put = self._put(key, listing)
            if put is None:
                continue
            taken.append(listing)
            if put:
                new.append(listing)
                writes += put

        def synced(is_kept: bool) -> None:
            for listing in () if is_kept else new:
                if self._shelf.get(key, listing) == listing:
                    self._shelf.drop((key, listing.author, listing.topic))
            then([listing for listing in taken if self._shelf.get(key, listing) is not None])

        if taken:
            # Those that are known may still be on their way to the disk; syncs come in order.
            self._turn.keep(*writes, then=synced)
        else:
            then([])

    def _put(self, key: Key, listing: Listing) -> list[PutState | DropState] | None:
        known = self._shelf.get(key, listing)
        if known is None:
            if not listing.is_listed or key not in keys_of(listing):
                return None  # It replaces nothing, and does not belong here.
        elif known.block == listing.block:
            return []
        elif not listing.is_newer(known):
            return None
        made_way = self._shelf.put(key, listing)
        if made_way is None:
            return None
        row = StateRow(TABLE, _row_key((key, listing.author, listing.topic)), listing.block)
        return [*map(_dropped, made_way), PutState(row)]

    # Placing.

    def place(self, key: Key, listings: Sequence[Listing], then: Callable[[int], None]) -> None:
        """Place listings on the r peers closest to a key, and count those that keep some."""

        def keep(then: Kept) -> None:
            self._take(key, listings, lambda kept: then(bool(kept)))

        question = StoreListings(0, key, tuple(listing.block for listing in listings))
        self._showing.place(key, question, keep, then)

    # Finding.

    def find(self, keys: Sequence[Key], then: Callable[[list[Listing], bool], None]) -> None:
        """Find the listings under any of the keys, those that most peers keep first.

        `then` also hears whether a peer keeps as many as it may, so that there may be others.
        """
        newest: dict[tuple[PeerId, Cid], Listing] = {}
        keepers: dict[tuple[PeerId, Cid], set[PeerId]] = {}
        """Who keeps a topic's listing: a peer that repeats one counts once."""
        verified: dict[bytes, Listing] = {}
        """By block: several peers keep the same one."""
        is_cut = False
        left = len(keys)

        def take(keeper: PeerId, listing: Listing) -> None:
            place = (listing.author, listing.topic)
            known = newest.get(place)
            if known is None or listing.is_newer(known):
                newest[place] = listing
            keepers.setdefault(place, set()).add(keeper)

        def judge(contact: Contact, answer: DhtMessage) -> bool:
            nonlocal is_cut
            assert isinstance(answer, ListingsFound)
            for block in answer.listings:
                listing = verified.get(block)
                if listing is None:
                    listing = verified[block] = decode_listing(block)
                if self._is_in_time(listing):
                    take(contact.peer, listing)
            is_cut = is_cut or answer.full or len(verified) >= FOUND_MAX
            return len(verified) >= FOUND_MAX

        def found(_: Lookup) -> None:
            nonlocal left
            left -= 1
            if not left:
                # One peer that makes listings up comes behind those that several peers keep.
                places = sorted(newest, key=lambda place: -len(keepers[place]))
                then([newest[place] for place in places], is_cut)

        count = min(self._parameters.bucket_size, 2 * self._parameters.replicas + 2)
        for key in keys:
            for listing in self._shelf.under(key):
                if self._is_in_time(listing):
                    take(self._turn.me, listing)
            is_cut = is_cut or self._shelf.is_full(key)
            self._lookups.find(key, FindListings(0, key), found, judge=judge, count=count)


def _dropped(place: Place) -> DropState:
    return DropState(TABLE, _row_key(place))


def _row_key(place: Place) -> bytes:
    key, author, topic = place
    return key.to_bytes(32, "big") + author + topic
