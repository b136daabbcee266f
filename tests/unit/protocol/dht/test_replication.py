"""Range repair: replicas that differ become alike."""

import pytest

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.ids import Cid, PeerId, cid_key, cid_of
from pulsarcast.protocol.dht import blocks as blocks_module
from pulsarcast.protocol.dht.replication import ANNOUNCED, CIDS_MAX, WANTED_MAX, Replication
from pulsarcast.protocol.effects import Load
from pulsarcast.protocol.messages import (
    CompareKeys,
    Contact,
    DhtMessage,
    KeysDiffer,
    StoreBlocks,
    WantBlocks,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import Block, Keys, LoadBlock, LoadKeys, PutBlock
from tests.support.people import peer
from tests.unit.protocol.dht.network import BRIEF_S, LAST_KEY, PROLONGED_S, Network, some_blocks
from tests.unit.protocol.dht.parts import Parts


def replicas_are_whole(network: Network, blocks: list[bytes]) -> bool:
    return all(
        node.holds(cid_of(block))
        for block in blocks
        for node in network.closest(cid_key(cid_of(block)))
    )


def store_all(network: Network, blocks: list[bytes]) -> None:
    """Put blocks onto the right disks, as if they had been there for long."""
    for block in blocks:
        for node in network.closest(cid_key(cid_of(block))):
            node.put(block)


def restart(network: Network, index: int, *, keep_disk: bool) -> None:
    node = network.nodes[index]
    node.kill()
    network.run(5)
    node.start([network.nodes[(index + 1) % len(network.nodes)].contact], keep_disk=keep_disk)


def test_a_replica_that_lost_its_disk_gets_all_of_it_back() -> None:
    network = Network(20).start()
    blocks = some_blocks(100)
    store_all(network, blocks)
    restart(network, 7, keep_disk=False)
    assert not replicas_are_whole(network, blocks)
    network.run_until(lambda: replicas_are_whole(network, blocks), seconds=120)
    assert network.nodes[7].counts["dht_repair"] > 0
    assert network.nodes[7].stored == [], "nobody asked it to spread them"
    for block in blocks:
        assert all(node.block(cid_of(block)) == block for node in network.holders(cid_of(block)))


def test_so_does_one_with_more_blocks_than_fit_a_list_and_by_narrowing() -> None:
    network = Network(4).start()
    blocks = some_blocks(3 * CIDS_MAX)
    store_all(network, blocks)
    restart(network, 2, keep_disk=False)
    network.run_until(lambda: replicas_are_whole(network, blocks), seconds=120)


def test_large_blocks_come_in_several_answers() -> None:
    network = Network(2).start(settle_s=120)
    sender, reader = network.nodes
    blocks = some_blocks(30, size=100_000)
    for block in blocks:
        sender.put(block)
    cids = tuple(cid_of(block) for block in blocks)
    network.messages.clear()
    reader.do(lambda: reader.dht.receive(sender.peer, KeysDiffer(0, 0, LAST_KEY, cids, ())))
    network.run_until(lambda: all(reader.holds(cid) for cid in cids), seconds=5)
    assert network.messages["StoreBlocks"] == 10, "three of them pass 256 KiB"


def test_one_block_in_a_thousand_is_found_without_listing_the_others() -> None:
    network = Network(2).start(settle_s=120)
    one, other = network.nodes
    for block in some_blocks(1000):
        one.put(block)
        other.put(block)
    one.put(b"the one")
    network.messages.clear()
    network.run_until(lambda: other.holds(cid_of(b"the one")), seconds=200)
    assert network.messages["CompareKeys"] <= 8, "a range and its part, from either side"
    assert network.messages["WantBlocks"] == 1


def test_a_node_that_starts_with_an_empty_disk_asks_by_itself() -> None:
    network = Network(4).start()
    blocks = some_blocks(40)
    store_all(network, blocks)
    for node in network.nodes:
        replication = node.dht._replication
        node.turn.cancel(replication._timer)
        replication._timer = None
    restart(network, 2, keep_disk=False)
    network.run_until(lambda: replicas_are_whole(network, blocks), seconds=60)


def test_two_lost_disks_of_three_are_survived() -> None:
    network = Network(20).start()
    blocks = some_blocks(30)
    store_all(network, blocks)
    restart(network, 3, keep_disk=False)
    restart(network, 4, keep_disk=False)
    network.run_until(lambda: replicas_are_whole(network, blocks), seconds=180)


def test_when_a_replica_is_gone_for_good_the_next_closest_takes_over() -> None:
    network = Network(20).start()
    blocks = some_blocks(50)
    store_all(network, blocks)
    network.nodes[7].kill()
    network.run_until(lambda: replicas_are_whole(network, blocks), seconds=180)


def test_when_a_replica_is_lost_those_that_are_left_compare_soon() -> None:
    network = Network(3).start(settle_s=120)
    _, left, lost = network.nodes
    store_all(network, some_blocks(3))
    left.turn.cancel(left.dht._replication._timer)
    lost.turn.cancel(lost.dht._replication._timer)
    interval_s = network.parameters.repair_interval_s

    def compared_within(seconds: float) -> None:
        network.messages.clear()
        network.run_until(lambda: network.messages["CompareKeys"] > 0, seconds=seconds)

    # The next comparison is now about a whole interval away.
    compared_within(2 * interval_s)
    network.run(1.0)
    lost.kill()
    compared_within(interval_s / 4)


def test_a_newcomer_gets_what_it_is_answerable_for() -> None:
    network = Network(10).start()
    blocks = some_blocks(100)
    store_all(network, blocks)
    network.add().start([network.nodes[0].contact])
    network.run_until(lambda: replicas_are_whole(network, blocks), seconds=120)


def test_blocks_find_new_homes_when_all_their_closest_peers_are_new() -> None:
    network = Network(6).start()
    blocks = some_blocks(100)
    store_all(network, blocks)
    for _ in range(24):
        network.add().start([network.nodes[0].contact])
    assert not replicas_are_whole(network, blocks)
    network.run_until(lambda: replicas_are_whole(network, blocks), seconds=600)


def test_a_single_block_that_one_replica_lacks_is_repaired() -> None:
    network = Network(20).start(settle_s=120)
    block = some_blocks(1)[0]
    holders = network.closest(cid_key(cid_of(block)))
    for node in holders[:2]:
        node.put(block)
    network.run_until(lambda: holders[2].holds(cid_of(block)), seconds=600)
    network.run(300)
    assert len(network.holders(cid_of(block))) == 3, "and nobody else takes it"


def test_replicas_that_are_alike_send_no_lists() -> None:
    network = Network(20).start(settle_s=120)
    store_all(network, some_blocks(200))
    network.run(300)
    network.messages.clear()
    network.run(600)
    assert network.messages["CompareKeys"] > 0
    assert network.messages["CompareKeys"] == network.messages["KeysDiffer"]
    assert network.messages["WantBlocks"] == 0
    a_node_and_minute = network.messages["CompareKeys"] / 20 / 10
    assert a_node_and_minute < 10


def test_while_the_network_holds_nothing_nothing_is_compared() -> None:
    network = Network(20).start(settle_s=120)
    network.messages.clear()
    network.run(600)
    assert network.messages["CompareKeys"] == 0


def test_a_list_of_cids_moves_only_those_that_belong_to_the_reader() -> None:
    network = Network(20).start()
    sender, reader = network.nodes[0], network.nodes[1]
    blocks = some_blocks(60)
    for block in blocks:
        sender.put(block)
    cids = tuple(cid_of(block) for block in blocks)
    reader.do(lambda: reader.dht.receive(sender.peer, KeysDiffer(0, 0, LAST_KEY, cids, ())))
    network.run(4)
    for cid in cids:
        assert reader.holds(cid) == (reader in network.closest(cid_key(cid)))


@pytest.mark.parametrize(
    "message",
    [
        CompareKeys(2, 5, 4, 0, 0),
        CompareKeys(2, 0, LAST_KEY + 1, 0, 0),
        WantBlocks(3, (cid_of(b""),) * (WANTED_MAX + 1)),
        KeysDiffer(0, 0, 1, (cid_of(b""),) * (CIDS_MAX + 1), ()),
    ],
)
def test_what_is_out_of_bounds_is_refused(
    message: CompareKeys | WantBlocks | KeysDiffer,
) -> None:
    network = Network(2).start()
    one, other = network.nodes
    with pytest.raises(RemoteError):
        one.dht.receive(other.peer, message)


def test_a_peer_that_answers_about_other_keys_is_refused_and_the_next_round_goes_on() -> None:
    network = Network(2).start(settle_s=0.5)
    one, other = network.nodes
    one.put(b"block")
    lies = 0

    def lie(sender: PeerId, message: DhtMessage) -> None:
        nonlocal lies
        if isinstance(message, CompareKeys):
            lies += 1
            other.turn.send(sender, KeysDiffer(message.request, 1, 2, (), ()))
        else:
            other.dht.receive(sender, message)

    other.receive = lie
    network.run(200)
    assert lies > 2
    assert len(one.errors) == lies


def test_a_peer_that_sends_other_blocks_than_wanted_is_refused() -> None:
    network = Network(2).start()
    one, other = network.nodes
    wanted = cid_of(b"wanted")
    one.do(lambda: one.dht.receive(other.peer, KeysDiffer(0, 0, LAST_KEY, (wanted,), ())))
    other.put(b"wanted")
    other.disk.apply((PutBlock(wanted, b"something else", cid_key(wanted), 0),))
    network.run(5)
    assert {error.code for error in one.errors} == {Rejection.NOT_ASKED_FOR}
    assert not one.holds(wanted)


# Expiry.


def brief_blocks(count: int) -> list[bytes]:
    return [b"brief %d" % number for number in range(count)]


def test_what_is_out_of_its_time_goes_and_repair_does_not_keep_it_alive() -> None:
    """One replica's clock is slow, so it still has what the others have dropped."""
    network = Network(10).start()
    for node in network.nodes[::3]:
        node.clock_s = -200.0
    blocks, lasting = brief_blocks(30), some_blocks(30)
    store_all(network, [*blocks, *lasting])
    network.run(BRIEF_S - network.now + 120)
    left = [node for node in network.nodes if any(node.holds(cid_of(b)) for b in blocks)]
    assert left, "the slow ones"
    assert all(node.clock_s < 0 for node in left)
    network.run(200)
    assert not [node for node in network.nodes if any(node.holds(cid_of(b)) for b in blocks)]
    assert replicas_are_whole(network, lasting)


def test_nobody_believes_to_hold_what_it_has_dropped() -> None:
    network = Network(4).start()
    cid = cid_of(b"brief")
    assert network.store(network.nodes[0], [b"brief"]) == [3]
    holders = network.holders(cid)
    assert all(cid in node.dht._blocks for node in holders)
    network.run(BRIEF_S + 120)
    assert not [node for node in holders if cid in node.dht._blocks or node.holds(cid)]


def test_what_is_out_of_its_time_is_not_fetched_again_and_again() -> None:
    network = Network(2).start(settle_s=120)
    slow, right = network.nodes
    slow.clock_s = -10_000.0
    blocks = brief_blocks(20)
    network.run(BRIEF_S - network.now)
    for block in blocks:
        slow.put(block)
    network.messages.clear()
    network.run(1000)
    assert not [block for block in blocks if right.holds(cid_of(block))]
    assert network.messages["CompareKeys"] >= 10, "they did compare, and differ"
    assert network.messages["WantBlocks"] == 1


def test_what_somebody_asks_for_outlives_its_time_and_goes_when_nobody_does() -> None:
    """Replicas have it from each other too, which must not keep it alive."""
    network = Network(10).start()
    blocks = [b"old %d" % number for number in range(20)]
    store_all(network, blocks)
    for _ in range(8):
        network.run(PROLONGED_S / 2)
        assert network.store(network.nodes[0], blocks) == [3] * 20
    assert network.now > BRIEF_S + 2 * PROLONGED_S
    assert replicas_are_whole(network, blocks)
    network.run(PROLONGED_S + 120)
    assert not [node for node in network.nodes if any(node.holds(cid_of(b)) for b in blocks)]


def test_what_we_remember_of_blocks_out_of_their_time_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blocks_module, "OVER_MAX", 8)
    network = Network(2).start(settle_s=120)
    slow, right = network.nodes
    slow.clock_s = -10_000.0
    network.run(BRIEF_S - network.now)
    for block in brief_blocks(50):
        slow.put(block)
    network.run(200)
    assert 0 < len(right.dht._blocks) <= 8


@pytest.mark.parametrize("days", [-2, 40])
def test_a_clock_that_was_wrong_for_a_while_keeps_nothing_from_being_repaired(days: int) -> None:
    """What was out of its time by that clock was not fetched any more once it was set right."""
    network = Network(3).start(settle_s=120)
    blocks = some_blocks(20)
    store_all(network, blocks)
    node = network.nodes[0]
    node.clock_s = days * 86_400.0
    restart(network, 0, keep_disk=days > 0)
    network.run(120)
    if days > 0:
        # It knew that they were on its disk when their time was up.
        network.store(network.nodes[1], blocks)
    assert not any(node.holds(cid_of(block)) for block in blocks)
    node.clock_s = 0.0
    network.run_until(lambda: replicas_are_whole(network, blocks), seconds=300)


def test_a_peer_that_shows_what_it_never_gives_does_not_keep_others_from_giving() -> None:
    network = Network(3).start(settle_s=120)
    honest, reader, hostile = network.nodes
    hostile.receive = lambda sender, message: (
        None if isinstance(message, WantBlocks) else hostile.dht.receive(sender, message)
    )
    made_up = iter(range(1_000_000))

    def show() -> None:
        cids = tuple(cid_of(b"made up %d" % next(made_up)) for _ in range(CIDS_MAX))
        network.carry(hostile, reader.peer, KeysDiffer(0, 0, LAST_KEY, cids, ()))
        hostile.later(0.2, show)

    hostile.do(show)
    network.run(10)
    blocks = some_blocks(20)
    for block in blocks:
        honest.put(block)
    network.run_until(lambda: all(reader.holds(cid_of(b)) for b in blocks), seconds=300)


def test_a_partner_that_differs_slowly_and_for_ever_does_not_keep_us_from_others() -> None:
    network = Network(3).start(settle_s=120)
    honest, reader, hostile = network.nodes
    for block in some_blocks(300):
        reader.put(block)
        honest.put(block)
    held_up: list[float] = []

    def answer(sender: PeerId, message: DhtMessage) -> None:
        if isinstance(message, CompareKeys):
            held_up.append(network.now)
            middle = (message.first + message.last) // 2
            parts = ((message.first, middle, 1, 1), (middle, message.last, 1, 1))
            differ = KeysDiffer(message.request, message.first, message.last, (), parts)
            hostile.later(4.5, lambda: network.carry(hostile, sender, differ))
        else:
            hostile.dht.receive(sender, message)

    hostile.receive = answer
    network.run_until(lambda: len(held_up) > 1 and held_up[-1] > held_up[0] + 30, seconds=600)
    honest.put(b"the one")
    honest.turn.cancel(honest.dht._replication._timer)
    network.run_until(lambda: reader.holds(cid_of(b"the one")), seconds=900)


def replication_of(parts: Parts) -> Replication:
    return Replication(parts.context, parts.table, parts.calls, parts.blocks)


def load_all(parts: Parts, held: dict[Cid, bytes]) -> None:
    """Answer what the disk is asked, until it is asked nothing more."""
    while loads := [each for each in parts.turn.effects if isinstance(each, Load)]:
        for each in loads:
            parts.turn.effects.remove(each)
            match each.query:
                case LoadBlock(cid):
                    parts.turn.loaded(each.token, Block(held.get(cid)))
                case LoadKeys():
                    parts.turn.loaded(each.token, Keys(()))
                case _:
                    raise AssertionError(each)


def test_blocks_are_sent_until_the_message_is_full() -> None:
    parts = Parts(parameters=Parameters(range_bytes_max=100))
    held = {cid_of(block): block for block in some_blocks(4, size=60)}
    replication_of(parts).answer_wanted(peer("bob"), WantBlocks(5, tuple(held)))
    load_all(parts, held)
    assert parts.sent() == [(peer("bob"), StoreBlocks(5, tuple(held.values())[:2]))]


def test_a_peer_may_not_want_more_blocks_than_one_message_holds() -> None:
    parts = Parts()
    cids = tuple(cid_of(block) for block in some_blocks(WANTED_MAX + 1))
    with pytest.raises(RemoteError):
        replication_of(parts).answer_wanted(peer("bob"), WantBlocks(5, cids))
    assert parts.effects() == []


def test_a_peer_that_fails_once_is_not_asked_for_the_rest() -> None:
    parts = Parts()
    replication = replication_of(parts)
    cids = tuple(cid_of(block) for block in some_blocks(WANTED_MAX + 1))
    replication.look_through(Contact(peer("bob")), KeysDiffer(ANNOUNCED, 0, LAST_KEY, cids, ()))
    load_all(parts, {})
    ((who, question),) = parts.questions.asked()
    assert who == peer("bob")
    assert isinstance(question, WantBlocks)
    assert question.cids == cids[:WANTED_MAX]
    parts.questions.answer(None)
    assert parts.questions.asked() == []
    assert replication.footprint()["dht_pulls"] == 0


def test_what_an_answer_had_no_room_for_is_asked_for_again() -> None:
    parts = Parts()
    replication = replication_of(parts)
    first, second = some_blocks(2)
    cids = (cid_of(first), cid_of(second))
    replication.look_through(Contact(peer("bob")), KeysDiffer(ANNOUNCED, 0, LAST_KEY, cids, ()))
    load_all(parts, {})
    parts.questions.answer(StoreBlocks(1, (first,)))
    assert parts.questions.asked() == [(peer("bob"), WantBlocks(0, (cid_of(second),)))]
    assert parts.context.counts["dht_repair"] == 1
