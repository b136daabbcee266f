"""Placing: stores blocks on the r peers closest to their keys (docs/spec/pulsarcast.md, The DHT).

A peer counts once it confirms that the block is on its disk; the next closest replaces one that
fails. Blocks for one peer travel together: those of one turn leave in one message at its end, and
while the peer has answers to give, further ones wait.

The first guess are the closest known peers. A peer near a key knows best which others are near, so
a peer that knows closer ones declines. Then the node looks up the closest. Where fewer than r peers
are known, one search for all of them serves all blocks for a while.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from pulsarcast.model.ids import Cid, PeerId, cid_key, cid_of, peer_key
from pulsarcast.model.keys import Key
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.blocks import FULL_S, Blocks
from pulsarcast.protocol.dht.calls import TIMER_GRAIN_S, Calls
from pulsarcast.protocol.dht.lookup import Lookup
from pulsarcast.protocol.dht.lookups import Lookups
from pulsarcast.protocol.dht.reachability import Reachability
from pulsarcast.protocol.dht.routing import RoutingTable
from pulsarcast.protocol.messages import Contact, DhtMessage, StoreBlocks, Stored

BATCH_BLOCKS_MAX = 64
BATCHES_PER_PEER_MAX = 2
"""Bounds the messages to one peer that wait for an answer; further blocks wait their turn."""
QUEUED_PER_PEER_MAX = 1024
PLACED_MAX = 4096
"""Bounds the blocks being placed at a time; beyond, a store fails at once."""
BUSY_BLOCKS = 3 * PLACED_MAX // 4
BUSY_BYTES = 2 * 1024 * 1024
"""Being placed, beyond which publishers wait: two of the largest events, for three replicas 5 s of
a line of 10 Mbit/s. What waits for longer than a call is asked for again, and takes the line twice.
"""
EVERYBODY_S = 5.0
"""How long a search that has found all the peers there are answers for further blocks."""
FULL_MAX = 64
"""Bounds the peers remembered to have refused a block, for `blocks.FULL_S`."""
PATIENCE = 8
"""Bounds a store, in RPC timeouts; then it is answered with the replicas that it has reached."""

Counted = Callable[[list[int]], None]


class _Store:
    """One call of `store`."""

    __slots__ = ("also", "counts", "deadline_s", "left", "then")

    def __init__(self, size: int, deadline_s: float, then: Counted, also: Sequence[PeerId]) -> None:
        self.also = also
        self.counts = [0] * size
        self.left = size
        self.deadline_s = deadline_s
        self.then = then


class _Placement:
    """One block on its way to its replicas."""

    __slots__ = (
        "block",
        "cid",
        "ended",
        "holders",
        "index",
        "is_guess",
        "is_ours",
        "key",
        "pending",
        "places",
        "store",
    )

    def __init__(self, store: _Store, index: int, cid: Cid, block: bytes) -> None:
        self.store = store
        self.index = index
        self.cid = cid
        self.block = block
        self.key = cid_key(cid)
        self.places: list[Contact] = []
        """Peers that may still be asked, the closest last."""
        self.is_guess = True
        """Whether those are only the closest known peers."""
        self.holders: list[PeerId] = []
        self.is_ours = False
        """Whether the node's own disk has been asked, or must not be."""
        self.pending = 0
        self.ended = False


class _Queue:
    """Blocks that wait to be stored at one peer."""

    __slots__ = ("blocks", "contact", "flying")

    def __init__(self, contact: Contact) -> None:
        self.contact = contact
        self.blocks: dict[_Placement, None] = {}
        self.flying = 0


class _Everybody(NamedTuple):
    """All the peers that there are besides the node, where they are few."""

    known: frozenset[PeerId]
    """The live contacts that the node had then: with others, others may be there."""
    all: tuple[Contact, ...]
    until_s: float


class Placing:
    """All the blocks that a node is placing."""

    __slots__ = (
        "_batch_bytes_max",
        "_blocks",
        "_bucket_size",
        "_calls",
        "_due",
        "_everybody",
        "_full",
        "_lookups",
        "_patience_s",
        "_placed",
        "_placed_bytes",
        "_queues",
        "_reachability",
        "_replicas",
        "_stores",
        "_table",
        "_timer",
        "_turn",
    )

    def __init__(
        self,
        context: Context,
        calls: Calls,
        lookups: Lookups,
        table: RoutingTable,
        blocks: Blocks,
        reachability: Reachability,
    ) -> None:
        self._reachability = reachability
        self._turn = context.turn
        self._table = table
        self._calls = calls
        self._lookups = lookups
        self._replicas = context.parameters.replicas
        self._bucket_size = context.parameters.bucket_size
        self._batch_bytes_max = context.parameters.range_bytes_max
        self._patience_s = PATIENCE * context.parameters.rpc_timeout_s
        self._blocks = blocks
        self._queues: dict[PeerId, _Queue] = {}
        self._full: dict[PeerId, float] = {}
        """Peers that refused a block, and until when that counts."""
        self._due: dict[_Queue, None] = {}
        """Those from which blocks may leave at the end of the turn."""
        self._everybody = _Everybody(frozenset(), (), 0.0)
        self._stores: dict[_Store, list[_Placement]] = {}
        self._placed = 0
        self._placed_bytes = 0
        self._timer: int | None = None

    def store(
        self,
        blocks: Sequence[bytes],
        then: Counted,
        *,
        keep_local: bool,
        also: Sequence[PeerId] = (),
    ) -> None:
        """Place blocks; `then` gets how many peers keep each."""
        store = _Store(len(blocks), self._turn.now + self._patience_s, then, also)
        if not blocks or self._placed + len(blocks) > PLACED_MAX:
            then(store.counts)
            return
        self._placed += len(blocks)
        self._placed_bytes += sum(map(len, blocks))
        placements = [
            _Placement(store, index, cid_of(block), block) for index, block in enumerate(blocks)
        ]
        self._stores[store] = placements
        self._arm()
        for placement in placements:
            placement.is_ours = not keep_local
            self._begin(placement)

    def is_own(self, key: Key) -> bool:
        """Whether the node is one of the r peers closest to a key; False if it has to search."""
        known = self._table.closest(key, self._replicas)
        if len(known) == self._replicas:
            is_public = self._reachability.is_public(self._turn.me)
            return is_public and peer_key(known[-1].peer) ^ key > self._table.me ^ key
        everybody = self._everybody_if(known)
        return everybody is not None and len(everybody) < self._replicas

    @property
    def is_busy(self) -> bool:
        """Whether so much is being placed that a publisher should wait."""
        return self._placed > BUSY_BLOCKS or self._placed_bytes > BUSY_BYTES

    def footprint(self) -> dict[str, int]:
        """How many entries are in memory."""
        return {
            "dht_placements": self._placed,
            "dht_queues": sum(len(queue.blocks) for queue in self._queues.values()),
        }

    def _begin(self, placement: _Placement) -> None:
        known = self._table.closest(placement.key, self._replicas)
        if len(known) < self._replicas:
            everybody = self._everybody_if(known)
            if everybody is not None:
                near = sorted(everybody, key=lambda each: peer_key(each.peer) ^ placement.key)
                placement.is_guess = False
                self._place_at(placement, near)
            else:
                self._look_up(placement)
            return
        placement.places = known[::-1]
        self._count_ourselves(placement)
        self._advance(placement)

    def _everybody_if(self, known: Sequence[Contact]) -> Sequence[Contact] | None:
        """All the peers that there are besides the node, if it knows that and still these ones."""
        everybody = self._everybody
        if everybody.until_s > self._turn.now and everybody.known == _peers_of(known):
            return everybody.all
        return None

    def _look_up(self, placement: _Placement) -> None:
        """Find the peers that are closest; the search counts as one that may still help."""
        placement.is_guess = False
        placement.pending += 1

        def found(lookup: Lookup) -> None:
            placement.pending -= 1
            if placement.ended:
                return
            # Peers that were only named may replace those that answered and fail.
            named = lookup.candidates(2 * self._bucket_size)
            self._see_whether_all(lookup, named)
            self._place_at(placement, named)

        self._lookups.find_peers(placement.key, found, count=self._replicas)

    def _see_whether_all(self, lookup: Lookup, named: Sequence[Contact]) -> None:
        """Whoever is asked names up to 2r peers: if there are fewer, there are no others."""
        limit = 2 * self._replicas
        if len(named) < limit and len(lookup.closest(limit)) == len(named):
            known = _peers_of(self._table.closest(lookup.key, limit))
            self._everybody = _Everybody(known, tuple(named), self._turn.now + EVERYBODY_S)

    def _place_at(self, placement: _Placement, closest: Sequence[Contact]) -> None:
        """Ask the peers that a search found, and if they do not suffice those to ask `also`."""
        others = [each for each in closest if each.peer not in placement.holders]
        placement.places = [*map(Contact, reversed(placement.store.also)), *others[::-1]]
        self._count_ourselves(placement)
        self._advance(placement)

    def _count_ourselves(self, placement: _Placement) -> None:
        """The node is one of the r if it is close enough: then its own disk counts.

        One that cannot be dialled is farther than all that can.
        """
        is_public = self._reachability.is_public(self._turn.me)
        away = peer_key(self._turn.me) ^ placement.key
        closer = sum(
            not is_public or peer_key(contact.peer) ^ placement.key < away
            for contact in placement.places[-self._replicas :]
            if contact.peer not in placement.store.also
        )
        if closer < self._replicas and not placement.is_ours:
            self._keep(placement)

    def _keep(self, placement: _Placement) -> None:
        placement.is_ours = True
        placement.pending += 1
        self._blocks.keep(placement.cid, placement.block, partial(self._settle, placement))

    def _advance(self, placement: _Placement) -> None:
        """Ask as many peers as replicas are missing."""
        if placement.ended:
            return  # The node's own disk was the last hope, and has refused at once.
        count = placement.store.counts[placement.index]
        while count + placement.pending < self._replicas and placement.places:
            contact = placement.places.pop()
            queue = self._queues.get(contact.peer)
            if queue is None:
                queue = self._queues[contact.peer] = _Queue(contact)
            if len(queue.blocks) >= QUEUED_PER_PEER_MAX:
                continue
            placement.pending += 1
            queue.blocks[placement] = None
            self._flush_later(queue)
        if count >= self._replicas:
            self._end(placement)
        elif not placement.pending and placement.is_guess:
            self._look_up(placement)
        elif not placement.pending and not placement.is_ours:
            self._keep(placement)  # Closer ones are away, or have no room: the node is the next.
        elif not placement.pending:
            self._end(placement)

    def _settle(self, placement: _Placement, held: bool) -> None:
        """One peer keeps the block, or will not."""
        placement.pending -= 1
        if placement.ended:
            return
        if held:
            placement.store.counts[placement.index] += 1
        self._advance(placement)

    def _end(self, placement: _Placement) -> None:
        placement.ended = True
        self._placed -= 1
        self._placed_bytes -= len(placement.block)
        store = placement.store
        store.left -= 1
        if not store.left:
            del self._stores[store]
            store.then(store.counts)

    def _flush_later(self, queue: _Queue) -> None:
        if not self._due:
            self._turn.at_end(self._flush_due)
        self._due[queue] = None

    def _flush_due(self) -> None:
        due, self._due = self._due, {}
        for queue in due:
            self._flush(queue)

    def _flush(self, queue: _Queue) -> None:
        """Send the blocks that wait for a peer, unless it already has enough to answer."""
        while queue.blocks and queue.flying < BATCHES_PER_PEER_MAX:
            batch: list[_Placement] = []
            size = 0
            for placement in queue.blocks:
                size += len(placement.block)
                if batch and (size > self._batch_bytes_max or len(batch) == BATCH_BLOCKS_MAX):
                    break
                if batch and batch[0].is_guess != placement.is_guess:
                    break
                batch.append(placement)
            for placement in batch:
                del queue.blocks[placement]
            batch = [placement for placement in batch if not placement.ended]
            if batch:
                self._send(queue, batch)
        if not queue.flying and not queue.blocks:
            self._queues.pop(queue.contact.peer, None)

    def _send(self, queue: _Queue, batch: list[_Placement]) -> None:
        queue.flying += 1
        blocks = tuple(placement.block for placement in batch)

        def answered(message: DhtMessage | None) -> None:
            queue.flying -= 1
            settled = batch
            held: Sequence[Cid] = ()
            if isinstance(message, Stored):
                held = message.cids
                if not batch[0].is_guess:  # A guess is declined where others are closer, too.
                    self._note_room(queue.contact.peer, has_room=len(held) == len(batch))
            else:
                # A peer that failed once will not do better with the rest.
                settled = [*batch, *queue.blocks]
                queue.blocks.clear()
            self._flush_later(queue)
            for placement in settled:
                if placement.cid in held:
                    placement.holders.append(queue.contact.peer)
                self._settle(placement, placement.cid in held)

        self._calls.ask(queue.contact, StoreBlocks(0, blocks, batch[0].is_guess), answered)

    def _note_room(self, peer: PeerId, *, has_room: bool) -> None:
        self._full.pop(peer, None)
        if not has_room:
            self._full[peer] = self._turn.now + FULL_S
            if len(self._full) > FULL_MAX:
                del self._full[next(iter(self._full))]

    @property
    def full_count(self) -> int:
        """How many peers have refused a block of late."""
        return sum(until_s > self._turn.now for until_s in self._full.values())

    def _expire(self) -> None:
        """Answer the stores that took too long."""
        self._timer = None
        now = self._turn.now
        late: list[_Store] = []
        for store in self._stores:
            if store.deadline_s > now + TIMER_GRAIN_S:
                break
            late.append(store)
        for store in late:
            for placement in self._stores.get(store, ()):
                if not placement.ended:
                    self._end(placement)
        self._arm()

    def _arm(self) -> None:
        if self._timer is None and self._stores:
            first = next(iter(self._stores))
            delay_s = max(0.0, first.deadline_s - self._turn.now)
            self._timer = self._turn.after(delay_s, self._expire)


def _peers_of(contacts: Sequence[Contact]) -> frozenset[PeerId]:
    return frozenset(each.peer for each in contacts)
