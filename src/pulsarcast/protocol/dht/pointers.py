"""Mutable pointers: maps author and name to a topic's newest version.

docs/spec/pulsarcast.md, The DHT.

Of a block one valid copy is enough; of a pointer the newest is wanted. So all r peers are asked,
the highest number wins, and peers that lacked it get it. Of two with one number the lower CID wins.
Each keeper shows its pointers to the other keepers in turn, so that pointers outlive keepers.
"""

from collections.abc import Callable, Iterable

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.ids import PeerId, cid_of
from pulsarcast.model.keys import Key
from pulsarcast.model.pointers import Pointer, decode_pointer, pointer_key
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
from pulsarcast.protocol.turn import Then

POINTERS_MAX = 4096
TABLE = "pointer"


def is_newer(pointer: Pointer, than: Pointer) -> bool:
    """Whether a pointer replaces another one of the same author and name."""
    if pointer.number != than.number:
        return pointer.number > than.number
    return pointer.cid < than.cid


class Pointers:
    """The pointers that a node keeps, places and looks for."""

    __slots__ = ("_kept", "_lookups", "_parameters", "_showing", "_shown", "_table", "_turn")

    def __init__(
        self, context: Context, table: RoutingTable, lookups: Lookups, showing: Showing
    ) -> None:
        self._turn = context.turn
        self._parameters = context.parameters
        self._table = table
        self._lookups = lookups
        self._showing = showing
        self._kept: dict[Key, Pointer] = {}
        self._shown = 0

    def __len__(self) -> int:
        """How many pointers are kept."""
        return len(self._kept)

    # Keeping.

    def restore(self, rows: Iterable[StateRow]) -> None:
        """Restore the pointers that the disk remembers."""
        for row in rows:
            if row.table == TABLE and len(self._kept) < POINTERS_MAX:
                try:
                    pointer = decode_pointer(row.value)
                except RemoteError:
                    continue  # Written under other rules.
                self._kept[pointer_key(pointer.author, pointer.name)] = pointer

    def keep(self, pointer: Pointer, then: Then) -> bool:
        """Keep a pointer; False if a newer one is known or there is no room."""
        key = pointer_key(pointer.author, pointer.name)
        known = self._kept.get(key)
        if known is not None and known.block == pointer.block:
            # Its sync may still be under way; syncs come in order, so an empty write waits for it.
            self._turn.persist(then=then)
            return True
        if known is not None and not is_newer(pointer, known):
            return False
        writes: list[PutState | DropState] = []
        if known is None and len(self._kept) >= POINTERS_MAX:
            me = self._table.me
            farthest = max(self._kept, key=me.__xor__)
            if farthest ^ me < key ^ me:
                return False
            del self._kept[farthest]
            writes.append(DropState(TABLE, _row_key(farthest)))
        self._kept[key] = pointer
        writes.append(PutState(StateRow(TABLE, _row_key(key), pointer.block)))
        self._turn.persist(*writes, then=then)
        return True

    def receive(self, sender: PeerId, message: StorePointer) -> None:
        """Keep a pointer for a peer, and say whether it is kept."""
        pointer = decode_pointer(message.pointer)
        stored = Stored(message.request, (cid_of(message.pointer),))
        if not self.keep(pointer, lambda: self._turn.send(sender, stored)):
            self._turn.send(sender, Stored(message.request, ()))

    def answer(self, sender: PeerId, message: FindPointer) -> None:
        """Name the pointer kept here, and peers closer to it."""
        pointer = self._kept.get(message.key)
        block = None if pointer is None else pointer.block
        closest = self._table.closest(message.key, self._parameters.bucket_size, (sender,))
        self._turn.send(sender, PointerFound(message.request, block, tuple(closest)))

    def spread_next(self) -> None:
        """Show the next pointer to the other peers that should keep it."""
        if not self._kept:
            return
        self._shown = (self._shown + 1) % len(self._kept)
        key = list(self._kept)[self._shown]
        self._showing.show_to_known(key, StorePointer(0, self._kept[key].block))

    # Placing.

    def place(self, pointer_block: bytes, then: Callable[[int], None]) -> None:
        """Place a pointer on the r peers closest to it, and count those that keep it."""
        pointer = decode_pointer(pointer_block)
        key = pointer_key(pointer.author, pointer.name)

        question = StorePointer(0, pointer_block)
        self._showing.place(key, question, lambda synced: self.keep(pointer, synced), then)

    # Finding.

    def find(self, author: PeerId, name: str, then: Callable[[bytes | None], None]) -> None:
        """Find the newest pointer of an author and name, and store it at peers that lack it."""
        key = pointer_key(author, name)
        newest = self._kept.get(key)
        seen: dict[PeerId, bytes | None] = {}

        def judge(contact: Contact, answer: DhtMessage) -> bool:
            nonlocal newest
            assert isinstance(answer, PointerFound)
            if answer.pointer is not None:
                pointer = decode_pointer(answer.pointer)
                if (pointer.author, pointer.name) != (author, name):
                    raise RemoteError(
                        "a pointer that is not the one asked for", code=Rejection.NOT_ASKED_FOR
                    )
                if newest is None or is_newer(pointer, newest):
                    newest = pointer
            seen[contact.peer] = answer.pointer
            return False

        def found(lookup: Lookup) -> None:
            if newest is None:
                then(None)
                return
            for contact in lookup.closest(self._parameters.replicas):
                if seen[contact.peer] != newest.block:
                    self._showing.show(contact, StorePointer(0, newest.block))
            ours = self._kept.get(key)
            if ours is not None and is_newer(newest, ours):
                self.keep(newest, lambda: None)
            then(newest.block)

        count = self._parameters.replicas
        self._lookups.find(key, FindPointer(0, key), found, judge=judge, count=count)


def _row_key(key: Key) -> bytes:
    return key.to_bytes(32, "big")
