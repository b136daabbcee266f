"""First contacts: the peers through which a node returns to the network after a restart.

Bootstrap peers are those that the operator named. They are on the disk, in the order in which they
were named, the newest first.
"""

from collections.abc import Iterable, Sequence

from msgspec import msgpack

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.limits import ADDRESSES_MAX
from pulsarcast.protocol.messages import Contact
from pulsarcast.protocol.store import PutState, StateRow

BOOTSTRAP_MAX = 64
"""Bounds the bootstrap peers that are kept; the one that was named longest ago goes first."""

TABLE = "bootstrap"


class FirstContacts:
    """The peers that the node tries first."""

    __slots__ = ("_bootstrap", "_me")

    def __init__(self, me: PeerId) -> None:
        self._me = me
        self._bootstrap: tuple[Contact, ...] = ()

    @property
    def bootstrap(self) -> tuple[Contact, ...]:
        """The bootstrap peers, the newest first."""
        return self._bootstrap

    def restore(self, rows: Iterable[StateRow]) -> None:
        """Read what the disk remembers."""
        self._bootstrap = bootstrap_in(rows)

    def add(self, contacts: Iterable[Contact]) -> list[PutState]:
        """Take bootstrap peers; returns what the disk has to keep: nothing if it is kept already.

        A peer that is named again gets the new addresses before those that it had.
        """
        known = dict(self._bootstrap)
        named: dict[PeerId, tuple[str, ...]] = {}
        for peer, addresses in contacts:
            if peer != self._me:
                merged = (*named.get(peer, ()), *addresses, *known.get(peer, ()))
                named[peer] = tuple(dict.fromkeys(merged))[:ADDRESSES_MAX]
        if all(known.get(peer) == addresses for peer, addresses in named.items()):
            return []
        both = {**named, **{peer: known[peer] for peer in known if peer not in named}}
        self._bootstrap = tuple(Contact(*each) for each in both.items())[:BOOTSTRAP_MAX]
        return [PutState(StateRow(TABLE, b"", _pack(self._bootstrap)))]


def bootstrap_in(rows: Iterable[StateRow]) -> tuple[Contact, ...]:
    """The bootstrap peers that a disk keeps."""
    return next((_unpack(row.value) for row in rows if row.table == TABLE), ())


def _pack(contacts: Sequence[Contact]) -> bytes:
    return msgpack.encode(contacts)


def _unpack(value: bytes) -> tuple[Contact, ...]:
    packed = msgpack.decode(value, type=list[tuple[bytes, tuple[str, ...]]])
    return tuple(Contact(PeerId(peer), addresses) for peer, addresses in packed)
