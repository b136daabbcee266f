"""Room: which peers lose their connections, or wait for a turn, where a node runs out of something.

The budgets are those of `resources.py` (docs/spec/threats.md, Budgets). What a peer is worth is
what it does for the node, not what it asks of it: any stranger can become a child.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from typing import Final, TypeAlias

import trio

from pulsarcast.model.ids import PeerId
from pulsarcast.network.addresses import AddressBook
from pulsarcast.network.link import Link
from pulsarcast.network.neighbour import Connection, Listener, Neighbour
from pulsarcast.network.resources import (
    CHILDREN_BYTES_MAX,
    EVICTED_AT_ONCE,
    HELD_BYTES_MAX,
    HELLO_GRACE_S,
    NOTED_BYTES,
    STRANGERS_BYTES_MAX,
    Claim,
    Worth,
    cheapest,
    heaviest,
)

LOOK_S: Final = 1.0
"""How often the node looks what its peers are to it: of thousands of topics that takes a while."""

Holder: TypeAlias = Link | Neighbour
"""What makes the node hold bytes: a connection, or a peer that is being dialled."""


class Room:
    """What the peers of one node are worth, and what they make it hold."""

    def __init__(
        self,
        listener: Listener,
        book: AddressBook,
        neighbours: Mapping[PeerId, Neighbour],
        links: Mapping[Link, Connection],
    ) -> None:
        self._listener = listener
        self._book = book
        self._neighbours = neighbours
        self._links = links
        self._heavy: dict[Holder, None] = {}
        """Those that were seen to hold much."""
        self._relied_on: Container[PeerId] = ()
        self._served: Container[PeerId] = ()
        self._looked_s = -math.inf

    def is_relied_on(self, peer: PeerId) -> bool:
        """Whether a peer served the node a moment ago."""
        if trio.current_time() > self._looked_s + LOOK_S:
            self._look()
        return peer in self._relied_on

    def _look(self) -> None:
        self._looked_s = trio.current_time()
        self._relied_on, self._served = self._listener.relied_on(), self._listener.served()

    def forget(self, holder: Holder) -> None:
        """It holds nothing any more."""
        self._heavy.pop(holder, None)

    # Connections.

    def to_close_for(self, newcomer: Link) -> list[Link]:
        """The connections that are cheapest to lose; if there are none, the newcomer."""
        self._look()
        claims = {
            link: self._claim(connection)
            for link, connection in self._links.items()
            if link is not newcomer
        }
        chosen = cheapest(claims, EVICTED_AT_ONCE)
        return [newcomer] if not chosen and not newcomer.dialled else chosen

    def _claim(self, connection: Connection) -> Claim:
        link = connection.link
        neighbour = self._neighbours.get(link.peer)
        is_used = neighbour is not None and neighbour.connection is connection
        used_s = link.opened_s
        if neighbour is not None and is_used:
            used_s = max(used_s, neighbour.said_s, neighbour.heard_s)
        if is_used and link.peer in self._relied_on:
            worth = Worth.RELIED_ON
        elif is_used and link.peer in self._served:
            worth = Worth.SERVED
        elif link.dialled or link.is_held:
            worth = Worth.DIALLED
        elif connection.hello is None and trio.current_time() > link.opened_s + HELLO_GRACE_S:
            worth = Worth.SILENT
        else:
            worth = Worth.STRANGER
        return Claim(worth, used_s, link.place)

    # Bytes.

    def to_drop(self, holder: Holder) -> list[Holder]:
        """One holds much: those that are to lose all of it where there is too much."""
        self._heavy[holder] = None
        held = {each: _bytes_of(each) for each in self._heavy}
        held = {each: size for each, size in held.items() if size > NOTED_BYTES}
        self._heavy = dict.fromkeys(held)
        dropped: list[Holder] = []
        if sum(held.values()) > STRANGERS_BYTES_MAX:
            if trio.current_time() > self._looked_s + LOOK_S:
                self._look()
            dropped += self._over(filter(self._is_stranger, held), STRANGERS_BYTES_MAX)
            dropped += self._over(filter(self._is_child, held), CHILDREN_BYTES_MAX)
            left = (each for each in held if each not in dropped)
            dropped += self._over(left, HELD_BYTES_MAX)
        return dropped

    def _over(self, holders: Iterable[Holder], bytes_max: int) -> list[Holder]:
        """Those that have to go so that the others hold no more than this."""
        held = {each: _bytes_of(each) for each in holders}
        dropped: list[Holder] = []
        while sum(held.values()) > bytes_max:
            chosen = heaviest(held, self._place_of)
            del held[chosen]
            dropped.append(chosen)
        return dropped

    def _is_stranger(self, holder: Holder) -> bool:
        if holder.peer in self._relied_on or holder.peer in self._served:
            return False
        return isinstance(holder, Link) or self._book.namer_of(holder.peer) is not None

    def _is_child(self, holder: Holder) -> bool:
        return holder.peer in self._served and holder.peer not in self._relied_on

    def _place_of(self, holder: Holder) -> str:
        """Whose doing it is: of a peer that is being dialled, the place that named it."""
        if isinstance(holder, Link):
            return holder.place
        return self._book.namer_of(holder.peer) or ""


def _bytes_of(holder: Holder) -> int:
    if isinstance(holder, Link):
        return holder.pinned_bytes if holder.is_open else 0
    return holder.waiting_bytes
