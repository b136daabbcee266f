"""Membership: joins the DHT, and keeps the routing table current (Kademlia, 2.3).

A node looks up its own key at its start, through its first contacts, and once more a little later,
to find peers that joined at the same time. While no peer answers it tries again with back-off, for
ever. It also looks its key up when lost contacts return: half of the network may have.
"""

from collections.abc import Callable, Iterable, Sequence

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.calls import Calls
from pulsarcast.protocol.dht.first_contacts import FirstContacts
from pulsarcast.protocol.dht.lookup import HEARD_MAX, Lookup
from pulsarcast.protocol.dht.lookups import Lookups
from pulsarcast.protocol.dht.routing import RoutingTable
from pulsarcast.protocol.messages import Contact, FindPeers
from pulsarcast.protocol.store import StateRow

RETRIES = 8
"""Bounds the failed contacts that are tried at a time."""
JOIN_RETRY_S = 1.0
JOIN_RETRY_S_MAX = 60.0
"""Longest interval between joins of a node that no peer answers: a network that was away as a whole
is whole again within about a minute."""
JOIN_PARALLEL = 16
"""First contacts that a node without peers asks at a time: most may be gone. As many as a driver
dials at once."""
REMEMBERED_RETRY_S_MAX = 300.0
"""Longest interval between tries of remembered peers by a node that knows only few peers."""
REJOIN_S_MIN = 5.0
"""Shortest interval between lookups of the node's own key that returning contacts cause."""


class Membership:
    """Finds the node's neighbours, and goes on finding them."""

    __slots__ = (
        "_calls",
        "_first",
        "_found",
        "_joining",
        "_lookups",
        "_parameters",
        "_rejoin_after_s",
        "_remembered_after_s",
        "_remembered_retry_s",
        "_renew_s",
        "_retry",
        "_retry_s",
        "_table",
        "_turn",
    )

    def __init__(
        self, context: Context, table: RoutingTable, calls: Calls, lookups: Lookups
    ) -> None:
        self._turn = context.turn
        self._parameters = context.parameters
        self._table = table
        self._calls = calls
        self._lookups = lookups
        self._first = FirstContacts(context.turn.me)
        self._joining = True  # Until the start, nothing may cause a join.
        self._retry: int | None = None
        """The timer of the next join, where the last one found nobody."""
        self._retry_s = JOIN_RETRY_S
        self._remembered_after_s = 0.0
        self._remembered_retry_s = JOIN_RETRY_S
        self._rejoin_after_s = 0.0
        self._renew_s = 0.0
        self._found = False

    @property
    def is_joining(self) -> bool:
        """Whether the node has first contacts, and no peer has shown it its place yet."""
        return bool(self._first.all(1)) and not self._found

    @property
    def bootstrap(self) -> tuple[Contact, ...]:
        """The peers that the operator named."""
        return self._first.bootstrap

    def start(
        self,
        contacts: Sequence[Contact],
        rows: Iterable[StateRow] = (),
        *,
        has_joined: bool = False,
    ) -> None:
        """Join through the first contacts: those named now, and those that the disk remembers."""
        self._first.restore(rows)
        writes = self._first.add(contacts)
        if writes:
            self._turn.persist(*writes)
        self._table.keep(self._first.bootstrap)
        self._joining = False
        if has_joined:
            # The node has its place; others that start with it renew theirs at other times.
            self._found = True
            renewed_s = self._parameters.refresh_interval_s * self._turn.rng.random()
            self._renew_s = self._turn.now + renewed_s
        else:
            self._join()

    def add_bootstrap(self, contacts: Sequence[Contact], then: Callable[[], None]) -> None:
        """Try more bootstrap peers, now and after every restart; `then` runs once that is kept."""
        writes = self._first.add(contacts)
        self._table.keep(self._first.bootstrap)
        named = {contact.peer for contact in contacts}
        for contact in self._first.bootstrap:
            if contact.peer in named:
                self._calls.ask(contact, FindPeers(0, self._table.me), lambda _: self._join())
        self._retry_s = JOIN_RETRY_S
        if writes:
            self._turn.persist(*writes, then=then)
        else:
            then()

    @property
    def remembered_count(self) -> int:
        """How many peers are remembered from connections, besides the bootstrap peers."""
        return len(self._first)

    def up(self, contact: Contact, place: str, *, reached: bool) -> None:
        """A peer is connected."""
        self._first.up(contact, place, self._turn.wall_us, reached=reached)

    def failed(self, peer: PeerId) -> None:
        """A peer did not answer, or its connection ended."""
        self._first.failed(peer)

    def remember(self) -> None:
        """Write down who is a good contact, if that has changed."""
        live = {contact.peer for contact in self._table}
        writes = self._first.writes(live, self._turn.wall_us)
        if writes:
            self._turn.keep(*writes)

    def returned(self) -> None:
        """A lost contact came back: perhaps many did."""
        if self._turn.now >= self._rejoin_after_s:
            self._join()

    def tend(self) -> None:
        """Try lost contacts again, renew the neighbourhood, refresh a quiet bucket."""
        now = self._turn.now
        self.remember()
        for contact in self._table.to_retry(now, RETRIES):
            self._ping(contact)
        if len(self._table) < self._parameters.replicas:
            self._join()
            return
        if self._renew_s <= now:
            self._renew_s = now + self._parameters.refresh_interval_s
            count = 2 * self._parameters.replicas + 2
            self._lookups.find_peers(self._table.me, _nothing, count=count, thorough=True)
        self._refresh_quietest()

    def _join(self) -> None:
        """Look up the node's own key, so that its neighbours and the node know each other."""
        if self._joining:
            return
        self._joining = True
        self._rejoin_after_s = self._turn.now + REJOIN_S_MIN
        self._lookups.find_peers(
            self._table.me,
            self._joined,
            count=self._parameters.bucket_size,
            thorough=True,
            also=self._to_ask_too(),
            parallel=None if len(self._table) else JOIN_PARALLEL,
        )

    def _to_ask_too(self) -> tuple[Contact, ...]:
        """The first contacts that a join asks besides the known peers."""
        known, now = len(self._table), self._turn.now
        if known >= self._parameters.bucket_size:
            return ()
        if known >= self._parameters.replicas:
            self._remembered_retry_s = JOIN_RETRY_S
            return self._first.bootstrap
        if known and now < self._remembered_after_s:
            return self._first.bootstrap
        self._remembered_after_s = now + self._remembered_retry_s
        self._remembered_retry_s = min(2 * self._remembered_retry_s, REMEMBERED_RETRY_S_MAX)
        return self._first.all(HEARD_MAX)

    def _joined(self, lookup: Lookup) -> None:
        self._joining = False
        if lookup.closest(1):
            self._found = True
            self._retry_s = JOIN_RETRY_S
            self.remember()
            for index in self._table.empty():
                self._refresh(index)
        elif self._first.all(1):
            self._turn.cancel(self._retry)
            self._retry = self._turn.after(self._turn.jitter(self._retry_s), self._join)
            self._retry_s = min(2 * self._retry_s, JOIN_RETRY_S_MAX)

    def _refresh_quietest(self) -> None:
        now = self._turn.now
        quietest = self._table.quietest()
        if quietest is None or quietest[0] > now - self._parameters.refresh_interval_s:
            return
        _, index = quietest
        self._table.touch(index, now)
        self._refresh(index)
        oldest = self._table.to_check(index)
        if oldest is not None:
            self._ping(oldest)

    def _refresh(self, index: int) -> None:
        """Look up a random key of a bucket."""
        key = self._table.me ^ (1 << index | self._turn.rng.getrandbits(index or 1) % (1 << index))
        self._lookups.find_peers(key, _nothing, count=self._parameters.replicas)

    def _ping(self, contact: Contact) -> None:
        self._calls.ask(contact, FindPeers(0, self._table.me), _nothing)


def _nothing(_: object) -> None:
    """The peers that answered are in the routing table by now: nothing else is to do."""
