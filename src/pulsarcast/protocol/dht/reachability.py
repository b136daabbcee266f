"""Reachability: whether others can dial the node, and which connected peers can be dialled.

docs/spec/reach.md. A node asks peers that it dialled to dial it back (AutoNAT's way). A direct
connection that comes in from elsewhere proves as much. The newest reports of different places
decide by majority, so one liar moves nothing while others report.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from pulsarcast.model.ids import PeerId, is_closer, peer_key
from pulsarcast.model.keys import Key
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.effects import DialBack
from pulsarcast.protocol.inputs import PeerUp
from pulsarcast.protocol.messages import (
    Contact,
    DialAnswer,
    DialCode,
    DialMe,
    ReachChanged,
    ReachMessage,
)

ASKED_MAX = 3
"""Bounds the peers asked at a time for a dial-back."""
REPORTS_MAX = 3
"""The newest reports that decide, of different places: the smallest number with a majority that one
liar cannot turn."""
ANSWER_S_MAX = 30.0
"""How long a dial-back may take: a dial and its handshake, and a wait for a place among them."""
RETRY_S = 30.0
"""Interval between tries of a node that does not know its reach yet."""
BUSY_S = 3.0
"""The same where every peer that was asked had too many others to dial."""
RENEW_S = 120.0
"""Interval between tries of a node that knows it: a firewall may begin to drop dials any time."""
REPORT_S_MAX = 2 * RENEW_S
"""How long a report counts beside newer ones: those who made it may not be there to ask again."""
DIAL_BACKS_MAX = 4
"""Bounds the dial-backs that the node carries out at a time for others."""
DIAL_BACK_S = 60.0
"""Shortest interval between two dial-backs for one peer."""
SERVED_MAX = 1024
"""Bounds the peers remembered to have been dialled back lately."""
CONNECTED_MAX = 4096
"""Bounds the peers whose reach is remembered: drivers end idle connections to public peers without
a word. A driver allows fewer connections than this."""


class ReachOwner(Protocol):
    """What reachability tells its owner."""

    def own_reach_changed(self) -> None:
        """The node's own reach is another one."""

    def reach_changed(self, contact: Contact) -> None:
        """A connected peer's reach is another one."""


class Report(NamedTuple):
    """A peer was able to dial the node, or was not."""

    peer: PeerId
    place: str
    near: bool
    reached: bool
    address: str
    """Where the node was reached, as far as the peer says so."""
    at_us: int
    """When, by this node's wall clock."""


class _Peer:
    """A connected peer, as far as dialling goes."""

    __slots__ = ("contact", "dialled", "near", "place", "reach", "relayed")

    def __init__(self, given: PeerUp) -> None:
        self.contact = given.contact
        self.reach = given.reach
        self.place = given.place
        self.near = given.near
        self.relayed = given.relayed
        self.dialled = given.reached and not given.relayed
        """Whether the node dialled it directly."""


class Reachability:
    """What the node knows of its own reach, and of its peers'."""

    __slots__ = (
        "_asked",
        "_declared",
        "_dialling",
        "_found",
        "_owner",
        "_peers",
        "_relayed",
        "_relayed_peers",
        "_served",
        "_timer",
        "_turn",
        "_was_dialled",
        "reach",
        "reports",
        "since_us",
        "unlisted",
    )

    def __init__(self, context: Context, owner: ReachOwner) -> None:
        self._turn = context.turn
        self._owner = owner
        self.reach = Reach.UNKNOWN
        """The node's own, as it tells others."""
        self._found = Reach.UNKNOWN
        """The same without relays."""
        self._declared = False
        self._relayed = False
        self._peers: dict[PeerId, _Peer] = {}
        self.unlisted: dict[PeerId, None] = {}
        """The connected peers that belong in no routing table."""
        self._relayed_peers: dict[Key, PeerId] = {}
        """The connected peers that others can dial through relays alone, by their keys."""
        self.since_us = 0
        """When the node's own reach changed last."""
        self.reports: dict[str, Report] = {}
        """The reports that decide, by place, the newest last."""
        self._asked: dict[PeerId, int] = {}
        """The peers that were asked and have yet to answer, with the number of the question."""
        self._dialling: dict[PeerId, int] = {}
        """The peers that the driver dials back, with the number of their question."""
        self._served: dict[PeerId, float] = {}
        """When each was dialled back last."""
        self._timer: int | None = None
        self._was_dialled = False
        """Whether a peer from afar has dialled the node since it asked last."""

    def start(self, reach: Reach) -> None:
        """Begin; a reach that the driver knows for sure is not looked for."""
        self._found = reach
        self._declared = reach is not Reach.UNKNOWN
        self._decide()
        if not self._declared:
            self._ask()

    @property
    def outside(self) -> str:
        """The address at which most reports from afar that name one reached the node, or none."""
        afar = (report for report in self.reports.values() if not report.near)
        named = Counter(report.address for report in afar if report.address)
        address, count = next(iter(named.most_common(1)), ("", 0))
        return address if 2 * count > named.total() else ""

    def footprint(self) -> dict[str, int]:
        """How many entries are in memory."""
        return {
            "reach_peers": len(self._peers),
            "reach_calls": len(self._asked) + len(self._dialling) + len(self._served),
        }

    # Peers.

    def up(self, given: PeerUp) -> None:
        """A peer is connected."""
        peer = given.contact.peer
        self._peers.pop(peer, None)
        known = self._peers[peer] = _Peer(given)
        self._note(peer, known)
        if len(self._peers) > CONNECTED_MAX:
            public = (each for each, it in self._peers.items() if it.reach is Reach.PUBLIC)
            self._forget(next(public, next(iter(self._peers))))
        if self._declared:
            return
        if not given.reached and not given.relayed:
            self._was_dialled |= not known.near
            self._report(peer, known, reached=True)
        if known.dialled and not self._is_proven and len(self._asked) < ASKED_MAX:
            self._ask_one(peer)

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""
        self._forget(peer)
        self._asked.pop(peer, None)

    def _note(self, peer: PeerId, known: _Peer) -> None:
        reach = known.reach
        if reach is Reach.PUBLIC or (reach is Reach.UNKNOWN and known.dialled):
            self.unlisted.pop(peer, None)
        else:
            self.unlisted[peer] = None
        if known.reach is Reach.RELAYED:
            self._relayed_peers[peer_key(peer)] = peer
        else:
            self._relayed_peers.pop(peer_key(peer), None)

    def _forget(self, peer: PeerId) -> None:
        self._peers.pop(peer, None)
        self.unlisted.pop(peer, None)
        self._relayed_peers.pop(peer_key(peer), None)

    def of(self, peer: PeerId) -> Reach:
        """What a connected peer says of itself; a peer that is not connected is only hearsay."""
        known = self._peers.get(peer)
        return Reach.UNKNOWN if known is None else known.reach

    def relayed_at(self, key: Key) -> Contact | None:
        """The connected peer with this key, if others can dial it through a relay alone."""
        peer = self._relayed_peers.get(key)
        return None if peer is None else self._peers[peer].contact

    def is_connected(self, peer: PeerId) -> bool:
        """Whether there is a connection to a peer."""
        return peer in self._peers

    def connected(self) -> Iterator[PeerId]:
        """The connected peers, the newest connection last."""
        return iter(self._peers)

    def is_listed(self, peer: PeerId) -> bool:
        """Whether a peer may be in a routing table, keep replicas and act as root.

        A peer that is not connected is one that others list.
        """
        return peer not in self.unlisted

    def is_public(self, peer: PeerId) -> bool:
        """Whether a peer, or the node itself, may keep trees and replicas for others."""
        return self.reach is Reach.PUBLIC if peer == self._turn.me else self.is_listed(peer)

    def ranks_before(self, peer: PeerId, other: PeerId, key: Key) -> bool:
        """Whether a peer acts as root rather than another one: public peers first, then by key."""
        public = self.is_public(peer)
        return is_closer(peer, other, key) if public is self.is_public(other) else public

    @property
    def is_private(self) -> bool:
        """Whether the node knows that no peer can dial it directly."""
        return self.reach in (Reach.PRIVATE, Reach.RELAYED)

    def in_reserve(self, key: Key) -> list[PeerId]:
        """The connected peers that are not listed, those closest to a key first."""
        return sorted(self.unlisted, key=lambda peer: peer_key(peer) ^ key)

    def one_per_place(self, peers: Iterable[PeerId]) -> list[PeerId]:
        """The connected and unlisted of some peers, at most one that a relay of one place carries.

        A relay that ends would take all copies behind it away at once.
        """
        found: dict[str | PeerId, PeerId] = {}
        for peer in peers:
            known = self._peers.get(peer)
            if known is not None and not self.is_listed(peer):
                found.setdefault(known.place if known.relayed else peer, peer)
        return list(found.values())

    def place_of(self, peer: PeerId) -> str:
        """The network prefix that a connected peer's end of the connection has."""
        known = self._peers.get(peer)
        return "" if known is None else known.place

    def is_dialable(self, peer: PeerId) -> bool:
        """Whether others may be told to dial a peer."""
        known = self._peers.get(peer)
        return known is None or known.reach is Reach.RELAYED or self.is_listed(peer)

    # Messages and reports.

    def receive(self, sender: PeerId, message: ReachMessage) -> None:
        """Take a peer's message."""
        match message:
            case DialMe(request):
                self._serve(sender, request)
            case DialAnswer():
                self._answered(sender, message)
            case ReachChanged(reach, addresses):
                known = self._peers.get(sender)
                if known is not None:
                    changed = known.reach is not reach
                    known.reach, known.contact = reach, Contact(sender, addresses)
                    self._note(sender, known)
                    if changed:
                        self._owner.reach_changed(known.contact)

    def dialled_back(self, peer: PeerId, address: str) -> None:
        """The driver has dialled a peer back: tell the peer what came of it."""
        request = self._dialling.pop(peer, None)
        if request is not None and peer in self._peers:
            code = DialCode.REACHED if address else DialCode.NOT_REACHED
            self._turn.send(peer, DialAnswer(request, code, address))

    def relayed(self, held: bool) -> None:
        """A relay has a reservation for the node, perhaps another one, or none has any more."""
        again = held and self._relayed
        self._relayed = held
        self._decide()
        if again and self.reach is Reach.RELAYED:
            self._tell()

    def addresses_changed(self) -> None:
        """Ask anew; what was found out holds until the first answer."""
        self.reports.clear()
        if not self._declared:
            self._ask()

    # The node's own reach.

    @property
    def _is_proven(self) -> bool:
        """Whether reports say how the node is reached where it is now."""
        return bool(self.reports) and self._found is not Reach.UNKNOWN

    def _ask(self) -> None:
        """Ask some peers, at different places where there is a choice, and again later."""
        self._ask_after(RENEW_S if self._is_proven else RETRY_S)
        self._asked.clear()
        if self._found is Reach.PUBLIC and self._was_dialled and self.reports:
            self._was_dialled = False
            return
        places: set[str] = set()
        others: list[PeerId] = []
        for peer, it in self._peers.items():
            if it.dialled and it.place in places:
                others.append(peer)
            elif it.dialled and len(self._asked) < ASKED_MAX:
                places.add(it.place)
                self._ask_one(peer)
        for peer in others[: ASKED_MAX - len(self._asked)]:
            self._ask_one(peer)

    def _ask_after(self, delay_s: float) -> None:
        self._turn.cancel(self._timer)
        self._timer = self._turn.after(self._turn.jitter(delay_s), self._ask)

    def _ask_one(self, peer: PeerId) -> None:
        request = self._asked[peer] = self._turn.new_id()
        self._turn.send(peer, DialMe(request))

    def _answered(self, sender: PeerId, answer: DialAnswer) -> None:
        known = self._peers.get(sender)
        if known is None or self._asked.get(sender) != answer.request:
            return
        del self._asked[sender]
        if answer.code is not DialCode.BUSY:
            reached = answer.code is DialCode.REACHED
            self._report(sender, known, reached=reached, address=answer.address if reached else "")
        if not (self._asked or self._is_proven):
            self._ask_after(BUSY_S)

    def _report(self, peer: PeerId, known: _Peer, *, reached: bool, address: str = "") -> None:
        if any(not report.near for report in self.reports.values()):
            if known.near:
                return
        elif not known.near:
            self.reports.clear()
        since_us = self._turn.wall_us - round(REPORT_S_MAX * 1e6)
        for place in [place for place, it in self.reports.items() if it.at_us < since_us]:
            del self.reports[place]
        before = self.reports.pop(known.place, None)
        if before is not None and before.reached and reached:
            address = address or before.address
        self.reports[known.place] = Report(
            peer, known.place, known.near, reached, address, self._turn.wall_us
        )
        if len(self.reports) > REPORTS_MAX:
            del self.reports[next(iter(self.reports))]
        count = sum(report.reached for report in self.reports.values())
        if 2 * count != len(self.reports):
            self._found = Reach.PUBLIC if 2 * count > len(self.reports) else Reach.PRIVATE
        self._decide()

    def _decide(self) -> None:
        reach = self._found
        if reach is Reach.PRIVATE and self._relayed:
            reach = Reach.RELAYED
        if reach is not self.reach:
            self.reach = reach
            self.since_us = self._turn.wall_us
            self._tell()
            self._owner.own_reach_changed()

    def _tell(self) -> None:
        for peer in list(self._peers):
            self._turn.send(peer, ReachChanged(self.reach))

    # Dialling others back.

    def _serve(self, sender: PeerId, request: int) -> None:
        known = self._peers.get(sender)
        if known is None:
            return
        now = self._turn.now
        at_place = {it.place for peer in self._dialling if (it := self._peers.get(peer))}
        if (
            known.relayed
            or sender in self._dialling
            or len(self._dialling) >= DIAL_BACKS_MAX
            or (known.place and known.place in at_place)
            or self._served.get(sender, -DIAL_BACK_S) > now - DIAL_BACK_S
        ):
            self._turn.send(sender, DialAnswer(request, DialCode.BUSY))
            return
        self._served.pop(sender, None)
        self._served[sender] = now
        if len(self._served) > SERVED_MAX:
            del self._served[next(iter(self._served))]
        self._dialling[sender] = request
        self._turn.effects.append(DialBack(sender))
