"""Mutable pointers: the newest wins, wherever it was."""

from random import Random

import pytest

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, cid_of
from pulsarcast.model.pointers import (
    Named,
    Pointer,
    decode_named,
    is_clash,
    is_newer,
    pointer_key,
    sign_pointer,
    split_blocks,
)
from pulsarcast.protocol.dht import pointers
from pulsarcast.protocol.dht.pointers import Pointers
from pulsarcast.protocol.dht.showing import Showing
from pulsarcast.protocol.effects import Persist, Send
from pulsarcast.protocol.messages import Stored, StorePointer
from pulsarcast.protocol.store import DropState, PutState
from tests.support.people import BOB, peer
from tests.support.writes import flat
from tests.unit.protocol.dht.network import AnyBlocks, Network, Node
from tests.unit.protocol.dht.parts import Parts

AUTHOR = Identity.from_seed(b"a" * 32)


TOPIC = cid_of(b"topic")


def a_pointer(
    number: int,
    *,
    name: str = "news",
    cid: Cid | None = None,
    topic: Cid = TOPIC,
    moves: int = 0,
    by: Identity = AUTHOR,
) -> Pointer:
    version = cid or cid_of(b"%d" % number)
    return sign_pointer(by, name, number, version, topic=topic, moves=moves)


@pytest.fixture
def network() -> Network:
    return Network(20).start()


def put(network: Network, node: Node, pointer: Pointer) -> int:
    answers: list[int] = []
    node.do(lambda: node.dht.put_pointer(Named(pointer), answers.append))
    network.run_until(lambda: bool(answers), seconds=60)
    network.run(1)
    assert len(answers) == 1
    return answers[0]


def get(network: Network, node: Node, name: str = "news") -> int | None:
    named = find(network, node, name)
    return None if named is None else named.pointer.number


def find(network: Network, node: Node, name: str = "news", by: Identity = AUTHOR) -> Named | None:
    answers: list[Named | None] = []
    node.do(lambda: node.dht.get_pointer(by.peer_id, name, answers.append))
    network.run_until(lambda: bool(answers), seconds=60)
    network.run(1)
    assert len(answers) == 1
    return answers[0]


def keepers(network: Network) -> list[Node]:
    return network.closest(pointer_key(AUTHOR.peer_id, "news"))


def number_at(node: Node) -> int | None:
    """The number of the pointer on a node's disk."""
    rows = [row for row in node.disk.rows() if row.table == "pointer"]
    named = decode_named(split_blocks(rows[0].value)) if rows else None
    return None if named is None else named.pointer.number


def test_a_pointer_is_kept_by_the_closest_three_and_found_by_anybody(network: Network) -> None:
    assert put(network, network.nodes[0], a_pointer(1)) == 3
    assert [number_at(node) for node in keepers(network)] == [1, 1, 1]
    for node in network.nodes:
        assert get(network, node) == 1
    assert get(network, network.nodes[0], "olds") is None


def test_one_of_the_closest_counts_itself(network: Network) -> None:
    assert put(network, keepers(network)[1], a_pointer(1)) == 3
    assert [number_at(node) for node in keepers(network)] == [1, 1, 1]


def test_alone_the_count_is_one_and_our_own_pointer_is_found() -> None:
    network = Network(1).start()
    assert put(network, network.nodes[0], a_pointer(1)) == 1
    assert get(network, network.nodes[0]) == 1


def test_the_highest_number_wins_and_is_written_back(network: Network) -> None:
    put(network, network.nodes[0], a_pointer(1))
    newest = keepers(network)[1]
    newest.do(
        lambda: newest.dht.receive(network.nodes[0].peer, StorePointer(2, (a_pointer(5).block,)))
    )
    network.run(1)
    asker = next(node for node in network.nodes if node not in keepers(network))
    assert get(network, asker) == 5
    assert [number_at(node) for node in keepers(network)] == [5, 5, 5]


def test_an_older_pointer_does_not_replace_a_newer_one(network: Network) -> None:
    put(network, network.nodes[0], a_pointer(2))
    assert put(network, network.nodes[1], a_pointer(1)) == 0
    assert get(network, network.nodes[2]) == 2


def test_of_two_with_one_number_the_lower_cid_wins() -> None:
    low, high = sorted((cid_of(b"x"), cid_of(b"y")))
    assert is_newer(a_pointer(1, cid=low), a_pointer(1, cid=high))
    assert not is_newer(a_pointer(1, cid=high), a_pointer(1, cid=low))
    assert not is_newer(a_pointer(1, cid=low), a_pointer(1, cid=low))
    assert is_newer(a_pointer(2, cid=high), a_pointer(1, cid=low))


def test_a_pointer_survives_a_restart_and_spreads_to_new_keepers(network: Network) -> None:
    put(network, network.nodes[0], a_pointer(1))
    first, second, third = keepers(network)
    first.kill()
    second.kill()
    third.kill()
    network.run(1)
    third.start([network.nodes[0].contact, network.nodes[1].contact])
    network.run(120)
    assert [number_at(node) for node in keepers(network)] == [1, 1, 1]


def test_a_forged_pointer_is_refused(network: Network) -> None:
    forged = bytearray(a_pointer(1).block)
    forged[-1] ^= 1
    node = network.nodes[0]
    with pytest.raises(RemoteError):
        node.dht.receive(network.nodes[1].peer, StorePointer(2, (bytes(forged),)))


def test_a_put_ends_even_when_our_own_disk_fails() -> None:
    network = Network(1).start()
    network.nodes[0].disk_works = False
    assert put(network, network.nodes[0], a_pointer(1)) == 0


def test_a_full_node_keeps_the_pointers_closest_to_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pointers, "POINTERS_MAX", 4)
    node = Network(1).start().nodes[0]
    kept, turn = node.dht._pointers, node.turn
    me = node.key
    keys = {pointer_key(AUTHOR.peer_id, str(n)): a_pointer(1, name=str(n)) for n in range(12)}
    *farther, fourth, third, second, first = sorted(keys, key=lambda key: key ^ me, reverse=True)
    closest = [first, second, third, fourth]
    for key in (*farther, *closest, *farther):
        kept.keep(Named(keys[key]), lambda _: None)
    assert all(kept._kept[key].pointer is keys[key] for key in closest)
    assert len(kept) == 4
    writes = [w for e in turn.effects if isinstance(e, Persist) for w in flat(e.writes)]
    assert any(isinstance(write, DropState) for write in writes)


def pointers_of(parts: Parts) -> Pointers:
    showing = Showing(parts.context, parts.table, parts.calls, parts.lookups)
    return Pointers(parts.context, parts.table, parts.lookups, showing, AnyBlocks())


def test_a_pointer_is_confirmed_once_on_disk_and_an_older_one_declined() -> None:
    parts = Parts()
    kept = pointers_of(parts)
    old, new = (a_pointer(number, by=BOB) for number in (1, 2))
    kept.receive(peer("carol"), StorePointer(4, (new.block,)))
    assert not [each for each in parts.turn.effects if isinstance(each, Send)]
    parts.sync()
    assert parts.sent() == [(peer("carol"), Stored(4, (cid_of(new.block),)))]
    kept.receive(peer("carol"), StorePointer(6, (old.block,)))
    assert parts.sent() == [(peer("carol"), Stored(6, ()))]


def test_a_full_node_gives_up_the_pointer_farthest_from_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pointers, "POINTERS_MAX", 1)
    parts = Parts()
    signed = [a_pointer(1, name=name, by=BOB) for name in ("news", "sport")]
    me = parts.table.me
    signed.sort(key=lambda each: pointer_key(each.author, each.name) ^ me)
    near, far = map(Named, signed)
    kept = pointers_of(parts)
    heard: list[bool] = []
    kept.keep(far, heard.append)
    kept.keep(near, heard.append)
    assert [type(write) for write in parts.sync()] == [PutState, DropState, PutState]
    kept.keep(far, heard.append)
    assert heard == [True, True, False]
    assert len(kept) == 1


def test_a_pointer_that_the_disk_leaves_out_is_not_confirmed_and_not_kept() -> None:
    parts = Parts()
    kept = pointers_of(parts)
    signed = a_pointer(1, by=BOB)
    carol = peer("carol")
    kept.receive(carol, StorePointer(4, (signed.block,)))
    kept.receive(carol, StorePointer(6, (signed.block,)))
    parts.refuse()
    assert parts.sent() == [(carol, Stored(4, ())), (carol, Stored(6, ()))]
    assert len(kept) == 0
    kept.receive(carol, StorePointer(8, (signed.block,)))
    parts.sync()
    assert parts.sent() == [(carol, Stored(8, (cid_of(signed.block),)))]


# Names that moved, and names that clash.

LOW, HIGH = sorted((cid_of(b"one topic"), cid_of(b"another topic")))


def test_more_moves_win_whatever_else_the_pointers_say(network: Network) -> None:
    stays = a_pointer(9, cid=LOW, topic=LOW, moves=1)
    moved = a_pointer(0, cid=HIGH, topic=HIGH, moves=2)
    put(network, network.nodes[0], stays)
    assert put(network, network.nodes[1], moved) == 3
    assert put(network, network.nodes[2], stays) == 0
    assert find(network, network.nodes[3]) == Named(moved)


def test_a_new_version_of_the_topic_that_lost_a_clash_does_not_take_the_name_back() -> None:
    won, lost = a_pointer(0, cid=LOW, topic=LOW), a_pointer(7, cid=HIGH, topic=HIGH)
    assert is_newer(won, lost)
    assert not is_newer(lost, won)


def test_keepers_keep_both_pointers_of_a_clash_and_show_them_to_all_and_to_the_author(
    network: Network,
) -> None:
    author = network.nodes[0]
    one, other = (a_pointer(0, cid=cid, topic=cid, by=author.identity) for cid in (LOW, HIGH))
    put(network, network.nodes[1], other)
    put(network, network.nodes[2], one)
    network.run(5)
    assert Named(one, other) in author.shown

    for node in (network.nodes[3], network.nodes[4]):
        assert find(network, node, by=author.identity) == Named(one, other)


def test_whatever_the_order_in_which_pointers_come_the_same_one_wins() -> None:
    given = [
        a_pointer(number, cid=cid_of(b"%d" % version), topic=topic, moves=moves)
        for moves in (0, 1)
        for topic in (LOW, HIGH)
        for number in (0, 1)
        for version in (1, 2)
    ]
    chance = Random(5)
    winners = set()
    for _ in range(50):
        chance.shuffle(given)
        named = Named(given[0])
        for each in given[1:]:
            named = named.with_other(each)
        winners.add(named.pointer.block)
        assert named.rival is not None
        assert is_clash(named.pointer, named.rival)
    assert len(winners) == 1


def test_a_clash_ends_with_the_next_move_of_its_author(network: Network) -> None:
    for cid in (LOW, HIGH):
        put(network, network.nodes[0], a_pointer(0, cid=cid, topic=cid))
    settled = a_pointer(0, cid=HIGH, topic=HIGH, moves=1)
    put(network, network.nodes[1], settled)
    assert find(network, network.nodes[2]) == Named(settled)


def test_an_author_that_never_stops_clashing_costs_a_keeper_two_pointers() -> None:
    parts = Parts()
    kept = pointers_of(parts)
    for number in range(50):
        cid = cid_of(b"topic %d" % number)
        kept.keep(Named(a_pointer(0, cid=cid, topic=cid)), lambda _: None)
    assert len(kept) == 1
    rows = {write.row.key: write.row for write in parts.sync() if isinstance(write, PutState)}
    assert [len(split_blocks(row.value)) for row in rows.values()] == [2]


def test_both_pointers_of_a_clash_survive_a_restart() -> None:
    network = Network(1).start()
    node = network.nodes[0]
    one, other = (a_pointer(0, cid=cid, topic=cid) for cid in (LOW, HIGH))
    put(network, node, one)
    put(network, node, other)
    node.kill()
    node.start([])
    assert find(network, node) == Named(one, other)
