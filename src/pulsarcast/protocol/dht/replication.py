"""Range repair: replicas compare the blocks that they keep, and fetch those that they lack.

docs/spec/pulsarcast.md, The DHT.

At an interval a node takes one of the peers with which it shares keys. For each range that both are
responsible for, it shows that peer how many blocks it has there, and a hash. If these differ, the
other answers with its CIDs, or with hashes of narrower ranges. Then each side fetches what it
lacks: only the receiver decides what it keeps. After a change the interval is shorter.

A node may keep blocks that it is no longer responsible for, because closer peers have come. It
shows these to the closest peers, a page at a time, so that they get their new replicas.
"""

from collections.abc import Callable, Sequence
from functools import partial

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.ids import Cid, PeerId, cid_key, peer_key
from pulsarcast.model.keys import KEY_BITS, Key
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.blocks import Blocks
from pulsarcast.protocol.dht.calls import Calls
from pulsarcast.protocol.dht.routing import RoutingTable
from pulsarcast.protocol.dht.zone import Piece, shared_ranges, zone_of
from pulsarcast.protocol.messages import (
    CompareKeys,
    Contact,
    DhtMessage,
    KeysDiffer,
    StoreBlocks,
    WantBlocks,
)
from pulsarcast.protocol.store import Block, DigestKeys, KeyDigest, Keys, LoadBlock, LoadKeys

CIDS_MAX = 256
"""Bounds the CIDs in one message; a range that holds more is narrowed first."""
PARTS = 16
"""Parts into which a range is narrowed."""
WANTED_MAX = 64
"""Bounds the blocks asked for in one message."""
COMPARED_MAX = 512
"""Bounds the ranges compared in one round."""
PATIENCE = 5
"""Bounds a round, in intervals: a partner may answer slowly, and never be done."""
PULLS_MAX = 64
"""Bounds the lists of blocks that wait to be fetched."""
PULLS_PER_PEER_MAX = PULLS_MAX // 2
"""Bounds those of one peer: it may show blocks that it never sends."""
SHOWN_MAX = 8
"""Bounds the lists of CIDs of other peers that are searched at a time; others are shown again."""
FRESH_ROUNDS = 4
"""Rounds in which a node without blocks asks whether it should have some: its disk may be new."""
HURRY = 10
"""Factor by which the interval is shorter after a change."""
PAGE = 64
"""Blocks per round that are checked for whether they belong to other peers."""
ANNOUNCED = 0
"""The request number of a list of CIDs that was not asked for."""

RangeDigest = tuple[Key, Key, int, int]
_LAST_KEY: Key = (1 << KEY_BITS) - 1


class Replication:
    """Compares, fetches and hands out the blocks of one node."""

    __slots__ = (
        "_blocks",
        "_calls",
        "_compared",
        "_counts",
        "_cursor",
        "_hurry",
        "_interval_s",
        "_near",
        "_next_s",
        "_partner",
        "_pieces",
        "_pulling",
        "_pulls",
        "_ranges",
        "_reach",
        "_replicas",
        "_round",
        "_send_bytes_max",
        "_shared",
        "_shown",
        "_table",
        "_timer",
        "_turn",
        "_until_s",
    )

    def __init__(self, context: Context, table: RoutingTable, calls: Calls, blocks: Blocks) -> None:
        self._turn = context.turn
        self._interval_s = context.parameters.repair_interval_s
        self._replicas = context.parameters.replicas
        self._send_bytes_max = context.parameters.range_bytes_max
        self._table = table
        self._calls = calls
        self._blocks = blocks
        self._counts = context.counts
        self._timer: int | None = None
        self._next_s = 0.0
        self._hurry = 0
        self._round = 0
        self._reach = 0
        self._partner: Contact | None = None
        self._near: frozenset[PeerId] | None = None
        self._pieces: list[Piece] = []
        self._shared: dict[PeerId, list[tuple[Key, Key]]] = {}
        self._ranges: list[tuple[Key, Key]] = []
        self._compared = 0
        self._until_s = 0.0
        self._pulling = False
        self._pulls: list[tuple[Contact, tuple[Cid, ...]]] = []
        self._shown = 0
        self._cursor: Key = 0

    def start(self, *, fresh: bool) -> None:
        """Begin: soon if the node is fresh, because the disk may be empty or old."""
        if fresh:
            self._hurry = FRESH_ROUNDS
        else:
            self._round = FRESH_ROUNDS
        self._schedule()

    def changed(self, peer: PeerId) -> None:
        """A peer came or went: compare soon if it shares keys with this node."""
        if self._timer is None or peer_key(peer) ^ self._table.me > self._reach:
            return
        self._hurry = max(self._hurry, 2 * self._replicas)
        if self._next_s > self._turn.now + 2 * self._interval_s / HURRY:
            self._turn.cancel(self._timer)
            self._schedule()

    def footprint(self) -> dict[str, int]:
        """How many entries are in memory."""
        return {
            "dht_ranges": len(self._ranges),
            "dht_pulls": sum(len(cids) for _, cids in self._pulls),
        }

    # Comparing.

    def _schedule(self) -> None:
        delay_s = self._interval_s
        if self._hurry:
            delay_s /= HURRY
        delay_s = self._turn.jitter(delay_s)
        self._next_s = self._turn.now + delay_s
        self._timer = self._turn.after(delay_s, self._begin_round)

    def _begin_round(self) -> None:
        """Read a page of the node's own blocks first: there may be nothing to compare."""
        self._hurry = max(0, self._hurry - 1)
        self._schedule()
        self._round += 1
        self._blocks.drop_expired()
        fresh = self._round <= FRESH_ROUNDS
        page_first = self._cursor

        def listed(keys: Keys) -> None:
            cids = keys.cids
            self._cursor = min(cid_key(cids[-1]) + 1, _LAST_KEY) if len(cids) == PAGE else 0
            self._show_homeless(cids)
            # Other peers compare with a node that has nothing; but after a start it asks.
            if self._partner is None and (fresh or cids or page_first):
                self._compare_zone(fresh=fresh)

        self._turn.load(LoadKeys(page_first, _LAST_KEY, PAGE), Keys, listed)

    def _compare_zone(self, *, fresh: bool) -> None:
        table = self._table
        around = table.around(self._replicas)
        near = frozenset(contact.peer for contact in around)
        if near != self._near:
            # The neighbourhood seldom changes, and cutting it up takes a while.
            self._near = near
            peers = (contact.peer for contact in around)
            self._pieces = zone_of(table.peer, peers, self._replicas)
            self._shared = shared_ranges(self._pieces, table.peer)
        pieces, shared = self._pieces, self._shared
        partners = [contact for contact in around if contact.peer in shared]
        if not partners:
            self._reach = _LAST_KEY
            return
        # The whole subtree of shared keys: every peer that appears there shares some of them.
        ends = (pieces[0].first, pieces[-1].last)
        self._reach = (1 << max((key ^ table.me).bit_length() for key in ends)) - 1
        partner = partners[self._round % len(partners)]
        ranges = shared[partner.peer]
        hull = (ranges[0][0], ranges[-1][1])
        self._partner = partner
        self._compared = 0
        self._until_s = self._turn.now + PATIENCE * self._interval_s

        def digested(ours: KeyDigest) -> None:
            if ours.count:
                self._ranges = ranges[::-1]
            elif fresh:
                self._ranges = [hull]
            self._compare_next(partner)

        self._turn.load(DigestKeys(*hull), KeyDigest, digested)

    def _compare_next(self, partner: Contact) -> None:
        """Show the partner the next range."""
        is_over = self._compared >= COMPARED_MAX or self._turn.now >= self._until_s
        if not self._ranges or is_over:
            self._ranges.clear()
            self._partner = None
            return
        self._compared += 1
        first, last = self._ranges.pop()

        def digested(ours: KeyDigest) -> None:
            answered = partial(self._compare_answered, partner, (first, last), ours)
            question = CompareKeys(0, first, last, ours.count, ours.digest)
            self._calls.ask(partner, question, answered)

        self._turn.load(DigestKeys(first, last), KeyDigest, digested)

    def _compare_answered(
        self,
        partner: Contact,
        asked: tuple[Key, Key],
        ours: KeyDigest,
        answer: DhtMessage | None,
    ) -> None:
        first, last = asked
        if not isinstance(answer, KeysDiffer):
            self._ranges.clear()
            self._partner = None
            return
        if answer.ranges == ((first, last, ours.count, ours.digest),):
            self._compare_next(partner)
            return
        if (
            (answer.first, answer.last) != asked
            or len(answer.cids) > CIDS_MAX
            or len(answer.ranges) > PARTS
            or not all(first <= part[0] <= part[1] <= last for part in answer.ranges)
        ):
            self._ranges.clear()
            self._partner = None
            raise RemoteError(
                "an answer about other keys than were asked for", code=Rejection.NOT_ASKED_FOR
            )
        if answer.ranges:
            self._narrow(partner, answer.ranges)
        else:
            self._reconcile(partner, first, last, answer.cids)

    def _narrow(self, partner: Contact, parts: Sequence[RangeDigest]) -> None:
        """Compare those parts of a range that differ."""
        left = len(parts)

        def digested(part: RangeDigest, ours: KeyDigest) -> None:
            nonlocal left
            left -= 1
            if (ours.count, ours.digest) != part[2:]:
                self._ranges.append(part[:2])
            if not left:
                self._compare_next(partner)

        for part in parts:
            self._turn.load(
                DigestKeys(part[0], part[1]),
                KeyDigest,
                partial(digested, part),
            )

    def _reconcile(self, partner: Contact, first: Key, last: Key, theirs: tuple[Cid, ...]) -> None:
        """Fetch the blocks that are lacking here, and show the partner those that it lacks."""

        def listed(keys: Keys) -> None:
            ours = dict.fromkeys(keys.cids)
            self._pull(partner, [cid for cid in theirs if cid not in ours])
            known = dict.fromkeys(theirs)
            lacking = tuple(cid for cid in keys.cids if cid not in known)
            if lacking:
                self._turn.send(partner.peer, KeysDiffer(ANNOUNCED, first, last, lacking, ()))
            self._compare_next(partner)

        self._turn.load(LoadKeys(first, last, CIDS_MAX), Keys, listed)

    def answer_compare(self, sender: PeerId, message: CompareKeys) -> None:
        """A replica shows its blocks of a range: answer how those kept here differ."""
        request, first, last = message.request, message.first, message.last
        if not 0 <= first <= last <= _LAST_KEY:
            raise RemoteError("not a range of keys")

        def answer(cids: tuple[Cid, ...], ranges: tuple[RangeDigest, ...]) -> None:
            self._turn.send(sender, KeysDiffer(request, first, last, cids, ranges))

        def digested(ours: KeyDigest) -> None:
            if (ours.count, ours.digest) == (message.count, message.digest):
                answer((), ((first, last, ours.count, ours.digest),))
            elif max(ours.count, message.count) <= CIDS_MAX or first == last:
                self._turn.load(
                    LoadKeys(first, last, CIDS_MAX), Keys, lambda keys: answer(keys.cids, ())
                )
            else:
                self._answer_narrower(first, last, lambda ranges: answer((), ranges))

        self._turn.load(DigestKeys(first, last), KeyDigest, digested)

    def _answer_narrower(
        self, first: Key, last: Key, then: Callable[[tuple[RangeDigest, ...]], None]
    ) -> None:
        width = -(-(last - first + 1) // PARTS)
        starts = range(first, last + 1, width)
        parts: list[RangeDigest] = []

        def digested(start: Key, ours: KeyDigest) -> None:
            parts.append((start, min(last, start + width - 1), ours.count, ours.digest))
            if len(parts) == count:
                then(tuple(sorted(parts)))

        count = -(-(last - first + 1) // width)
        for start in starts:
            self._turn.load(
                DigestKeys(start, min(last, start + width - 1)),
                KeyDigest,
                partial(digested, start),
            )

    # Fetching.

    def look_through(self, sender: Contact, message: KeysDiffer) -> None:
        """A replica shows blocks that may be lacking here: fetch those that belong here."""
        if len(message.cids) > CIDS_MAX:
            raise RemoteError("more CIDs than one message may hold", code=Rejection.TOO_MANY)
        table = self._table
        cids = [
            cid
            for cid in dict.fromkeys(message.cids)
            if self._blocks.wants(cid) and table.is_among_closest(cid_key(cid), self._replicas)
        ]
        if not cids or self._shown >= SHOWN_MAX:
            return
        self._shown += 1
        left = len(cids)
        lacking: list[Cid] = []

        def looked(cid: Cid, keys: Keys) -> None:
            nonlocal left
            left -= 1
            if not keys.cids:
                lacking.append(cid)
            if not left:
                self._shown -= 1
                self._pull(sender, lacking)

        for cid in cids:
            key = cid_key(cid)
            self._turn.load(LoadKeys(key, key, 1), Keys, partial(looked, cid))

    def _pull(self, source: Contact, cids: Sequence[Cid]) -> None:
        """Fetch blocks from a replica, a few at a time."""
        if not self._blocks.has_room_for(source.peer):
            return
        table = self._table
        wanted = [cid for cid in cids if table.is_among_closest(cid_key(cid), self._replicas)]
        theirs = sum(each.peer == source.peer for each, _ in self._pulls)
        room = min(PULLS_MAX - len(self._pulls), PULLS_PER_PEER_MAX - theirs)
        # Lists that find no room are found again in the next round.
        for start in range(0, min(len(wanted), room * WANTED_MAX), WANTED_MAX):
            self._pulls.append((source, tuple(wanted[start : start + WANTED_MAX])))
        if self._pulls and not self._pulling:
            self._pull_next()

    def _pull_next(self) -> None:
        self._pulling = False
        while self._pulls:
            source, cids = self._pulls.pop(0)
            wanted = tuple(cid for cid in cids if self._blocks.wants(cid))
            if wanted and self._blocks.has_room_for(source.peer):
                self._ask_for(source, wanted)
                return

    def _ask_for(self, source: Contact, wanted: tuple[Cid, ...]) -> None:
        self._pulling = True
        self._calls.ask(source, WantBlocks(0, wanted), partial(self._pulled, source, wanted))

    def _pulled(self, source: Contact, wanted: tuple[Cid, ...], answer: DhtMessage | None) -> None:
        try:
            if isinstance(answer, StoreBlocks):
                taken = dict.fromkeys(self._blocks.take(source.peer, answer.blocks, wanted))
                self._counts["dht_repair"] += len(taken)
                left = tuple(cid for cid in wanted if cid not in taken)
                if taken:
                    self._hurry = max(self._hurry, 1)
                if taken and left:
                    # The answer was full before all were in it.
                    self._pulls.insert(0, (source, left))
            else:
                # A peer that failed once will not do better with the rest.
                self._pulls = [each for each in self._pulls if each[0].peer != source.peer]
        finally:
            self._pull_next()

    def answer_wanted(self, sender: PeerId, message: WantBlocks) -> None:
        """A replica lacks blocks: send as many as one message may hold."""
        if len(message.cids) > WANTED_MAX:
            raise RemoteError(
                "more blocks wanted than one message may hold", code=Rejection.TOO_MANY
            )
        waiting = list(message.cids[::-1])
        blocks: list[bytes] = []
        size = 0

        def loaded(block: Block) -> None:
            nonlocal size
            if block.block is not None:
                size += len(block.block)
                blocks.append(block.block)
            load_next()

        def load_next() -> None:
            if waiting and size < self._send_bytes_max:
                self._turn.load(LoadBlock(waiting.pop(), versions=True), Block, loaded)
            else:
                self._turn.send(sender, StoreBlocks(message.request, tuple(blocks)))

        self._turn.when_room(sender, load_next)

    # Blocks that belong to other peers.

    def _show_homeless(self, cids: Sequence[Cid]) -> None:
        """Show blocks that no longer belong here to the peers closest to them."""
        shown: dict[PeerId, list[Cid]] = {}
        for cid in cids:
            key = cid_key(cid)
            closest = self._table.closest(key, self._replicas)
            if (
                len(closest) == self._replicas
                and peer_key(closest[-1].peer) ^ key < self._table.me ^ key
            ):
                for contact in closest:
                    shown.setdefault(contact.peer, []).append(cid)
        for peer, lacking in shown.items():
            first, last = cid_key(lacking[0]), cid_key(lacking[-1])
            self._turn.send(peer, KeysDiffer(ANNOUNCED, first, last, tuple(lacking), ()))
