"""Blocks: keeps blocks for the DHT and hands them out (docs/spec/pulsarcast.md, The DHT).

A replica takes valid blocks, confirms them once they are on the disk, hands them out, and drops
them when their time is up (`expiry`). A peer that stores a topic's version again prolongs it;
repair between replicas does not. The disk may have no room for the blocks of strangers
(`storage.quota`): then the replica does not confirm them, and fetches none from their place for a
while. The replica remembers the newest blocks that it took, so that a block stored again is neither
written nor spread again. It also remembers the newest that were out of their time, so that it does
not ask a replica with a slower clock for them again and again.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from pulsarcast.model.errors import Rejection, RemoteError, Verdict
from pulsarcast.model.ids import Cid, PeerId, cid_key, cid_of
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.expiry import Lifetime
from pulsarcast.protocol.dht.hot_blocks import HotBlocks
from pulsarcast.protocol.dht.reachability import Reachability
from pulsarcast.protocol.dht.routing import RoutingTable
from pulsarcast.protocol.messages import BlockFound, Contact, FindBlock, StoreBlocks, Stored
from pulsarcast.protocol.store import Block, DropExpired, LoadBlock, PutBlock

HELD_MAX = 4096
"""Bounds the CIDs remembered to be on the disk; the oldest is forgotten first."""
OVER_MAX = 4096
"""Bounds the CIDs remembered to be out of their time; the oldest is forgotten first."""
FULL_S = 600.0
"""How long a replica fetches no block from a place whose blocks found no room: range repair would
fetch the same ones in every round. Blocks expire over days, so room does not come back sooner."""
FULL_MAX = 64
"""Bounds the places remembered to find no room; the oldest is forgotten first."""
NEVER_US = 1 << 63
BLOCKS_MAX = 256
"""Bounds the blocks in one message."""
WRITTEN_AGAIN = 10
"""A block's time is written anew once a tenth of what it may be prolonged by is gone: every
follower of a topic asks for it, one after the other."""


class BlocksOwner(Protocol):
    """Asked of the node that keeps the blocks."""

    def verify_block(self, block: bytes) -> tuple[Cid, Lifetime]:
        """A block's CID and lifetime; raises RemoteError if it is not valid."""

    def stored_block(self, block: bytes, sender: PeerId) -> None:
        """A new replica is on the disk."""


class Blocks:
    """The blocks on a node's disk that it keeps for others."""

    __slots__ = (
        "_bucket_size",
        "_first_over_us",
        "_full",
        "_held",
        "_hot",
        "_over",
        "_owner",
        "_reachability",
        "_replicas",
        "_table",
        "_turn",
    )

    def __init__(
        self,
        context: Context,
        table: RoutingTable,
        hot: HotBlocks,
        reachability: Reachability,
        owner: BlocksOwner,
    ) -> None:
        self._turn = context.turn
        self._table = table
        self._hot = hot
        self._reachability = reachability
        self._owner = owner
        self._bucket_size = context.parameters.bucket_size
        self._replicas = context.parameters.replicas
        self._held: dict[Cid, int] = {}
        """By CID: when the block's time is up."""
        self._first_over_us = NEVER_US
        """No known block is out of its time before this."""
        self._over: dict[Cid, Lifetime] = {}
        """Blocks out of their time by this node's clock, which may be or may have been wrong."""
        self._full: dict[str, float] = {}
        """By place: until when no block is fetched from there."""

    def __contains__(self, cid: Cid) -> bool:
        """Whether a block is known to be on the disk; it may be there without being known."""
        return cid in self._held

    def __len__(self) -> int:
        """How many blocks are remembered."""
        return len(self._held) + len(self._over) + len(self._hot) + len(self._full)

    def wants(self, cid: Cid) -> bool:
        """Whether a block may be new: it is not known to be on the disk or out of its time."""
        over = self._over.get(cid)
        return cid not in self._held and (over is None or over.covers(self._turn.wall_us))

    def has_room_for(self, peer: PeerId) -> bool:
        """Whether blocks that a peer sends may find room."""
        return self._full.get(self._reachability.place_of(peer), 0.0) <= self._turn.now

    def drop_expired(self) -> None:
        """Forget the blocks whose time is up."""
        now_us = self._turn.wall_us
        if self._first_over_us < now_us:
            for cid in [cid for cid, expires_us in self._held.items() if expires_us < now_us]:
                self._remember_over(cid, Lifetime(0, self._held.pop(cid)))
            self._first_over_us = min(self._held.values(), default=NEVER_US)
        self._turn.keep(DropExpired(now_us))

    def keep(self, cid: Cid, block: bytes, then: Callable[[bool], None]) -> None:
        """Keep a block of this node as one of its replicas; `then` hears whether it is kept."""
        _, lifetime = self._owner.verify_block(block)
        lifetime = lifetime.asked_for(self._turn.wall_us)
        if not lifetime.covers(self._turn.wall_us):
            then(False)
            return
        if self._has(cid, lifetime):
            then(True)
            return

        def synced() -> None:
            self._hold(cid, lifetime)
            then(True)

        self._turn.persist(_own_write(cid, block, lifetime), then=synced)

    def own_replica(self, cid: Cid, block: bytes, lifetime: Lifetime) -> PutBlock | None:
        """The write that `keep` would make; `kept` says that it is on the disk."""
        return _own_write(cid, block, lifetime) if lifetime.covers(self._turn.wall_us) else None

    def kept(self, replica: PutBlock) -> None:
        """A block of this node is on the disk as one of its replicas."""
        self._hold(replica.cid, Lifetime(0, replica.expires_us))

    def take(self, source: PeerId, blocks: Iterable[bytes], wanted: Collection[Cid]) -> list[Cid]:
        """Keep the blocks that a replica was asked for, as far as they are in their time.

        Returns those; the disk may still have no room for some.
        """
        taken: dict[Cid, tuple[bytes, Lifetime]] = {}
        for block in blocks:
            cid, lifetime = self._owner.verify_block(block)
            if cid not in wanted:
                raise RemoteError("a block that was not asked for", code=Rejection.NOT_ASKED_FOR)
            if cid in self._held:
                continue  # It arrived meanwhile by a store, which may keep it for longer.
            if lifetime.covers(self._turn.wall_us):
                taken[cid] = (block, lifetime)
            else:
                self._remember_over(cid, lifetime)

        def held(kept: Sequence[Cid]) -> None:
            for cid in kept:
                self._hold(cid, taken[cid][1])

        if taken:
            self._keep_for(source, taken, held)
        return list(taken)

    def receive(self, sender: PeerId, message: StoreBlocks) -> None:
        """Keep blocks for a peer, and confirm them once they are on the disk."""
        if len(message.blocks) > BLOCKS_MAX:
            raise RemoteError("more blocks than one message may hold", code=Rejection.TOO_MANY)
        blocks: Sequence[bytes] = message.blocks
        if message.if_closest:
            blocks = [block for block in blocks if self._belongs_here(block)]
        held, fresh, refused = self._sort(blocks)

        def confirm(kept: Sequence[Cid]) -> None:
            self._turn.send(sender, Stored(message.request, (*held, *kept)))
            for cid in kept:
                block, lifetime = fresh[cid]
                if self._hold(cid, lifetime):
                    self._owner.stored_block(block, sender)

        if fresh:
            self._keep_for(sender, fresh, confirm)
        else:
            self._turn.send(sender, Stored(message.request, tuple(held)))
        if refused is not None:
            raise refused

    def answer(self, sender: PeerId, message: FindBlock) -> None:
        """Hand out a block, or name peers closer to it."""

        def loaded(answer: Block) -> None:
            contacts: tuple[Contact, ...] = ()
            block = answer.block or self._hot.find(message.cid)
            if block is None:
                key = cid_key(message.cid)
                contacts = tuple(self._table.closest(key, self._bucket_size, (sender,)))
            self._turn.send(sender, BlockFound(message.request, block, contacts))

        self._turn.load(LoadBlock(message.cid), Block, loaded)

    def _keep_for(
        self,
        sender: PeerId,
        blocks: Mapping[Cid, tuple[bytes, Lifetime]],
        then: Callable[[Sequence[Cid]], None],
    ) -> None:
        """Write the blocks that a peer sent; `then` hears which of them are on the disk."""
        place = self._reachability.place_of(sender)

        def synced(kept: list[bool]) -> None:
            if not all(kept):
                self.found_no_room(place)
            then([cid for cid, is_kept in zip(blocks, kept, strict=True) if is_kept])

        replicas = [
            (PutBlock(cid, block, cid_key(cid), lifetime.expires_us),)
            for cid, (block, lifetime) in blocks.items()
        ]
        self._turn.keep_each(replicas, place=place, then=synced)

    def found_no_room(self, place: str) -> None:
        """The disk has left out what a peer at this place sent: take nothing more for a while."""
        self._full.pop(place, None)
        self._full[place] = self._turn.now + FULL_S
        if len(self._full) > FULL_MAX:
            del self._full[next(iter(self._full))]

    def _belongs_here(self, block: bytes) -> bool:
        return self._table.is_among_closest(cid_key(cid_of(block)), self._replicas)

    def _sort(
        self, blocks: Sequence[bytes]
    ) -> tuple[list[Cid], dict[Cid, tuple[bytes, Lifetime]], RemoteError | None]:
        """Split blocks into held ones, new ones, and the reason why the rest is neither."""
        held: list[Cid] = []
        fresh: dict[Cid, tuple[bytes, Lifetime]] = {}
        refused: RemoteError | None = None
        for block in blocks:
            try:
                cid, lifetime = self._owner.verify_block(block)
                lifetime = lifetime.asked_for(self._turn.wall_us)
                if not lifetime.covers(self._turn.wall_us):
                    # By this node's clock, which may be the wrong one.
                    raise RemoteError(
                        "a block out of its time", Verdict.IGNORE, code=Rejection.EXPIRED
                    )
            except RemoteError as error:
                refused = refused or error
                continue
            if self._has(cid, lifetime):
                held.append(cid)
            else:
                fresh[cid] = (block, lifetime)
        return held, fresh, refused

    def _has(self, cid: Cid, lifetime: Lifetime) -> bool:
        """Whether a block is known to be on the disk for about as long as it should be."""
        enough_us = lifetime.expires_us - lifetime.prolonged_us // WRITTEN_AGAIN
        return self._held.get(cid, -1) >= enough_us

    def _hold(self, cid: Cid, lifetime: Lifetime) -> bool:
        """Remember that a block is on the disk; returns whether that is new."""
        if cid in self._held:
            self._held[cid] = max(self._held[cid], lifetime.expires_us)
            return False
        self._over.pop(cid, None)
        self._held[cid] = lifetime.expires_us
        self._first_over_us = min(self._first_over_us, lifetime.expires_us)
        if len(self._held) > HELD_MAX:
            del self._held[next(iter(self._held))]
        return True

    def _remember_over(self, cid: Cid, lifetime: Lifetime) -> None:
        self._over[cid] = lifetime
        if len(self._over) > OVER_MAX:
            del self._over[next(iter(self._over))]


def _own_write(cid: Cid, block: bytes, lifetime: Lifetime) -> PutBlock:
    return PutBlock(cid, block, cid_key(cid), lifetime.expires_us)
