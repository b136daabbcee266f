"""Kademlia: connects the parts of one node's DHT (docs/spec/pulsarcast.md, The DHT).

The parts are: known peers (`routing`, `membership`), finding closer peers (`lookup`, `lookups`),
waiting for answers (`calls`), placing blocks (`placing`), keeping them (`blocks`), keeping replicas
alike (`replication`), mutable `pointers`, `listings` of topics, and the marks of versions
(`mark_pages`). All that it holds is bounded.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol, assert_never

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.ids import Cid, PeerId, cid_key, cid_of
from pulsarcast.model.keys import Key
from pulsarcast.model.listings import Listing
from pulsarcast.model.pointers import Named
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.blocks import Blocks, BlocksOwner
from pulsarcast.protocol.dht.calls import Calls
from pulsarcast.protocol.dht.expiry import Lifetime
from pulsarcast.protocol.dht.hot_blocks import HotBlocks
from pulsarcast.protocol.dht.listings import Listings
from pulsarcast.protocol.dht.lookup import Lookup
from pulsarcast.protocol.dht.lookups import Lookups
from pulsarcast.protocol.dht.mark_pages import MarkPages
from pulsarcast.protocol.dht.membership import Membership
from pulsarcast.protocol.dht.placing import Placing
from pulsarcast.protocol.dht.pointers import Pointers, PointersOwner
from pulsarcast.protocol.dht.reachability import Reachability, ReachOwner
from pulsarcast.protocol.dht.replication import ANNOUNCED, Replication
from pulsarcast.protocol.dht.routing import RoutingTable, Seen
from pulsarcast.protocol.dht.showing import Showing
from pulsarcast.protocol.inputs import PeerUp
from pulsarcast.protocol.messages import (
    BlockFound,
    CompareKeys,
    Contact,
    DhtMessage,
    FindBlock,
    FindListings,
    FindPeers,
    FindPointer,
    KeysDiffer,
    ListingsFound,
    Peers,
    PointerFound,
    StoreBlocks,
    Stored,
    StoreListings,
    StorePointer,
    WantBlocks,
)
from pulsarcast.protocol.store import Block, LoadBlock, PutBlock, StateRow


class KademliaOwner(BlocksOwner, PointersOwner, ReachOwner, Protocol):
    """What the DHT asks of the node that it belongs to."""


class Kademlia:
    """One node's part in the DHT."""

    __slots__ = (
        "_blocks",
        "_calls",
        "_listings",
        "_lookups",
        "_membership",
        "_owner",
        "_parameters",
        "_placing",
        "_pointers",
        "_replication",
        "_table",
        "_turn",
        "marks",
        "reachability",
    )

    def __init__(self, context: Context, owner: KademliaOwner) -> None:
        table = RoutingTable(
            context.turn.me,
            bucket_size=context.parameters.bucket_size,
            retry_s=context.parameters.contact_retry_s,
        )
        calls = Calls(context, table, self._failed)
        lookups = Lookups(context, table, calls)
        self.reachability = context.part(Reachability)(context, self)
        """Who can be dialled: the node itself, and which connected peers."""
        blocks = Blocks(context, table, HotBlocks(context, self), self.reachability, owner)
        self._owner = owner
        self._turn = context.turn
        self._parameters = context.parameters
        self._table = table
        self._calls = calls
        self._lookups = lookups
        self._blocks = blocks
        self._membership = Membership(context, table, calls, lookups)
        self._placing = Placing(context, calls, lookups, table, blocks, self.reachability)
        self._replication = Replication(context, table, calls, blocks)
        showing = Showing(context, table, calls, lookups)
        self._pointers = Pointers(context, table, lookups, showing, owner)
        self._listings = Listings(context, table, lookups, showing)
        self.marks = MarkPages(context, blocks, self._placing, self.find_block)
        """The frontiers that versions of topics name."""

    # Known peers.

    def start(
        self,
        contacts: Sequence[Contact],
        rows: Sequence[StateRow] = (),
        reach: Reach = Reach.UNKNOWN,
        known: Sequence[Contact] = (),
    ) -> None:
        """Find the node's place among the peers; `rows` are what the disk remembers.

        A node that is given `known` peers has its place, and the blocks that belong there.
        """
        for contact in known:
            self._table.saw(contact, self._turn.now)
        self.reachability.start(reach)
        self._pointers.restore(rows)
        self._listings.restore(rows)
        self._membership.start(contacts, rows, has_joined=bool(known))
        self._replication.start(fresh=not known)
        self._tend_later()

    def stop(self) -> None:
        """The node stops: write down who is a good contact."""
        self._membership.remember()

    def up(self, given: PeerUp) -> None:
        """A peer is connected."""
        self.reachability.up(given)
        if self.reachability.is_listed(given.contact.peer):
            self._membership.up(given.contact, given.place, reached=given.reached)
        self._list(given.contact)

    def saw(self, contact: Contact) -> None:
        """A peer is connected, or sent a message: it is known, if others can dial it."""
        if contact.peer in self.reachability.unlisted:
            return
        seen = self._table.saw(contact, self._turn.now)
        if seen is Seen.NEW:
            self._replication.changed(contact.peer)
        elif seen is Seen.RETURNED:
            self._replication.changed(contact.peer)
            self._membership.returned()

    def lost(self, peer: PeerId) -> None:
        """A connection ended, or could not be made."""
        self.reachability.lost(peer)
        self._failed(Contact(peer))
        self._calls.lost(peer)

    def fell_silent(self, peer: PeerId) -> None:
        """A connected peer is suspected: it counts as failed, and its answers as lost."""
        self._failed(Contact(peer))
        self._calls.lost(peer)

    def spoke_again(self, peer: PeerId) -> None:
        """A suspected peer is alive."""
        self.saw(Contact(peer))

    def own_reach_changed(self) -> None:
        """The node can be dialled in another way."""
        self._owner.own_reach_changed()

    def reach_changed(self, contact: Contact) -> None:
        """A connected peer can be dialled in another way."""
        self._list(contact)
        self._owner.reach_changed(contact)

    def _list(self, contact: Contact) -> None:
        """A connected peer said what its reach is: it is listed now, or no longer."""
        if self.reachability.is_listed(contact.peer):
            self.saw(contact)
        elif self._table.remove(contact.peer):
            self._replication.changed(contact.peer)

    @property
    def known_count(self) -> int:
        """How many peers are known to be alive."""
        return len(self._table)

    @property
    def known_with_room_count(self) -> int:
        """How many of them have not refused a block of late."""
        return max(0, len(self._table) - self._placing.full_count)

    @property
    def is_placing_much(self) -> bool:
        """Whether so much is on its way to replicas that a publisher should wait."""
        return self._placing.is_busy

    @property
    def bootstrap(self) -> tuple[Contact, ...]:
        """The peers that the operator named, the newest first."""
        return self._membership.bootstrap

    def add_bootstrap(self, contacts: Sequence[Contact], then: Callable[[], None]) -> None:
        """Try more bootstrap peers, now and after every restart; `then` runs once that is kept."""
        self._membership.add_bootstrap(contacts, then)

    def knows(self, peer: PeerId) -> bool:
        """Whether a peer is known to be alive."""
        return peer in self._table

    @property
    def remembered_count(self) -> int:
        """How many peers are remembered from connections, besides the bootstrap peers."""
        return self._membership.remembered_count

    @property
    def is_joining(self) -> bool:
        """Whether the node still tries to reach its first contacts."""
        return self._membership.is_joining

    def closest_known(
        self, key: Key, count: int = 1, exclude: Collection[PeerId] = ()
    ) -> list[Contact]:
        """The live contacts closest to a key, never the node itself."""
        return self._table.closest(key, count, exclude)

    def footprint(self) -> dict[str, int]:
        """How many entries each part has in memory."""
        return {
            **self._table.footprint(),
            **self.reachability.footprint(),
            **self._placing.footprint(),
            **self._replication.footprint(),
            **self.marks.footprint(),
            "dht_remembered": self._membership.remembered_count,
            "dht_calls": len(self._calls),
            "dht_lookups": len(self._lookups),
            "dht_held": len(self._blocks),
            "dht_pointers": len(self._pointers),
            "dht_listings": len(self._listings),
        }

    def _failed(self, contact: Contact) -> None:
        self._membership.failed(contact.peer)
        if self._table.failed(contact, self._turn.now):
            self._replication.changed(contact.peer)

    def _tend_later(self) -> None:
        self._turn.after(self._turn.jitter(self._parameters.contact_retry_s), self._tend)

    def _tend(self) -> None:
        self._tend_later()
        self._membership.tend()
        self._pointers.spread_next()
        self._listings.tend()

    # Looking up.

    def lookup(self, key: Key, then: Callable[[list[Contact]], None]) -> None:
        """Find the peers closest to a key: at least r if there are as many, at most k."""
        bucket_size = self._parameters.bucket_size
        self._lookups.find_peers(
            key,
            lambda lookup: then(lookup.closest(bucket_size)),
            count=self._parameters.replicas,
        )

    def find_block(self, cid: Cid, then: Callable[[bytes | None], None]) -> None:
        """Find a block in the DHT: the first copy that has the CID will do."""
        found: bytes | None = None

        def judge(_: Contact, answer: DhtMessage) -> bool:
            nonlocal found
            assert isinstance(answer, BlockFound)
            if answer.block is None:
                return False
            if cid_of(answer.block) != cid:
                raise RemoteError(
                    "a block that is not the one asked for", code=Rejection.NOT_ASKED_FOR
                )
            found = answer.block
            return True

        def looked_up(_: Lookup) -> None:
            if found is None:
                # No other peer has it, or there is none: the node itself may be a replica.
                self._turn.load(LoadBlock(cid), Block, lambda answer: then(answer.block))
            else:
                then(found)

        # Replicas may have moved since it was stored, so a few more than r are asked.
        self._lookups.find(
            cid_key(cid),
            FindBlock(0, cid),
            looked_up,
            judge=judge,
            count=min(self._parameters.bucket_size, 2 * self._parameters.replicas + 2),
        )

    def want_blocks(
        self, peer: PeerId, cids: Sequence[Cid], then: Callable[[tuple[bytes, ...] | None], None]
    ) -> None:
        """Ask one peer for blocks; `then` gets those that it sends, or None without an answer."""

        def answered(answer: DhtMessage | None) -> None:
            then(answer.blocks if isinstance(answer, StoreBlocks) else None)

        self._calls.ask(Contact(peer), WantBlocks(0, tuple(cids)), answered)

    # Storing.

    def store(
        self,
        blocks: Sequence[bytes],
        then: Callable[[list[int]], None],
        *,
        keep_local: bool = True,
        also: Sequence[PeerId] = (),
    ) -> None:
        """Place blocks on the r peers closest to each; `then` gets how many keep each on disk.

        The node counts as one of the r if it is among them, or closer ones refuse, unless told not
        to keep it. Peers to ask `also` count where fewer than r others can be dialled. `then` may
        be called at once.
        """
        self._placing.store(blocks, then, keep_local=keep_local, also=also)

    def has_room_for(self, peer: PeerId) -> bool:
        """Whether what the node keeps for a peer may find room on the disk."""
        return self._blocks.has_room_for(peer)

    def found_no_room(self, place: str) -> None:
        """The disk has left out what the node keeps for a peer at this place."""
        self._blocks.found_no_room(place)

    def own_replica(self, cid: Cid, block: bytes, lifetime: Lifetime) -> PutBlock | None:
        """The write by which the node keeps a block as one of the r peers closest to it.

        None if it is none of them, or does not know. It can join the commit that comes before
        `store`, which then has none of its own to wait for; `kept` says that it is on the disk.
        """
        if not self._placing.is_own(cid_key(cid)):
            return None
        return self._blocks.own_replica(cid, block, lifetime)

    def kept(self, replica: PutBlock) -> None:
        """The node's own replica is on the disk."""
        self._blocks.kept(replica)

    def put_pointer(self, named: Named, then: Callable[[int], None]) -> None:
        """Place a name's pointers on the r peers closest; `then` gets how many keep them on disk.

        A keeper of a newer pointer does not count.
        """
        self._pointers.place(named, then)

    def get_pointer(self, author: PeerId, name: str, then: Callable[[Named | None], None]) -> None:
        """Find the newest pointer of an author and name, and store it at replicas that lack it."""
        self._pointers.find(author, name, then)

    def put_listings(
        self, key: Key, listings: Sequence[Listing], then: Callable[[int], None]
    ) -> None:
        """Place listings on the r peers closest to a key; `then` gets how many keep some."""
        self._listings.place(key, listings, then)

    def find_listings(
        self, keys: Sequence[Key], then: Callable[[list[Listing], bool], None]
    ) -> None:
        """Find the listings under any of the keys, and whether there may be others."""
        self._listings.find(keys, then)

    # Messages.

    def receive(self, sender: PeerId, message: DhtMessage) -> None:
        """Take a peer's message; raises RemoteError if the peer should not have sent it."""
        self.saw(Contact(sender))
        match message:
            case FindPeers():
                self._name_closest(sender, message)
            case Peers() | BlockFound() | Stored() | PointerFound() | ListingsFound():
                self._calls.answer(sender, message.request, message)
            case FindBlock():
                self._blocks.answer(sender, message)
            case StoreBlocks(request=request):
                # Blocks that this node wanted come with an odd number and need no answer.
                if not self._calls.answer(sender, request, message) and request % 2 == 0:
                    self._blocks.receive(sender, message)
            case FindPointer():
                self._pointers.answer(sender, message)
            case StorePointer():
                self._pointers.receive(sender, message)
            case FindListings():
                self._listings.answer(sender, message)
            case StoreListings():
                self._listings.receive(sender, message)
            case CompareKeys():
                self._replication.answer_compare(sender, message)
            case WantBlocks():
                self._replication.answer_wanted(sender, message)
            case KeysDiffer(request=request):
                if request == ANNOUNCED:
                    self._replication.look_through(Contact(sender), message)
                else:
                    self._calls.answer(sender, request, message)
            case _ as unreachable:
                assert_never(unreachable)

    def _name_closest(self, sender: PeerId, question: FindPeers) -> None:
        """Name the known peers closest to a key, but the one that asks."""
        most = self._parameters.bucket_size
        count, key = question.count, question.key
        closest = self._table.closest(key, min(count or most, most), (sender,))
        asked_for = self.reachability.relayed_at(key)
        if asked_for is not None and asked_for.peer != sender:
            closest = [asked_for, *closest[: most - 1]]
        self._turn.send(sender, Peers(question.request, tuple(closest)))
