"""Each part of the DHT, built alone; the test is its disk and its network."""

from random import Random

from pulsarcast.model.ids import PeerId, cid_of
from pulsarcast.model.pointers import Named, sign_pointer
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.blocks import Blocks
from pulsarcast.protocol.dht.calls import Calls
from pulsarcast.protocol.dht.hot_blocks import HotBlocks
from pulsarcast.protocol.dht.lookup import Lookup
from pulsarcast.protocol.dht.lookups import Lookups
from pulsarcast.protocol.dht.membership import Membership
from pulsarcast.protocol.dht.placing import Placing
from pulsarcast.protocol.dht.pointers import Pointers
from pulsarcast.protocol.dht.reachability import Reachability
from pulsarcast.protocol.dht.replication import Replication
from pulsarcast.protocol.dht.routing import RoutingTable
from pulsarcast.protocol.dht.showing import Showing
from pulsarcast.protocol.effects import Load, Persist, Send
from pulsarcast.protocol.messages import (
    CompareKeys,
    Contact,
    FindPeers,
    KeysDiffer,
    Peers,
    StoreBlocks,
    Stored,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import KeyDigest
from pulsarcast.protocol.turn import Turn
from tests.support.people import ALICE, BOB, CAROL, topic_of
from tests.unit.protocol.dht.network import EPOCH_US, AnyBlocks
from tests.unit.protocol.dht.parts import NoFinder


class Bench:
    """A node that knows nobody, and the parts that most parts of its DHT call."""

    def __init__(self) -> None:
        self.turn = Turn(ALICE, Random(1))
        self.turn.wall_us = EPOCH_US
        self.context = Context(self.turn, Parameters())
        self.table = RoutingTable(self.turn.me, bucket_size=20, retry_s=30.0)
        self.calls = Calls(self.context, self.table, lambda contact: None)
        self.lookups = Lookups(self.context, self.table, self.calls)
        self.keeper = AnyBlocks()
        self.reachability = Reachability(self.context, self.keeper)
        hot = HotBlocks(self.context, NoFinder())
        self.blocks = Blocks(self.context, self.table, hot, self.reachability, self.keeper)

    def sync(self) -> None:
        """The disk has written all that it was given."""
        for effect in self._take():
            if isinstance(effect, Persist):
                self.turn.persisted(effect.token)

    def load(self, answer: KeyDigest) -> None:
        """The disk answers all that it was asked."""
        for effect in self._take():
            if isinstance(effect, Load):
                self.turn.loaded(effect.token, answer)

    def sent(self) -> list[tuple[PeerId, object]]:
        return [(each.peer, each.message) for each in self._take() if isinstance(each, Send)]

    def _take(self) -> list[object]:
        effects, self.turn.effects = self.turn.effects, []
        return list(effects)


def test_a_block_counts_as_stored_once_it_is_on_the_disk() -> None:
    bench = Bench()
    bench.blocks.receive(BOB.peer_id, StoreBlocks(2, (b"block",)))
    assert cid_of(b"block") not in bench.blocks
    bench.sync()
    assert bench.sent() == [(BOB.peer_id, Stored(2, (cid_of(b"block"),)))]
    assert bench.keeper.stored == [b"block"]


def test_a_lookup_ends_with_those_that_answered() -> None:
    bench = Bench()
    bench.table.saw(Contact(BOB.peer_id), 0.0)
    found: list[Lookup] = []
    bench.lookups.find_peers(7, found.append, count=3)
    ((to, question),) = bench.sent()
    assert (to, isinstance(question, FindPeers)) == (BOB.peer_id, True)
    assert not found
    assert isinstance(question, FindPeers)
    bench.calls.answer(BOB.peer_id, question.request, Peers(question.request, ()))
    assert [lookup.closest(3) for lookup in found] == [[Contact(BOB.peer_id)]]


def test_a_newcomer_asks_those_that_it_was_given_for_its_neighbours() -> None:
    bench = Bench()
    membership = Membership(bench.context, bench.table, bench.calls, bench.lookups)
    membership.start([Contact(BOB.peer_id), Contact(ALICE.peer_id)])
    assert membership.is_joining
    ((to, question),) = bench.sent()
    assert isinstance(question, FindPeers)
    assert (to, question.key) == (BOB.peer_id, bench.table.me)


def test_a_node_that_knows_nobody_is_the_one_replica_of_its_block() -> None:
    bench = Bench()
    counted: list[list[int]] = []
    placing = Placing(
        bench.context, bench.calls, bench.lookups, bench.table, bench.blocks, bench.reachability
    )
    placing.store([b"block"], counted.append, keep_local=True)
    assert counted == []
    bench.sync()
    assert counted == [[1]]


def test_a_node_that_knows_nobody_keeps_and_finds_its_own_pointer() -> None:
    bench = Bench()
    showing = Showing(bench.context, bench.table, bench.calls, bench.lookups)
    pointers = Pointers(bench.context, bench.table, bench.lookups, showing, AnyBlocks())
    cid = topic_of(CAROL).cid
    named = Named(sign_pointer(CAROL, "news", 1, cid, topic=cid))
    counted: list[int] = []
    pointers.place(named, counted.append)
    assert counted == []
    bench.sync()
    assert counted == [1]
    found: list[Named | None] = []
    pointers.find(CAROL.peer_id, "news", found.append)
    pointers.find(CAROL.peer_id, "olds", found.append)
    assert found == [named, None]


def test_a_replica_with_the_same_digest_is_told_so_without_keys() -> None:
    bench = Bench()
    replication = Replication(bench.context, bench.table, bench.calls, bench.blocks)
    replication.answer_compare(BOB.peer_id, CompareKeys(4, 1, 9, 2, 77))
    bench.load(KeyDigest(2, 77))
    assert bench.sent() == [(BOB.peer_id, KeysDiffer(4, 1, 9, (), ((1, 9, 2, 77),)))]
