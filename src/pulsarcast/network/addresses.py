"""Where peers can be dialled: what they say themselves, and what others say of them.

The core knows peers by their ids alone. Contacts in messages get their addresses here, on their
way out, and leave them here on their way in. What a peer says of itself, on a connection that
proves who it is, stands before all hearsay. The address at which we last reached a peer, and those
that the operator gave us, are kept apart: a liar can add addresses that lead nowhere, and with them
push out what others told and nobody has tried yet, but neither of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import PeerId, parse_peer
from pulsarcast.model.reach import Reach
from pulsarcast.network.multiaddrs import Scope, check_address, scope_of
from pulsarcast.protocol.limits import ADDRESSES_MAX
from pulsarcast.protocol.messages import (
    BlockFound,
    Contact,
    HandOver,
    JoinAccepted,
    JoinReferred,
    Members,
    Message,
    Peers,
    PointerFound,
    Status,
)

KNOWN_MAX: Final = 8192
"""Peers whose addresses are remembered; the one not heard of for longest goes first."""
CIRCUIT: Final = "/p2p-circuit"
"""A part of addresses that lead through a relay."""
HEARSAY_MAX: Final = 4
"""Addresses of a peer that others told."""

_MANY: Final[Mapping[type, str]] = {
    Peers: "contacts",
    BlockFound: "contacts",
    PointerFound: "contacts",
    JoinAccepted: "members",
    Status: "members",
    Members: "members",
}
_ONE: Final = (JoinReferred, HandOver)
WITH_CONTACTS: Final = frozenset((*_MANY, *_ONE))


class AddressBook:
    """The addresses of the peers that we have heard of."""

    def __init__(self) -> None:
        self._own: dict[PeerId, tuple[str, ...]] = {}
        self._reached: dict[PeerId, tuple[str, ...]] = {}
        self._given: dict[PeerId, tuple[str, ...]] = {}
        self._hearsay: dict[PeerId, tuple[str, ...]] = {}
        self._namers: dict[PeerId, str] = {}
        """The places that told what others say."""
        self._private: dict[PeerId, tuple[()]] = {}
        """Peers that say that nobody can dial them."""
        self._tables = (self._own, self._reached, self._given, self._hearsay)
        """The surest first."""

    def __len__(self) -> int:
        """How many peers we could dial."""
        return len(set[PeerId]().union(*self._tables))

    def of(self, peer: PeerId) -> tuple[str, ...]:
        """Where to dial a peer, the surest first."""
        return tuple(dict.fromkeys(text for each in self._tables for text in each.get(peer, ())))

    def given(self, contacts: Iterable[Contact]) -> None:
        """The operator says where these peers are, and no others."""
        self._given.clear()
        self._given.update(contacts)

    def reached(self, peer: PeerId, address: str) -> None:
        """We dialled a peer at an address, and there it was."""
        _put(self._reached, peer, (address,))

    def told_by_itself(
        self,
        peer: PeerId,
        addresses: tuple[str, ...],
        reach: Reach = Reach.UNKNOWN,
        *,
        near: bool = False,
    ) -> None:
        """A peer says where it is, and whether it can be dialled there.

        The addresses of a peer that cannot are of use in its own network only: elsewhere they lead
        to other hosts.
        """
        self._private.pop(peer, None)
        if reach is Reach.PRIVATE:
            _put(self._private, peer, ())
        if reach in (Reach.PRIVATE, Reach.RELAYED) and not near:
            addresses = tuple(each for each in addresses if CIRCUIT in each)
            self._own.pop(peer, None)
            self._hearsay.pop(peer, None)
        if addresses:
            _put(self._own, peer, addresses[:ADDRESSES_MAX])

    def is_private(self, peer: PeerId) -> bool:
        """Whether a peer has said that nobody can dial it."""
        return peer in self._private

    def heard(self, contact: Contact, place: str = "") -> None:
        """A peer of this place says where another is."""
        if contact.addresses:
            if place or contact.peer not in self._hearsay:
                _put(self._namers, contact.peer, place)
            known = self._hearsay.get(contact.peer, ())
            merged = dict.fromkeys((*contact.addresses, *known))
            _put(self._hearsay, contact.peer, tuple(merged)[:HEARSAY_MAX])

    def learn(self, message: Message, place: str, scope: Scope) -> Message:
        """Take the addresses out of a message that came; returns it with those that may be dialled.

        Its sender's own address has a scope: the sender cannot know what is inside a narrower one,
        and would send the node to services of its own machine or network.
        """
        if type(message) not in WITH_CONTACTS:
            return message
        if any(scope_of(text) < scope for each in _contacts(message) for text in each.addresses):
            message = _changed(message, partial(_within, scope))
        for contact in _contacts(message):
            self.heard(contact, place)
        return message

    def namer_of(self, peer: PeerId) -> str | None:
        """The place that told where a peer is; None: a surer one told it too."""
        is_sure = any(peer in table for table in (self._own, self._reached, self._given))
        return None if is_sure else self._namers.get(peer, "")

    def fill(self, message: Message) -> Message:
        """A message with the addresses of those it names."""
        return _changed(message, self._fill) if type(message) in WITH_CONTACTS else message

    def _fill(self, contacts: Iterable[Contact]) -> tuple[Contact, ...]:
        return tuple(
            # Whoever is told more addresses than anybody may have hangs up.
            Contact(peer, () if peer in self._private else self.of(peer)[:ADDRESSES_MAX] or said)
            for peer, said in contacts
        )


def _changed(
    message: Message, change: Callable[[Iterable[Contact]], tuple[Contact, ...]]
) -> Message:
    """A message with other addresses of those it names."""
    name = _MANY.get(type(message))
    if name is not None:
        contacts: tuple[Contact, ...] = getattr(message, name)
        return replace(message, **{name: change(contacts)}) if contacts else message
    assert isinstance(message, _ONE)
    if message.contact is None:
        return message
    return replace(message, contact=change((message.contact,))[0])


def _within(scope: Scope, contacts: Iterable[Contact]) -> tuple[Contact, ...]:
    """The contacts with those addresses that a peer of this scope can know."""
    return tuple(
        Contact(peer, tuple(each for each in addresses if scope_of(each) >= scope))
        for peer, addresses in contacts
    )


def _contacts(message: Message) -> Iterable[Contact]:
    name = _MANY.get(type(message))
    if name is not None:
        contacts: tuple[Contact, ...] = getattr(message, name)
        return contacts
    assert isinstance(message, _ONE)
    return () if message.contact is None else (message.contact,)


def _put(table: dict[PeerId, Any], peer: PeerId, value: object) -> None:
    table.pop(peer, None)
    table[peer] = value
    if len(table) > KNOWN_MAX:
        del table[next(iter(table))]


def parse_contact(text: str) -> Contact:
    """A peer and its address, from `/ip4/…/tcp/…/p2p/PEER`; raises LocalError where it is none."""
    address, separator, peer = text.rpartition("/p2p/")
    if not separator:
        raise LocalError(f"not an address of a peer, such as /ip4/…/tcp/…/p2p/PEER: {text!r}")
    contact = Contact(parse_peer(peer), (address,))
    check_address(address, contact.peer)
    return contact
