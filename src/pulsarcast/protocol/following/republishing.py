"""Republishing: a followed topic stays findable beyond its time (docs/decisions/0028).

A newcomer finds a topic's versions in the DHT alone, and a replica keeps a version for a time that
is counted from its creation. A node that follows the topic asks in time for it to be kept longer. A
topic that no node follows is forgotten: replicas do not ask. Listings of the node's own topics are
renewed with every round, and names are looked up again. A new version that no peer took is placed
again until one does.
"""

from collections.abc import Container, Iterable

from pulsarcast.model.ids import Cid
from pulsarcast.model.mark_blocks import MarkIndex, decode_marks
from pulsarcast.model.topics import TopicDescriptor
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.expiry import topic_lifetime
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.following.descriptors import Descriptors
from pulsarcast.protocol.following.names import Names
from pulsarcast.protocol.following.own_listings import OwnListings
from pulsarcast.protocol.store import Block, DropState, LoadBlock, PutState, StateRow

ROUNDS = 30
"""Rounds in the time by which a replica prolongs a version: one a day, by default."""
SOONER = 24
"""How much sooner the first round is: many nodes never run for a day."""
BATCH = 64
"""Versions that one message to a replica asks to keep."""
PAUSE_S = 1.0
OWED = "owed"
"""On the disk: the versions that no peer may keep yet."""
OWED_S = 20.0
"""Before what no peer took is placed again: by then a cut may be over, and a node has joined."""


class Republishing:
    """Asks the DHT to keep the topics that the node follows."""

    def __init__(
        self,
        context: Context,
        dht: Kademlia,
        descriptors: Descriptors,
        listings: OwnListings,
        names: Names,
    ) -> None:
        self.turn = context.turn
        self.dht = dht
        self.descriptors = descriptors
        self.listings = listings
        self.names = names
        self.parameters = context.parameters
        self._due: list[bytes] = []
        self._marks_due: list[Cid] = []
        """Blocks of the marks that the versions name: those on the node's disk are stored again."""
        self._owed: dict[bytes, TopicDescriptor] = {}
        """Versions that no peer has taken yet, by their blocks."""
        self._next: int | None = None
        """The timer of what comes next; None: something is being placed."""
        self._round_at_s = 0.0
        """When the next round begins."""

    def start(self, owed: Container[bytes]) -> None:
        """Begin soon, and without a draw of chance; `owed` is from the disk."""
        for version in self.descriptors.followed():
            if version.cid in owed:
                self._owed[version.block] = version
        self._round_at_s = self.turn.now + self._round_s / SOONER
        self._wait()

    def owe(self, version: TopicDescriptor) -> None:
        """No peer may keep this version, or the marks that it names: place them soon."""
        self._owed[version.block] = version
        self.turn.persist(PutState(StateRow(OWED, version.cid, b"")))
        if self._next is not None:
            self.turn.cancel(self._next)
            self._wait()

    def _wait(self) -> None:
        delay_s = max(0.0, self._round_at_s - self.turn.now)
        if self._owed and delay_s > OWED_S:
            self._next = self.turn.after(OWED_S, self._place_owed)
        else:
            self._next = self.turn.after(delay_s, self._begin_round)

    def _place_owed(self) -> None:
        self._next = None
        self._take(self._owed.values())
        self._ask_next()

    @property
    def _round_s(self) -> float:
        return self.parameters.block_expiry_s / ROUNDS

    def _begin_round(self) -> None:
        self._next = None
        self._round_at_s = self.turn.now + self.turn.jitter(self._round_s)
        self.listings.renew()
        self.names.renew()
        now_us = self.turn.wall_us
        self._take(
            version
            for version in self.descriptors.followed()
            if topic_lifetime(version, self.parameters).ends_soon(now_us)
        )
        self._place_owed()

    def _take(self, versions: Iterable[TopicDescriptor]) -> None:
        for version in versions:
            self._due.append(version.block)
            named = (version.valid_until, version.flushed)
            self._marks_due.extend(each for each in named if not isinstance(each, tuple))

    def _ask_next(self) -> None:
        if not self._due and self._marks_due:
            self.turn.load(LoadBlock(self._marks_due.pop(0)), Block, self._ask_for_marks)
            return
        if not self._due:
            self._wait()
            return
        blocks, self._due = self._due[:BATCH], self._due[BATCH:]
        self.dht.store(blocks, lambda counts: self._placed(blocks, counts))

    def _placed(self, blocks: list[bytes], counts: list[int]) -> None:
        for block, count in zip(blocks, counts, strict=True):
            if count and (version := self._owed.pop(block, None)) is not None:
                self.turn.persist(DropState(OWED, version.cid))
        self._ask_later()

    def _ask_for_marks(self, answer: Block) -> None:
        if answer.block is None:
            self._ask_next()
            return
        found = decode_marks(answer.block)
        if isinstance(found, MarkIndex):
            self._marks_due.extend(found.page(at) for at in range(len(found)))
        self.dht.marks.keep([answer.block])
        self.dht.store([answer.block], lambda _: self._ask_later())

    def _ask_later(self) -> None:
        self.turn.after(PAUSE_S, self._ask_next)
