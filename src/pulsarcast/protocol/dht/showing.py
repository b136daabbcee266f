"""Showing: offers records that are replaced to the r peers closest to their key.

docs/spec/pulsarcast.md, The DHT.

`placing` batches blocks, which never change. A pointer or a listing may be refused, because a peer
knows a newer one or has no room: then asking others would not help.
"""

from collections.abc import Callable

from pulsarcast.model.ids import peer_key
from pulsarcast.model.keys import Key
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.calls import Calls
from pulsarcast.protocol.dht.lookup import Lookup
from pulsarcast.protocol.dht.lookups import Lookups
from pulsarcast.protocol.dht.placing import PATIENCE
from pulsarcast.protocol.dht.routing import RoutingTable
from pulsarcast.protocol.messages import (
    Contact,
    DhtMessage,
    Stored,
    StoreListings,
    StorePointer,
)
from pulsarcast.protocol.turn import Kept


class Showing:
    """Shows records to the peers that should keep them."""

    __slots__ = ("_calls", "_lookups", "_parameters", "_table", "_turn")

    def __init__(
        self, context: Context, table: RoutingTable, calls: Calls, lookups: Lookups
    ) -> None:
        self._turn = context.turn
        self._parameters = context.parameters
        self._table = table
        self._calls = calls
        self._lookups = lookups

    def show(self, contact: Contact, question: StorePointer | StoreListings) -> None:
        """Show records to one peer; it does not matter whether it keeps them."""
        self._calls.ask(contact, question, _nothing)

    def show_to_known(self, key: Key, question: StorePointer | StoreListings) -> None:
        """Show records to the r known peers closest to their key."""
        for contact in self._table.closest(key, self._parameters.replicas):
            self.show(contact, question)

    def place(
        self,
        key: Key,
        question: StorePointer | StoreListings,
        keep: Callable[[Kept], None],
        then: Callable[[int], None],
    ) -> None:
        """Place records on the r peers closest to a key, and count those that keep some.

        The node keeps them itself, with `keep`, if it is one of the r.
        """

        def found(lookup: Lookup) -> None:
            contacts = lookup.candidates(2 * self._parameters.bucket_size)
            self._place_at(key, question, contacts, keep, then)

        self._lookups.find_peers(key, found, count=self._parameters.replicas)

    def _place_at(
        self,
        key: Key,
        question: StorePointer | StoreListings,
        contacts: list[Contact],
        keep: Callable[[Kept], None],
        then: Callable[[int], None],
    ) -> None:
        replicas = self._parameters.replicas
        places = contacts[::-1]
        count = 0
        pending = 0
        refused = 0
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                self._turn.cancel(timer)
                then(count)

        def advance() -> None:
            nonlocal pending
            while not ended and count + refused + pending < replicas and places:
                pending += 1
                self._calls.ask(places.pop(), question, answered)
            if not pending:
                end()

        def answered(answer: DhtMessage | None) -> None:
            nonlocal count, pending, refused
            pending -= 1
            if isinstance(answer, Stored):
                kept = bool(answer.cids)
                count += kept
                refused += not kept
            advance()

        def settled(is_kept: bool) -> None:
            nonlocal count, pending, refused
            pending -= 1
            count += is_kept
            refused += not is_kept
            advance()

        timer = self._turn.after(PATIENCE * self._parameters.rpc_timeout_s, end)
        away = self._table.me ^ key
        closer = sum(peer_key(contact.peer) ^ key < away for contact in contacts[:replicas])
        if closer < replicas:
            pending += 1
            keep(settled)
        advance()


def _nothing(_: DhtMessage | None) -> None:
    """The records are shown again."""
