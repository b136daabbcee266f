"""First contacts: the peers through which a node returns to the network after a restart.

Bootstrap peers are those that the operator named, and stay. Remembered peers are those that the
node was connected to. Both are on the disk and bounded (docs/decisions/0037). A hostile peer with
many ids cannot push out the peers that a node remembers: a peer that still answers keeps its place,
and peers whose connections come from one network prefix share a few.
"""

from collections.abc import Collection, Iterable

from msgspec import Struct, msgpack

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.limits import ADDRESSES_MAX
from pulsarcast.protocol.messages import Contact
from pulsarcast.protocol.store import PutState, StateRow

BOOTSTRAP_MAX = 64
"""Bounds the bootstrap peers that are kept; the one that was named longest ago goes first."""
REMEMBERED_MAX = 64
"""Bounds the remembered peers: as many as one lookup can ask."""
PER_PLACE_MAX = 8
"""Bounds the remembered peers of one place: an operator of one network fills no more places."""
ADDRESSES_KEPT = 4
"""Bounds the addresses of a remembered peer: as many as the driver takes from hearsay."""
REMEMBERED_S_MAX = 30 * 86_400
"""How long a peer that no longer answers is remembered: as long as replicas keep a block."""
SILENT_S = 86_400
"""How long a peer that no longer answers keeps its place from others: a day off is common."""
WRITE_S = 3600
"""How often the times at which peers were last heard are written, if nothing else changes."""

BOOTSTRAP = "bootstrap"
REMEMBERED = "remembered"
_S = 1_000_000


class _Remembered(Struct, array_like=True):
    """A peer that the node was connected to."""

    peer: bytes
    addresses: tuple[str, ...]
    place: str
    reached: bool
    """Whether the node has dialled it."""
    heard_us: int
    failed: bool = False
    """Whether it was tried since, in vain. Of this life alone."""

    @property
    def contact(self) -> Contact:
        return Contact(PeerId(self.peer), self.addresses)


class FirstContacts:
    """The peers that the node tries first."""

    __slots__ = ("_bootstrap", "_changed", "_me", "_remembered", "_written_us")

    def __init__(self, me: PeerId) -> None:
        self._me = me
        self._bootstrap: tuple[Contact, ...] = ()
        self._remembered: dict[PeerId, _Remembered] = {}
        """Those remembered longest come first."""
        self._changed = False
        self._written_us = 0

    def __len__(self) -> int:
        """How many peers are remembered."""
        return len(self._remembered)

    @property
    def bootstrap(self) -> tuple[Contact, ...]:
        """The bootstrap peers, the newest first."""
        return self._bootstrap

    def all(self, count: int) -> tuple[Contact, ...]:
        """Bootstrap peers, and then remembered ones, the one heard last first."""
        named = {contact.peer for contact in self._bootstrap}
        heard = sorted(self._remembered.values(), key=lambda each: -each.heard_us)
        remembered = (each.contact for each in heard if each.peer not in named)
        return (*self._bootstrap, *remembered)[:count]

    def restore(self, rows: Iterable[StateRow]) -> None:
        """Read what the disk remembers."""
        for row in rows:
            if row.table == BOOTSTRAP:
                named = msgpack.decode(row.value, type=list[tuple[bytes, tuple[str, ...]]])
                self._bootstrap = tuple(Contact(PeerId(peer), where) for peer, where in named)
            elif row.table == REMEMBERED:
                for each in msgpack.decode(row.value, type=list[_Remembered]):
                    each.failed = False
                    self._remembered[PeerId(each.peer)] = each

    # Bootstrap peers.

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
        return [PutState(StateRow(BOOTSTRAP, b"", msgpack.encode(self._bootstrap)))]

    # Remembered peers.

    def up(self, contact: Contact, place: str, now_us: int, *, reached: bool) -> None:
        """A peer is connected: remember it, if there is room for it."""
        peer = contact.peer
        known = self._remembered.get(peer)
        addresses = contact.addresses[:ADDRESSES_KEPT]
        if known is not None and known.place == place:
            if known.reached and not reached:
                # The address at which it was reached stays the first.
                merged = dict.fromkeys((*known.addresses[:1], *addresses))
                addresses = tuple(merged)[:ADDRESSES_KEPT]
            now = (addresses or known.addresses, reached or known.reached)
            self._changed |= (known.addresses, known.reached) != now
            known.addresses, known.reached = now
            known.heard_us, known.failed = now_us, False
            return
        if known is not None:
            # It moved, and is counted where it is now.
            del self._remembered[peer]
            self._changed = True
        if (place and not addresses) or peer == self._me:
            return
        if self._has_room(place, now_us, reached=reached):
            new = _Remembered(peer, addresses, place, reached, now_us)
            self._remembered[peer] = new
            self._changed = True

    def _has_room(self, place: str, now_us: int, *, reached: bool) -> bool:
        """Whether there is room, perhaps since another peer gives way: the newest that does."""
        known = self._remembered.values()
        rivals = [each for each in known if each.place == place] if place else []
        if len(rivals) < PER_PLACE_MAX:
            if len(known) < REMEMBERED_MAX:
                return True
            rivals = list(known)
        silent_us = now_us - SILENT_S * _S
        for rival in reversed(rivals):
            if rival.failed and rival.heard_us < silent_us:
                break
        else:
            for rival in reversed(rivals):
                if reached and not rival.reached:
                    # Nobody knows whether it could be dialled.
                    break
            else:
                return False
        del self._remembered[PeerId(rival.peer)]
        return True

    def failed(self, peer: PeerId) -> None:
        """A peer did not answer, or its connection ended."""
        known = self._remembered.get(peer)
        if known is not None:
            known.failed = True

    def writes(self, live: Collection[PeerId], now_us: int) -> list[PutState]:
        """What the disk has to remember now: nothing, most of the time."""
        for peer, each in list(self._remembered.items()):
            if peer in live:
                each.heard_us = now_us
            elif each.failed and each.heard_us < now_us - REMEMBERED_S_MAX * _S:
                del self._remembered[peer]
                self._changed = True
        is_due = bool(self._remembered) and now_us >= self._written_us + WRITE_S * _S
        if not self._changed and not is_due:
            return []
        self._changed, self._written_us = False, now_us
        row = StateRow(REMEMBERED, b"", msgpack.encode(list(self._remembered.values())))
        return [PutState(row)]


def bootstrap_in(rows: Iterable[StateRow]) -> tuple[Contact, ...]:
    """The bootstrap peers that a disk keeps."""
    first = FirstContacts(PeerId(b""))
    first.restore(rows)
    return first.bootstrap
