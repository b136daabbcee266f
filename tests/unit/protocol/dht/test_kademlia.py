"""The DHT over a small network: lookups, stores, faults."""

from random import Random
from typing import TypeGuard

import pytest

from pulsarcast.model.errors import RemoteError, Verdict
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import PeerId, cid_key, cid_of, peer_id_of, peer_key
from pulsarcast.model.keys import Key
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht import lookups, placing
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.effects import Effect, Load, Persist, Send, SetTimer
from pulsarcast.protocol.inputs import PeerUp
from pulsarcast.protocol.messages import (
    BlockFound,
    Contact,
    DhtMessage,
    FindBlock,
    FindPeers,
    Peers,
    ReachChanged,
    StoreBlocks,
    Stored,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import Block, LoadBlock, PutBlock
from pulsarcast.protocol.turn import Turn
from tests.support.writes import flat
from tests.unit.protocol.dht.network import (
    BRIEF_S,
    EPOCH_US,
    PROLONGED_S,
    AnyBlocks,
    Network,
    some_blocks,
)


@pytest.fixture
def network() -> Network:
    return Network(40).start()


class Alone:
    """One node whose peers are played by the test."""

    def __init__(self, parameters: Parameters | None = None) -> None:
        self.turn = Turn(Identity.from_seed(bytes(32)), Random(1))
        self.turn.wall_us = EPOCH_US
        keeper = AnyBlocks()
        self.stored = keeper.stored
        context = Context(self.turn, parameters or Parameters())
        self.counts = context.counts
        self.dht = Kademlia(context, keeper)

    def effects(self) -> list[Effect]:
        self.turn.end()
        effects, self.turn.effects = self.turn.effects, []
        return effects

    def receive(self, sender: PeerId, message: DhtMessage) -> list[tuple[PeerId, object]]:
        self.dht.receive(sender, message)
        return self.sent()

    def sent(self) -> list[tuple[PeerId, object]]:
        return [(e.peer, e.message) for e in self.effects() if isinstance(e, Send)]

    def persists(self) -> list[Persist]:
        return [e for e in self.effects() if isinstance(e, Persist)]


def _is_due(effect: Effect) -> TypeGuard[SetTimer]:
    return isinstance(effect, SetTimer) and not effect.delay_s


def a_peer(number: int) -> PeerId:
    return peer_id_of(Random(number).randbytes(32))


# Reach: only peers that can be dialled are listed.


def named(alone: Alone, key: Key, asker: PeerId) -> list[PeerId]:
    """The peers that the node names to one that asks for those closest to a key."""
    alone.effects()
    ((to, answer),) = alone.receive(asker, FindPeers(1, key))
    assert to == asker
    assert isinstance(answer, Peers)
    return [contact.peer for contact in answer.contacts]


def test_a_peer_that_is_not_listed_is_no_contact_whatever_it_sends() -> None:
    alone = Alone()
    listed, private = Contact(a_peer(1)), Contact(a_peer(2))
    alone.dht.up(PeerUp(listed, reach=Reach.PUBLIC))
    alone.dht.up(PeerUp(private, reach=Reach.PRIVATE))
    alone.receive(private.peer, FindPeers(1, 1))
    assert alone.dht.closest_known(peer_key(private.peer), 2) == [listed]
    assert named(alone, peer_key(private.peer), a_peer(3)) == [listed.peer]


@pytest.mark.parametrize("reach", [Reach.PUBLIC, Reach.PRIVATE])
def test_only_a_listed_peer_is_remembered_to_join_through(reach: Reach) -> None:
    alone = Alone()
    contact = Contact(a_peer(1), ("/ip4/192.0.2.1/tcp/1",))
    alone.dht.up(PeerUp(contact, "192.0.2.0/24", reached=True, reach=reach))
    assert alone.dht.remembered_count == (reach is Reach.PUBLIC)


def test_a_peer_that_is_not_listed_gets_no_replicas() -> None:
    alone = Alone()
    alone.dht.up(PeerUp(Contact(a_peer(1)), reach=Reach.PUBLIC))
    alone.dht.up(PeerUp(Contact(a_peer(2)), reach=Reach.PRIVATE))
    alone.effects()
    alone.dht.store([b"block"], lambda _: None, keep_local=False)
    ((asked, search),) = alone.sent()
    assert isinstance(search, FindPeers)
    assert asked == a_peer(1)
    ((asked, question),) = alone.receive(a_peer(1), Peers(search.request, ()))
    assert isinstance(question, StoreBlocks)
    assert asked == a_peer(1)


def test_a_peer_is_a_contact_while_it_says_that_it_is_public() -> None:
    alone = Alone()
    contact = Contact(a_peer(1), ("/ip4/192.0.2.1/tcp/1",))
    alone.dht.up(PeerUp(contact, reach=Reach.PRIVATE))
    for reach in (Reach.PUBLIC, Reach.RELAYED, Reach.PUBLIC, Reach.PRIVATE):
        alone.dht.reachability.receive(contact.peer, ReachChanged(reach, contact.addresses))
        assert alone.dht.knows(contact.peer) == (reach is Reach.PUBLIC)
        listed = [contact] if reach is Reach.PUBLIC else []
        assert alone.dht.closest_known(1, 1) == listed


def test_a_contact_that_comes_back_and_cannot_be_dialled_is_a_contact_no_longer() -> None:
    """Drivers end idle connections without a word, and the peer may have moved meanwhile."""
    alone = Alone()
    contact = Contact(a_peer(1))
    alone.dht.up(PeerUp(contact, reach=Reach.PUBLIC))
    alone.dht.up(PeerUp(contact, reach=Reach.PRIVATE))
    assert not alone.dht.knows(contact.peer)
    assert alone.dht.known_count == 0


def test_a_failed_contact_that_comes_back_and_cannot_be_dialled_is_not_tried_again() -> None:
    alone = Alone()
    contact = Contact(a_peer(1))
    alone.dht.up(PeerUp(contact, reach=Reach.PUBLIC))
    alone.dht.lost(contact.peer)
    assert alone.dht.footprint()["dht_failed"] == 1
    alone.dht.up(PeerUp(contact, reach=Reach.PRIVATE))
    assert alone.dht.footprint()["dht_failed"] == 0


def test_a_peer_that_only_a_relay_leads_to_is_named_to_those_that_ask_for_its_key() -> None:
    alone = Alone(Parameters(bucket_size=2))
    relayed, asker, *others = map(a_peer, range(1, 6))
    for other in others:
        alone.dht.up(PeerUp(Contact(other), reach=Reach.PUBLIC))
    alone.dht.up(PeerUp(Contact(relayed), reach=Reach.RELAYED))
    key = peer_key(relayed)
    found = named(alone, key, asker)
    assert found[0] == relayed
    assert len(found) == 2, "as many as others"
    assert relayed not in named(alone, key ^ 1, asker)
    assert relayed not in named(alone, key, relayed)
    alone.dht.reachability.receive(relayed, ReachChanged(Reach.PRIVATE))
    assert relayed not in named(alone, key, asker)


# Lookups.


def test_a_lookup_finds_the_peers_that_are_truly_closest(network: Network) -> None:
    rng = Random(2)
    for _ in range(50):
        key = rng.getrandbits(256)
        node = rng.choice(network.nodes)
        closest = [other.peer for other in network.closest(key, 4) if other is not node][:3]
        assert network.look_up(node, key)[:3] == closest


def test_lookups_stay_exact_in_a_network_too_large_for_one_table() -> None:
    network = Network(200).start(settle_s=60)
    rng = Random(3)
    assert max(len(list(node.dht.closest_known(0, 500))) for node in network.nodes) < 150
    for _ in range(50):
        key = rng.getrandbits(256)
        node = rng.choice(network.nodes)
        closest = [other.peer for other in network.closest(key, 4) if other is not node][:3]
        assert network.look_up(node, key)[:3] == closest


def test_where_everyone_is_known_a_lookup_asks_three_peers(network: Network) -> None:
    node = network.nodes[0]
    network.run(60)
    for number in range(10):
        network.messages.clear()
        network.look_up(node, cid_key(cid_of(b"%d" % number)))
        assert network.messages["FindPeers"] <= 6


def test_a_lookup_steps_over_peers_that_died_unnoticed(network: Network) -> None:
    key = Random(4).getrandbits(256)
    asker, *_ = (node for node in network.nodes if node not in network.closest(key, 10))
    for node in network.closest(key, 3):
        node.connected.clear()  # Nobody is told.
        node.kill()
    assert network.look_up(asker, key)[:3] == [node.peer for node in network.closest(key, 3)]


def test_a_lookup_survives_the_loss_of_peers_that_it_has_asked(network: Network) -> None:
    key = Random(5).getrandbits(256)
    asker, *_ = (node for node in network.nodes if node not in network.closest(key, 10))
    answers: list[list[Contact]] = []
    asker.do(lambda: asker.dht.lookup(key, answers.append))
    for node in network.closest(key, 3):
        node.kill()
    network.run(3)
    assert [contact.peer for contact in answers[0][:3]] == [
        node.peer for node in network.closest(key, 3)
    ]


def test_a_lookup_of_somebody_who_knows_nobody_ends_at_once() -> None:
    alone = Alone()
    answers: list[object] = []
    alone.dht.lookup(1, answers.append)
    assert answers == [[]]


@pytest.mark.parametrize("block", [b"block", None])
def test_a_node_looks_at_its_own_disk_for_a_block_that_no_other_peer_has(
    block: bytes | None,
) -> None:
    alone = Alone()
    answers: list[bytes | None] = []
    alone.dht.find_block(cid_of(b"block"), answers.append)
    (load,) = [effect for effect in alone.effects() if isinstance(effect, Load)]
    assert load.query == LoadBlock(cid_of(b"block"))
    assert answers == []
    alone.turn.loaded(load.token, Block(block))
    assert answers == [block]


def test_lookups_beyond_the_bound_wait_and_beyond_that_fail() -> None:
    alone = Alone()
    alone.dht.saw(Contact(a_peer(1)))
    answers: list[list[Contact]] = []
    most = lookups.LOOKUPS_MAX + lookups.WAITING_MAX
    for key in range(most + 1):
        alone.dht.lookup(key, answers.append)
    assert answers == [[]]
    assert alone.dht.footprint()["dht_lookups"] == most
    assert len(alone.sent()) == lookups.LOOKUPS_MAX
    # The only peer is lost: all that wait end, not inside each other, and some in each turn.
    alone.dht.lost(a_peer(1))
    before = 1 + lookups.LOOKUPS_MAX
    while fired := [each.timer for each in alone.effects() if _is_due(each)]:
        assert len(fired) == 1
        assert 0 < len(answers) - before <= lookups.BEGUN_AT_ONCE
        before = len(answers)
        alone.turn.fired(fired[0])
    assert len(answers) == most + 1
    assert alone.dht.footprint()["dht_lookups"] == 0


def test_a_lookup_finds_a_bucket_of_peers_at_most() -> None:
    alone = Alone(Parameters(bucket_size=3, replicas=3))
    key = 7
    peers = sorted(map(a_peer, range(9)), key=lambda peer: peer_key(peer) ^ key, reverse=True)
    for peer in peers[:3]:
        alone.dht.saw(Contact(peer))
    found: list[list[Contact]] = []
    alone.dht.lookup(key, found.append)
    assert alone.dht.footprint()["dht_calls"] == 3
    asked: list[PeerId] = []
    questions = alone.sent()
    while questions:
        peer, question = questions.pop(0)
        assert isinstance(question, FindPeers)
        asked.append(peer)
        closer = peers[peers.index(peer) + 1 :][:3]
        answer = Peers(question.request, tuple(map(Contact, closer)))
        questions += alone.receive(peer, answer)
    assert len(asked) > 3, "the test is void unless more have answered"
    assert found == [[Contact(peer) for peer in reversed(peers[-3:])]]
    assert alone.dht.footprint()["dht_calls"] == 0


def test_a_stale_or_unsolicited_answer_changes_nothing() -> None:
    alone = Alone()
    found: list[list[Contact]] = []
    alone.dht.saw(Contact(a_peer(1)))
    alone.dht.lookup(7, found.append)
    ((_, question),) = alone.sent()
    assert isinstance(question, FindPeers)
    for message in (
        Peers(question.request + 2, (Contact(a_peer(3)),)),
        BlockFound(question.request, b"x", ()),
        Stored(question.request, ()),
    ):
        assert alone.receive(a_peer(1), message) == []
    assert alone.receive(a_peer(2), Peers(question.request, ())) == []
    assert found == []
    alone.receive(a_peer(1), Peers(question.request, ()))
    assert found == [[Contact(a_peer(1))]]


def test_an_answer_names_neither_the_asker_nor_ourselves() -> None:
    alone = Alone()
    for number in range(1, 5):
        alone.dht.saw(Contact(a_peer(number)))
    ((_, answer),) = alone.receive(a_peer(1), FindPeers(8, 0))
    assert isinstance(answer, Peers)
    assert sorted(c.peer for c in answer.contacts) == sorted(a_peer(n) for n in range(2, 5))


def test_who_lacks_a_block_names_a_bucket_of_peers_and_not_the_asker() -> None:
    parameters = Parameters(bucket_size=3)
    alone = Alone(parameters)
    for number in range(1, 30):
        alone.dht.saw(Contact(a_peer(number)))
    asker, cid = a_peer(1), cid_of(b"nobody's")
    alone.dht.receive(asker, FindBlock(8, cid))
    (load,) = (each for each in alone.effects() if isinstance(each, Load))
    alone.turn.loaded(load.token, Block(None))
    ((_, answer),) = alone.sent()
    assert isinstance(answer, BlockFound)
    assert len(answer.contacts) == parameters.bucket_size
    assert asker not in {contact.peer for contact in answer.contacts}


# Blocks.


def test_a_block_is_kept_by_the_three_closest_peers_and_they_are_counted(
    network: Network,
) -> None:
    blocks = some_blocks(20)
    assert network.store(network.nodes[5], blocks) == [3] * 20
    for block in blocks:
        cid = cid_of(block)
        assert {node.peer for node in network.holders(cid)} == {
            node.peer for node in network.closest(cid_key(cid))
        }


def test_a_publisher_that_is_among_the_closest_keeps_and_counts_its_own_copy(
    network: Network,
) -> None:
    block = b"mine"
    key = cid_key(cid_of(block))
    node = network.closest(key)[1]
    assert network.store(node, [block]) == [3]
    assert node in network.holders(cid_of(block))
    assert node.stored == [], "it is not somebody else's"
    assert network.store(node, [b"mine too" * 9], keep_local=False) == [3]


def test_a_publisher_that_must_not_keep_it_places_all_copies_elsewhere(network: Network) -> None:
    block = b"not mine"
    cid = cid_of(block)
    node = network.closest(cid_key(cid))[0]
    assert network.store(node, [block], keep_local=False) == [3]
    assert {holder.peer for holder in network.holders(cid)} == {
        other.peer for other in network.closest(cid_key(cid), 4)[1:]
    }


def test_a_replica_is_handed_to_the_node_once_it_is_synced(network: Network) -> None:
    block = some_blocks(1)[0]
    cid = cid_of(block)
    sender = network.closest(cid_key(cid), 40)[-1]
    network.store(sender, [block])
    network.store(sender, [block])
    for node in network.holders(cid):
        assert node.stored == [(cid, sender.peer)], "once, however often it is stored"


def test_a_store_replaces_peers_that_die_while_it_runs(network: Network) -> None:
    block = some_blocks(1)[0]
    cid = cid_of(block)
    first, second, *_, sender = network.closest(cid_key(cid), 40)
    answers: list[list[int]] = []
    sender.do(lambda: sender.dht.store([block], answers.append))
    network.run_until(lambda: network.messages["StoreBlocks"] > 0, seconds=5)
    first.kill()
    second.kill()
    network.run_until(lambda: bool(answers), seconds=60)
    assert answers == [[3]]
    assert {node.peer for node in network.holders(cid)} == {
        node.peer for node in network.closest(cid_key(cid))
    }


def test_a_peer_whose_disk_fails_does_not_count(network: Network) -> None:
    block = some_blocks(1)[0]
    cid = cid_of(block)
    broken, *_, sender = network.closest(cid_key(cid), 40)
    broken.disk_works = False
    assert network.store(sender, [block]) == [3]
    assert broken not in network.holders(cid)
    assert len(network.holders(cid)) == 3


def test_a_store_ends_even_when_our_own_disk_fails() -> None:
    network = Network(1).start()
    node = network.nodes[0]
    node.disk_works = False
    assert network.store(node, [b"lost"], seconds=90) == [0]
    assert node.dht.footprint()["dht_placements"] == 0


def test_a_peer_counts_only_for_the_blocks_it_says_it_keeps() -> None:
    alone = Alone()
    alone.dht.saw(Contact(a_peer(1)))
    answers: list[list[int]] = []
    alone.dht.store([b"a", b"b", b"c"], answers.append, keep_local=False)
    questions = alone.sent()
    while questions:
        _, question = questions.pop(0)
        if isinstance(question, FindPeers):
            questions += alone.receive(a_peer(1), Peers(question.request, ()))
        else:
            assert isinstance(question, StoreBlocks)
            kept = Stored(question.request, (cid_of(b"a"), cid_of(b"c"), cid_of(b"d")))
            questions += alone.receive(a_peer(1), kept)
    assert answers == [[1, 0, 1]]


def test_what_waits_for_a_peer_that_fails_goes_elsewhere_at_once() -> None:
    alone = Alone()
    alone.dht.saw(Contact(a_peer(1)))
    answers: list[list[int]] = []
    sent: list[tuple[PeerId, object]] = []
    alone.dht.store(some_blocks(10), answers.append, keep_local=False)
    for _, question in alone.sent():
        assert isinstance(question, FindPeers)
        sent += alone.receive(a_peer(1), Peers(question.request, ()))
    assert len(sent) == placing.BATCHES_PER_PEER_MAX
    alone.dht.lost(a_peer(1))
    assert answers == [[0] * 10]
    assert alone.sent() == []


def test_in_a_network_of_two_the_count_says_two() -> None:
    network = Network(2).start()
    assert network.store(network.nodes[0], some_blocks(3)) == [2, 2, 2]


def test_alone_the_count_says_one() -> None:
    network = Network(1).start()
    assert network.store(network.nodes[0], some_blocks(3)) == [1, 1, 1]


def test_storing_nothing_is_answered_at_once() -> None:
    answers: list[list[int]] = []
    Alone().dht.store([], answers.append)
    assert answers == [[]]


def test_too_many_stores_fail_at_once_instead_of_filling_the_memory() -> None:
    alone = Alone()
    alone.dht.saw(Contact(a_peer(1)))
    answers: list[list[int]] = []
    alone.dht.store(some_blocks(placing.PLACED_MAX), answers.append)
    alone.dht.store([b"one more"], answers.append)
    assert answers == [[0]]
    assert alone.dht.footprint()["dht_placements"] == placing.PLACED_MAX


def test_blocks_for_one_peer_travel_together() -> None:
    network = Network(4).start()
    network.messages.clear()
    assert network.store(network.nodes[0], some_blocks(200)) == [3] * 200
    assert network.messages["StoreBlocks"] < 60
    assert network.messages["StoreBlocks"] == network.messages["Stored"]


def test_a_block_is_found_by_anybody(network: Network) -> None:
    block = some_blocks(1)[0]
    network.store(network.nodes[0], [block])
    for node in network.nodes[::5]:
        assert network.find(node, cid_of(block)) == block


def test_a_block_is_found_as_long_as_one_replica_lives(network: Network) -> None:
    block = some_blocks(1)[0]
    cid = cid_of(block)
    network.store(network.closest(cid_key(cid), 40)[-1], [block])
    for node in network.holders(cid)[:2]:
        node.kill()
    assert network.find(network.closest(cid_key(cid), 40)[-1], cid) == block


def test_a_block_that_nobody_keeps_is_not_found(network: Network) -> None:
    assert network.find(network.nodes[0], cid_of(b"nowhere")) is None


def test_a_lie_about_a_block_is_refused_and_the_next_peer_asked() -> None:
    alone = Alone()
    cid = cid_of(b"true")
    for number in (1, 2):
        alone.dht.saw(Contact(a_peer(number)))
    answers: list[bytes | None] = []
    alone.dht.find_block(cid, answers.append)
    (liar, question), (honest, other_question) = alone.sent()
    with pytest.raises(RemoteError):
        alone.dht.receive(liar, BlockFound(question.request, b"false", ()))  # type: ignore[attr-defined]
    assert answers == []
    alone.dht.receive(honest, BlockFound(other_question.request, b"true", ()))  # type: ignore[attr-defined]
    assert answers == [b"true"]


# Serving.


def test_a_replica_answers_only_after_its_disk_has_synced() -> None:
    alone = Alone()
    alone.dht.receive(a_peer(1), StoreBlocks(8, (b"a", b"b")))
    (persist,) = alone.persists()
    assert alone.sent() == []
    alone.turn.persisted(persist.token)
    assert alone.sent() == [(a_peer(1), Stored(8, (cid_of(b"a"), cid_of(b"b"))))]
    assert alone.stored == [b"a", b"b"]


def test_a_block_that_is_held_already_is_answered_at_once() -> None:
    alone = Alone()
    alone.dht.receive(a_peer(1), StoreBlocks(8, (b"a",)))
    alone.turn.persisted(alone.persists()[0].token)
    alone.effects()
    assert alone.receive(a_peer(2), StoreBlocks(10, (b"a",))) == [
        (a_peer(2), Stored(10, (cid_of(b"a"),)))
    ]
    assert alone.stored == [b"a"]


def test_a_block_that_is_stored_twice_before_the_sync_is_news_once() -> None:
    alone = Alone()
    alone.dht.receive(a_peer(1), StoreBlocks(8, (b"a",)))
    alone.dht.receive(a_peer(2), StoreBlocks(8, (b"a",)))
    for persist in alone.persists():
        alone.turn.persisted(persist.token)
    assert [peer for peer, _ in alone.sent()] == [a_peer(1), a_peer(2)]
    assert alone.stored == [b"a"]


def test_blocks_that_we_no_longer_wait_for_are_not_kept() -> None:
    alone = Alone()
    alone.dht.receive(a_peer(1), StoreBlocks(9, (b"a",)))
    assert alone.persists() == []


@pytest.mark.parametrize("away_s", [-86_401, BRIEF_S], ids=["from the future", "expired"])
def test_a_block_out_of_its_time_is_not_kept_and_nobody_is_to_blame(away_s: int) -> None:
    """Our clock may be the wrong one; but who claims the future would be kept for ever."""
    alone = Alone()
    alone.turn.wall_us = EPOCH_US + away_s * 1_000_000
    with pytest.raises(RemoteError) as caught:
        alone.dht.receive(a_peer(1), StoreBlocks(8, (b"brief",)))
    assert caught.value.verdict is Verdict.IGNORE
    effects = alone.effects()
    assert not [effect for effect in effects if isinstance(effect, Persist)]
    sent = [effect.message for effect in effects if isinstance(effect, Send)]
    assert sent == [Stored(8, ())]
    alone.turn.wall_us = EPOCH_US + BRIEF_S * 1_000_000 // 2
    alone.dht.receive(a_peer(1), StoreBlocks(10, (b"brief",)))
    (persist,) = alone.persists()
    (put,) = flat(persist.writes)
    assert isinstance(put, PutBlock)
    assert put.expires_us == EPOCH_US + BRIEF_S * 1_000_000, "counted from when it was made"


def test_who_asks_for_a_topic_prolongs_it_and_its_time_is_seldom_written() -> None:
    """Everybody who follows it asks, so that most ask for what is prolonged already."""
    alone = Alone()
    writes: list[PutBlock] = []
    for second in range(0, BRIEF_S + 3 * PROLONGED_S, 10):
        alone.turn.wall_us = EPOCH_US + second * 1_000_000
        alone.dht.receive(a_peer(1), StoreBlocks(2 * second + 2, (b"old",)))
        for persist in alone.persists():
            puts = flat(persist.writes)
            writes.extend(write for write in puts if isinstance(write, PutBlock))
            alone.turn.persisted(persist.token)
        assert writes[-1].expires_us >= alone.turn.wall_us + 0.9 * PROLONGED_S * 1_000_000
    assert writes[0].expires_us == EPOCH_US + BRIEF_S * 1_000_000, "not before it is needed"
    assert len(writes) <= 1 + 4 * PROLONGED_S // 10 // 4, "not every time"
    assert alone.stored == [b"old"], "and no news"


def test_our_own_disk_does_not_count_as_a_replica_of_what_is_out_of_its_time() -> None:
    network = Network(2).start()
    network.run(BRIEF_S)
    assert network.store(network.nodes[0], [b"brief", b"lasting"]) == [0, 2]


def test_a_bad_block_is_refused_and_the_good_ones_beside_it_are_kept() -> None:
    alone = Alone()
    with pytest.raises(RemoteError):
        alone.dht.receive(a_peer(1), StoreBlocks(8, (b"bad", b"good")))
    (persist,) = alone.persists()
    alone.turn.persisted(persist.token)
    assert alone.sent() == [(a_peer(1), Stored(8, (cid_of(b"good"),)))]


def test_too_many_blocks_at_once_are_refused() -> None:
    alone = Alone()
    with pytest.raises(RemoteError):
        alone.dht.receive(a_peer(1), StoreBlocks(8, tuple(some_blocks(257))))
    assert alone.persists() == []


# Joining, leaving, coming back.


def test_a_node_whose_first_contact_is_late_keeps_trying() -> None:
    network = Network(2)
    late, early = network.nodes
    early.start([late.contact])
    network.run(20)
    assert early.dht.closest_known(0) == []
    late.start([])
    network.run(40)
    assert early.dht.closest_known(0) == [late.contact]
    assert late.dht.closest_known(0) == [early.contact]


def test_the_halves_of_a_healed_partition_find_each_other_again(network: Network) -> None:
    half = network.nodes[:20]
    network.cut(half)
    network.run(120)
    assert not any(
        network.by_peer[contact.peer].group != node.group
        for node in network.nodes
        for contact in node.dht.closest_known(node.key, 3)
    ), "the halves have lost each other"
    network.heal()
    network.run(120)
    rng = Random(6)
    for _ in range(30):
        key = rng.getrandbits(256)
        node = rng.choice(network.nodes)
        closest = [other.peer for other in network.closest(key, 4) if other is not node][:3]
        assert network.look_up(node, key)[:3] == closest


def test_blocks_of_both_halves_reach_their_true_homes_after_the_heal(network: Network) -> None:
    network.cut(network.nodes[:20])
    network.run(60)
    blocks = some_blocks(20)
    assert network.store(network.nodes[0], blocks[:10]) == [3] * 10
    assert network.store(network.nodes[39], blocks[10:]) == [3] * 10
    network.heal()
    network.run(400)
    for block in blocks:
        cid = cid_of(block)
        assert all(node.holds(cid) for node in network.closest(cid_key(cid)))


def test_dead_contacts_are_forgotten_in_answers(network: Network) -> None:
    dead = network.nodes[10]
    knew = [node for node in network.nodes if dead.peer in node.connected]
    assert any(dead.contact in node.dht.closest_known(dead.key, 40) for node in knew)
    dead.kill()
    network.run(10)
    network.look_up(network.nodes[0], dead.key)
    for node in knew:
        assert dead.contact not in node.dht.closest_known(dead.key, 40)


def test_a_quiet_network_says_little() -> None:
    network = Network(40).start(settle_s=120)
    network.messages.clear()
    network.run(600)
    a_node_and_minute = network.messages.total() / 40 / 10
    assert a_node_and_minute < 15


def test_the_same_seed_gives_the_same_messages() -> None:
    def play() -> tuple[list[tuple[str, int]], float]:
        network = Network(12, seed=9).start()
        network.store(network.nodes[3], some_blocks(10))
        network.nodes[5].kill()
        network.run(100)
        return sorted(network.messages.items()), network.now

    assert play() == play()


def test_the_footprint_returns_to_its_rest_when_all_is_done(network: Network) -> None:
    node = network.nodes[0]
    network.store(node, some_blocks(50))
    network.run(10)
    footprint = node.dht.footprint()
    for name in ("dht_placements", "dht_queues", "dht_lookups", "dht_pulls"):
        assert footprint[name] == 0
    assert footprint["dht_contacts"] == 39
