"""A first guess at who is closest to a key, and what becomes of a wrong one."""

from collections import Counter

import pytest

from pulsarcast.model.ids import PeerId, cid_key, cid_of, peer_key
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.dht.blocks import FULL_S
from pulsarcast.protocol.dht.placing import EVERYBODY_S, PLACED_MAX, Placing
from pulsarcast.protocol.effects import Persist
from pulsarcast.protocol.messages import Contact, FindPeers, Peers, StoreBlocks, Stored
from tests.support.people import peer
from tests.unit.protocol.dht.network import BRIEF_S, Network, Node, some_blocks, verify_block
from tests.unit.protocol.dht.parts import Parts, peers


@pytest.fixture
def network() -> Network:
    return Network(40).start()


def count_about(block: bytes, network: Network) -> Counter[type]:
    """Count the messages about a block that are sent from now on, by kind."""
    sent: Counter[type] = Counter()
    carry = network.carry
    key = cid_key(cid_of(block))

    def counted(sender: Node, peer: PeerId, message: object) -> None:
        if getattr(message, "key", key) == key and block in getattr(message, "blocks", (block,)):
            sent[type(message)] += 1
        carry(sender, peer, message)

    network.carry = counted  # type: ignore[method-assign]
    return sent


def block_whose_closest_are_known_to(node: Node, network: Network, *, known: bool) -> bytes:
    for block in some_blocks(200):
        key = cid_key(cid_of(block))
        closest = {each.peer for each in network.closest(key)}
        guess = {each.peer for each in node.dht.closest_known(key, 3)}
        if node.peer not in closest and (guess == closest) == known:
            return block
    raise AssertionError("no such block")


def test_whoever_knows_the_closest_asks_nobody_who_they_are(network: Network) -> None:
    node = network.nodes[5]
    block = block_whose_closest_are_known_to(node, network, known=True)
    sent = count_about(block, network)
    assert network.store(node, [block]) == [3]
    assert sent[StoreBlocks] == 3
    assert not sent[FindPeers]


def test_a_wrong_guess_is_declined_and_the_closest_are_looked_up(network: Network) -> None:
    node = network.nodes[5]
    block = block_whose_closest_are_known_to(node, network, known=True)
    key = cid_key(cid_of(block))
    # It forgets them, and thinks that others are the closest.
    for each in network.closest(key):
        node.dht._table.failed(each.contact, network.now)
        node.dht._table._failed.clear()
    assert not {each.peer for each in node.dht.closest_known(key, 3)} & {
        each.peer for each in network.closest(key)
    }
    sent = count_about(block, network)
    assert network.store(node, [block]) == [3]
    assert sent[FindPeers]
    assert node.dht.known_with_room_count == node.dht.known_count, "whoever declines is not full"
    # One that does not know all of the closest may take it for one of its own: repair moves that.
    near = {each.peer for each in network.closest(key, 5)}
    assert {each.peer for each in network.holders(cid_of(block))} <= near


def test_one_that_holds_nothing_yet_takes_only_what_is_its_own(network: Network) -> None:
    node, block = network.nodes[5], some_blocks(1)[0]
    key = cid_key(cid_of(block))
    farthest = max(network.nodes, key=lambda each: peer_key(each.peer) ^ key)
    request = 2
    farthest.do(lambda: farthest.receive(node.peer, StoreBlocks(request, (block,), True)))
    network.run(1.0)
    assert not farthest.holds(cid_of(block))
    farthest.do(lambda: farthest.receive(node.peer, StoreBlocks(request, (block,), False)))
    network.run(1.0)
    assert farthest.holds(cid_of(block)), "whoever looked up the closest is believed"


def test_one_alone_counts_what_it_keeps_beside_what_is_out_of_its_time() -> None:
    """A block that it may not keep ended twice, and the next one was not waited for."""
    alone = Network(1).start()
    node = alone.nodes[0]
    alone.run(BRIEF_S)
    assert alone.store(node, [b"brief", *some_blocks(2)]) == [0, 1, 1]
    assert node.dht.footprint()["dht_placements"] == 0


class Placed:
    """One block that a node places on peers that can be dialled, or also on members."""

    BLOCK = b"block"
    KEY = cid_key(cid_of(BLOCK))

    def __init__(self, *listed: PeerId, reach: Reach = Reach.PUBLIC) -> None:
        self.parts = Parts(*listed)
        self.parts.reachability.start(reach)
        self.placing = Placing(
            self.parts.context,
            self.parts.calls,
            self.parts.lookups,
            self.parts.table,
            self.parts.blocks,
            self.parts.reachability,
        )
        self.counts: list[list[int]] = []
        self.asked: list[PeerId] = []
        """The peers that were asked to keep it, in order."""

    def store(self, *also: PeerId, keep_local: bool = False, refusing: PeerId | None = None) -> int:
        """Place the block: one peer may refuse, and the disk writes; returns the count."""
        self.placing.store([self.BLOCK], self.counts.append, keep_local=keep_local, also=also)
        while asked := self.parts.questions.asked():
            who, question = asked[0]
            if isinstance(question, FindPeers):
                self.parts.questions.answer(Peers(0, ()))
            else:
                self.asked.append(who)
                held = () if who == refusing else (cid_of(self.BLOCK),)
                self.parts.questions.answer(Stored(0, held))
        self.parts.sync()
        ((count,),) = self.counts
        return count


LISTED = sorted(peers(3), key=lambda who: peer_key(who) ^ Placed.KEY)
MEMBERS = [peer(f"member {number}") for number in range(3)]


def test_members_count_as_replicas_where_too_few_peers_can_be_dialled() -> None:
    placed = Placed(*LISTED[:2])
    assert placed.store(*MEMBERS) == 3
    assert placed.asked == [*LISTED[:2], MEMBERS[0]]
    alone = Placed()
    assert alone.store(*MEMBERS[:2], keep_local=True) == 3
    assert alone.asked == MEMBERS[:2]


def test_no_member_is_asked_where_enough_peers_can_be_dialled() -> None:
    placed = Placed(*LISTED)
    assert placed.store(*MEMBERS) == 3
    assert placed.asked == LISTED


def test_a_member_replaces_a_peer_that_refuses_where_there_is_no_other() -> None:
    placed = Placed(*LISTED)
    assert placed.store(*MEMBERS, refusing=LISTED[1]) == 3
    assert placed.asked[-1] == MEMBERS[0]


def test_the_node_itself_replaces_a_peer_that_refuses_where_there_is_no_other() -> None:
    placed = Placed(*LISTED, reach=Reach.PRIVATE)
    assert placed.store(keep_local=True, refusing=LISTED[1]) == 3
    assert placed.placing.full_count == 0, "others may have been closer"


def test_a_peer_that_refuses_what_is_its_own_counts_as_full_for_a_while() -> None:
    placed = Placed(*LISTED[:2])
    assert placed.store(keep_local=True, refusing=LISTED[1]) == 2
    assert placed.placing.full_count == 1
    placed.parts.turn.now += FULL_S
    assert placed.placing.full_count == 0, "it may have room again"


@pytest.mark.parametrize("reach", Reach)
@pytest.mark.parametrize("count", [2, 3])
def test_a_node_that_is_not_public_is_a_replica_only_where_fewer_than_r_peers_are_listed(
    reach: Reach, count: int
) -> None:
    placed = Placed(*LISTED[:count], reach=reach)
    me = placed.parts.turn.me
    assert peer_key(me) ^ Placed.KEY < peer_key(LISTED[-1]) ^ Placed.KEY, "it is close enough"
    assert placed.store(*MEMBERS, keep_local=True) == 3
    assert not set(placed.asked) & set(MEMBERS)
    keeps = count < 3 or reach is Reach.PUBLIC
    assert len(placed.asked) == 3 - keeps


def test_a_store_that_takes_too_long_is_answered_with_what_it_reached() -> None:
    parts = Parts(*peers(3))
    placing = Placing(
        parts.context, parts.calls, parts.lookups, parts.table, parts.blocks, parts.reachability
    )
    counts: list[list[int]] = []
    placing.store([b"block"], counts.append, keep_local=False)
    timer = parts.timer()
    for _ in range(2):
        parts.questions.answer(Stored(0, (cid_of(b"block"),)))
    assert counts == []
    parts.turn.now = timer.delay_s
    parts.turn.fired(timer.timer)
    assert counts == [[2]]
    parts.questions.answer(Stored(0, (cid_of(b"block"),)))
    assert counts == [[2]], "an answer after the deadline changes nothing"
    assert placing.footprint()["dht_placements"] == 0


def test_blocks_of_one_turn_leave_together_at_its_end() -> None:
    parts = Parts(*peers(3))
    placing = Placing(
        parts.context, parts.calls, parts.lookups, parts.table, parts.blocks, parts.reachability
    )
    for block in (b"1", b"2", b"3"):
        placing.store([block], lambda _: None, keep_local=False)
    assert not parts.questions.waiting
    assert [question for _, question in parts.questions.asked()] == [
        StoreBlocks(0, (b"1", b"2", b"3"), True)
    ] * 3


def test_one_search_finds_everybody_for_a_while_where_few_are_known() -> None:
    placed = Placed(*LISTED[:2])

    def searches(block: bytes) -> int:
        placed.placing.store([block], lambda _: None, keep_local=False)
        count = 0
        while asked := placed.parts.questions.asked():
            is_search = isinstance(asked[0][1], FindPeers)
            count += is_search
            held = (cid_of(block),)
            placed.parts.questions.answer(Peers(0, ()) if is_search else Stored(0, held))
        return count

    assert searches(b"1") == 2
    assert searches(b"2") == 0
    placed.parts.turn.now += EVERYBODY_S
    assert searches(b"3") == 2, "others may have come"
    assert searches(b"4") == 0
    placed.parts.table.failed(Contact(LISTED[0]), placed.parts.turn.now)
    assert searches(b"5") == 1, "the node knows others than then"


def test_blocks_for_a_peer_that_has_answers_to_give_wait_and_leave_together() -> None:
    parts = Parts(*peers(3))
    placing = Placing(
        parts.context, parts.calls, parts.lookups, parts.table, parts.blocks, parts.reachability
    )
    for block in (b"1", b"2", b"3", b"4"):
        placing.store([block], lambda _: None, keep_local=False)
        if block != b"3":
            parts.turn.end()
    first = parts.questions.asked()[0][0]
    to_first = [question for who, question in parts.questions.asked() if who == first]
    assert to_first == [StoreBlocks(0, (b"1",), True), StoreBlocks(0, (b"2",), True)]
    parts.questions.answer(Stored(0, (cid_of(b"1"),)))
    assert parts.questions.asked()[-1] == (first, StoreBlocks(0, (b"3", b"4"), True))


def test_too_many_blocks_at_once_are_refused_without_a_message() -> None:
    parts = Parts(*peers(3))
    placing = Placing(
        parts.context, parts.calls, parts.lookups, parts.table, parts.blocks, parts.reachability
    )
    counts: list[list[int]] = []
    placing.store([b"block"] * (PLACED_MAX + 1), counts.append, keep_local=False)
    assert counts == [[0] * (PLACED_MAX + 1)]
    assert parts.questions.asked() == []


def test_a_replica_of_the_node_that_came_with_another_write_counts_without_one_of_its_own() -> None:
    placed = Placed(*LISTED[:2])
    parts, key = placed.parts, Placed.KEY
    cid = cid_of(Placed.BLOCK)
    assert not placed.placing.is_own(key), "it has to search first"
    placed.placing.store([b"another"], lambda _: None, keep_local=False)
    while parts.questions.asked():
        parts.questions.answer(Peers(0, ()))
    assert placed.placing.is_own(key)
    replica = parts.blocks.own_replica(cid, Placed.BLOCK, verify_block(Placed.BLOCK)[1])
    assert replica is not None
    parts.blocks.kept(replica)
    parts.effects()
    placed.placing.store([Placed.BLOCK], placed.counts.append, keep_local=True)
    assert not [each for each in parts.effects() if isinstance(each, Persist)]
    while parts.questions.asked():
        parts.questions.answer(Stored(0, (cid,)))
    assert placed.counts == [[3]]


@pytest.mark.parametrize("reach", [Reach.PUBLIC, Reach.PRIVATE])
def test_a_node_knows_whether_it_is_among_the_closest_where_it_knows_enough_peers(
    reach: Reach,
) -> None:
    placed = Placed(*LISTED, reach=reach)
    near = sum(peer_key(who) ^ Placed.KEY < placed.parts.table.me ^ Placed.KEY for who in LISTED)
    assert placed.placing.is_own(Placed.KEY) == (near < 3 and reach is Reach.PUBLIC)
    farthest = placed.parts.table.me ^ ((1 << 256) - 1)
    assert not placed.placing.is_own(farthest)


def test_a_block_out_of_its_time_is_no_replica() -> None:
    parts = Parts()
    _, lifetime = verify_block(b"brief")
    assert parts.blocks.own_replica(cid_of(b"brief"), b"brief", lifetime) is not None
    parts.turn.wall_us += BRIEF_S * 1_000_000
    assert parts.blocks.own_replica(cid_of(b"brief"), b"brief", lifetime) is None
