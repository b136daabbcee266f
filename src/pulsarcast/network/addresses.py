"""Where peers can be dialled: what they say themselves, and what others say of them.

The core knows peers by their ids alone. Contacts in messages get their addresses here, on their
way out, and leave them here on their way in. What a peer says of itself, on a connection that
proves who it is, stands before all hearsay: a liar can add an address that leads nowhere, and never
take away one that leads somewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import PeerId, parse_peer
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
from pulsarcast.wire.limits import ADDRESSES_MAX

KNOWN_MAX: Final = 8192
"""Peers whose addresses are remembered; the one not heard of for longest goes first."""
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
_WITH_CONTACTS: Final = frozenset((*_MANY, *_ONE))


class AddressBook:
    """The addresses of the peers that we have heard of."""

    def __init__(self) -> None:
        self._own: dict[PeerId, tuple[str, ...]] = {}
        self._hearsay: dict[PeerId, tuple[str, ...]] = {}

    def __len__(self) -> int:
        """How many peers we could dial."""
        return len(self._own.keys() | self._hearsay.keys())

    def of(self, peer: PeerId) -> tuple[str, ...]:
        """Where to dial a peer, the surest first."""
        own = self._own.get(peer, ())
        return own + tuple(text for text in self._hearsay.get(peer, ()) if text not in own)

    def told_by_itself(self, peer: PeerId, addresses: tuple[str, ...]) -> None:
        """A peer says where it is."""
        if addresses:
            _put(self._own, peer, addresses[:ADDRESSES_MAX])

    def heard(self, contact: Contact) -> None:
        """Somebody says where a peer is."""
        if contact.addresses:
            known = self._hearsay.get(contact.peer, ())
            merged = dict.fromkeys((*contact.addresses, *known))
            _put(self._hearsay, contact.peer, tuple(merged)[:HEARSAY_MAX])

    def learn(self, message: Message) -> None:
        """Take the addresses out of a message that came."""
        if type(message) in _WITH_CONTACTS:
            for contact in _contacts(message):
                self.heard(contact)

    def fill(self, message: Message) -> Message:
        """A message with the addresses of those it names."""
        kind = type(message)
        if kind not in _WITH_CONTACTS:
            return message
        name = _MANY.get(kind)
        if name is not None:
            contacts: tuple[Contact, ...] = getattr(message, name)
            return replace(message, **{name: self._fill(contacts)}) if contacts else message
        assert isinstance(message, _ONE)
        if message.contact is None:
            return message
        return replace(message, contact=self._fill((message.contact,))[0])

    def _fill(self, contacts: Iterable[Contact]) -> tuple[Contact, ...]:
        return tuple(Contact(peer, self.of(peer) or said) for peer, said in contacts)


def _contacts(message: Message) -> Iterable[Contact]:
    name = _MANY.get(type(message))
    if name is not None:
        contacts: tuple[Contact, ...] = getattr(message, name)
        return contacts
    assert isinstance(message, _ONE)
    return () if message.contact is None else (message.contact,)


def _put(table: dict[PeerId, Any], peer: PeerId, addresses: tuple[str, ...]) -> None:
    table.pop(peer, None)
    table[peer] = addresses
    if len(table) > KNOWN_MAX:
        del table[next(iter(table))]


def parse_contact(text: str) -> Contact:
    """A peer and its address, from `/ip4/…/tcp/…/p2p/PEER`."""
    address, separator, peer = text.rpartition("/p2p/")
    if not separator:
        raise LocalError(f"not an address with a peer in it, as /ip4/…/tcp/…/p2p/PEER: {text!r}")
    return Contact(parse_peer(peer), (address,))
