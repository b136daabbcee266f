"""Mutable pointers: maps author and name to a topic and its newest version.

docs/spec/pulsarcast.md, The DHT.

Of a block one valid copy is enough; of a pointer the newest is wanted. So all r peers are asked,
the one that ranks highest wins (`model.pointers`), and peers that lacked it get it. Each keeper
shows its pointers to the other keepers in turn, so that pointers outlive keepers. A keeper that
meets two pointers that clash keeps both, shows both to all that ask, and shows them to the author.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.ids import PeerId, cid_of
from pulsarcast.model.keys import Key
from pulsarcast.model.pointers import (
    Named,
    decode_named,
    join_blocks,
    pointer_key,
    split_blocks,
)
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.lookup import Lookup
from pulsarcast.protocol.dht.lookups import Lookups
from pulsarcast.protocol.dht.routing import RoutingTable
from pulsarcast.protocol.dht.showing import Showing
from pulsarcast.protocol.messages import (
    Contact,
    DhtMessage,
    FindPointer,
    PointerFound,
    Stored,
    StorePointer,
)
from pulsarcast.protocol.store import DropState, PutState, StateRow
from pulsarcast.protocol.turn import Kept

POINTERS_MAX = 4096
"""Bounds the names whose pointers a node keeps for others: at most two pointers of each."""
TABLE = "pointer"


class PointersOwner(Protocol):
    """What keeping pointers asks of the node that it belongs to."""

    def shown_own_name(self, named: Named) -> None:
        """A keeper shows pointers that this node's key signed."""


class Pointers:
    """The pointers that a node keeps, places and looks for."""

    __slots__ = (
        "_kept",
        "_lookups",
        "_owner",
        "_parameters",
        "_showing",
        "_shown",
        "_table",
        "_turn",
    )

    def __init__(
        self,
        context: Context,
        table: RoutingTable,
        lookups: Lookups,
        showing: Showing,
        owner: PointersOwner,
    ) -> None:
        self._turn = context.turn
        self._parameters = context.parameters
        self._table = table
        self._lookups = lookups
        self._showing = showing
        self._owner = owner
        self._kept: dict[Key, Named] = {}
        self._shown = 0

    def __len__(self) -> int:
        """How many names have pointers here."""
        return len(self._kept)

    # Keeping.

    def restore(self, rows: Iterable[StateRow]) -> None:
        """Restore the pointers that the disk remembers."""
        for row in rows:
            if row.table == TABLE and len(self._kept) < POINTERS_MAX:
                try:
                    named = decode_named(split_blocks(row.value))
                except RemoteError:
                    continue  # Written under other rules.
                if named is not None:
                    self._kept[_key_of(named)] = named

    def keep(self, given: Named, then: Kept) -> None:
        """Keep the pointers of a name; `then` hears False if a newer one is known, or no room."""
        key = _key_of(given)
        known = self._kept.get(key)
        named = given if known is None else known.merged(given)
        if named == known:
            if named.pointer != given.pointer:
                then(False)
                return
            # Its sync may still be under way; syncs come in order, so an empty write waits for it.
            self._turn.persist(then=lambda: then(self._kept.get(key) is known))
            return
        writes: list[PutState | DropState] = []
        if known is None and len(self._kept) >= POINTERS_MAX:
            me = self._table.me
            farthest = max(self._kept, key=me.__xor__)
            if farthest ^ me < key ^ me:
                then(False)
                return
            del self._kept[farthest]
            writes.append(DropState(TABLE, _row_key(farthest)))
        self._kept[key] = named
        writes.append(PutState(StateRow(TABLE, _row_key(key), join_blocks(named.blocks))))

        def synced(is_kept: bool) -> None:
            if not is_kept and self._kept.get(key) is named:
                # An older one may be on the disk. It comes back with a restart, and is merged.
                del self._kept[key]
            then(is_kept and named.pointer == given.pointer)

        self._turn.keep(*writes, then=synced)
        if named.rival is not None and (known is None or known.rival != named.rival):
            self._tell_author(named)

    def _tell_author(self, named: Named) -> None:
        """Show pointers that clash to the node that can settle it."""
        author = named.pointer.author
        if author == self._turn.me:
            self._owner.shown_own_name(named)
        else:
            self._showing.show(Contact(author), StorePointer(0, named.blocks))

    def receive(self, sender: PeerId, message: StorePointer) -> None:
        """Keep pointers for a peer, and say whether the one that it shows first is kept."""
        named = decode_named(message.pointers)
        assert named is not None, "a message has one at least"
        if named.pointer.author == self._turn.me:
            self._owner.shown_own_name(named)
        cid = cid_of(named.pointer.block)

        def answer(is_kept: bool) -> None:
            self._turn.send(sender, Stored(message.request, (cid,) if is_kept else ()))

        self.keep(named, answer)

    def answer(self, sender: PeerId, message: FindPointer) -> None:
        """Name the pointers kept here, and peers closer to them."""
        named = self._kept.get(message.key)
        blocks = () if named is None else named.blocks
        closest = self._table.closest(message.key, self._parameters.bucket_size, (sender,))
        self._turn.send(sender, PointerFound(message.request, blocks, tuple(closest)))

    def spread_next(self) -> None:
        """Show the pointers of the next name to the other peers that should keep them."""
        if not self._kept:
            return
        self._shown = (self._shown + 1) % len(self._kept)
        key = list(self._kept)[self._shown]
        self._showing.show_to_known(key, StorePointer(0, self._kept[key].blocks))

    # Placing.

    def place(self, named: Named, then: Callable[[int], None]) -> None:
        """Place a name's pointers on the r peers closest to it, and count those that keep them."""
        question = StorePointer(0, named.blocks)
        self._showing.place(_key_of(named), question, partial(self.keep, named), then)

    # Finding.

    def find(self, author: PeerId, name: str, then: Callable[[Named | None], None]) -> None:
        """Find the newest pointer of an author and name, and store it at peers that lack it."""
        key = pointer_key(author, name)
        newest = self._kept.get(key)
        seen: dict[PeerId, tuple[bytes, ...]] = {}

        def judge(contact: Contact, answer: DhtMessage) -> bool:
            nonlocal newest
            assert isinstance(answer, PointerFound)
            named = decode_named(answer.pointers)
            if named is not None:
                if (named.pointer.author, named.pointer.name) != (author, name):
                    raise RemoteError(
                        "a pointer that is not the one asked for", code=Rejection.NOT_ASKED_FOR
                    )
                newest = named if newest is None else newest.merged(named)
            seen[contact.peer] = answer.pointers
            return False

        def found(lookup: Lookup) -> None:
            named = newest
            if named is None:
                then(None)
                return
            for contact in lookup.closest(self._parameters.replicas):
                if seen[contact.peer] != named.blocks:
                    self._showing.show(contact, StorePointer(0, named.blocks))
            if key in self._kept:
                self.keep(named, _nothing)
            then(named)

        count = self._parameters.replicas
        self._lookups.find(key, FindPointer(0, key), found, judge=judge, count=count)


def _key_of(named: Named) -> Key:
    return pointer_key(named.pointer.author, named.pointer.name)


def _row_key(key: Key) -> bytes:
    return key.to_bytes(32, "big")


def _nothing(_: bool) -> None:
    """The lookup does not wait for the node's own disk."""
