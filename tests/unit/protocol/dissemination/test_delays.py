"""Delays: what a member measures, and when it moves."""

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.dissemination.delays import PEERS_MAX, Delays, is_clearly_less
from pulsarcast.protocol.dissemination.tree import DisseminationTree
from pulsarcast.protocol.messages import Join, JoinAccepted, Leave
from tests.support.people import ALICE, peer, topic_of
from tests.support.solo import EMPTY_DIGEST, Parent, Solo, below

TOPIC = topic_of(ALICE)
BOB, CAROL = peer("bob"), peer("carol")


def test_a_way_takes_what_the_peer_says_and_half_of_its_round_trip() -> None:
    delays = Delays()
    delays.told(BOB, 100_000)
    assert delays.through(BOB) is None, "nobody knows how far away it is"
    delays.measured(BOB, 0.05)
    assert delays.through(BOB) == 0.125
    delays.forget(BOB)
    assert delays.through(BOB) is None


def test_a_shorter_round_trip_counts_at_once_and_a_longer_one_in_part() -> None:
    delays = Delays()
    delays.told(BOB, 0)
    for measured_s, counted_s in ((0.4, 0.4), (0.2, 0.2), (0.6, 0.3)):
        delays.measured(BOB, measured_s)
        through_s = delays.through(BOB)
        assert through_s is not None
        assert abs(through_s - counted_s / 2) < 1e-9


def test_few_peers_are_remembered() -> None:
    delays = Delays()
    for number in range(PEERS_MAX + 5):
        delays.told(peer(str(number)), number)
    assert list(delays) == [peer(str(number)) for number in range(5, PEERS_MAX + 5)]


def test_only_a_clear_gain_is_worth_a_move() -> None:
    assert is_clearly_less(0.07, 0.1)
    assert not is_clearly_less(0.08, 0.1)
    assert not is_clearly_less(0.001, 0.009), "a few milliseconds are not worth it"


def member() -> tuple[Solo, DisseminationTree]:
    """A member whose parent is far from the root, and that knows a peer that is near."""
    solo = below(Parent("alice", [TOPIC.block]))
    solo.subscribe(TOPIC.cid)
    tree = solo.topic(TOPIC.cid).overlay
    assert isinstance(tree, DisseminationTree)
    tree.delays.told(ALICE.peer_id, 200_000)
    tree.delays.told(BOB, 50_000)
    tree.delays.measured(BOB, 0.02)
    solo.sent.clear()
    return solo, tree


def accept(solo: Solo, by: PeerId, delay_us: int) -> None:
    """The peer that was asked takes the member in."""
    (join,) = solo.sent_to(by, Join)
    path = (by, ALICE.peer_id)
    accepted = JoinAccepted(TOPIC.cid, join.attempt, path, (), EMPTY_DIGEST, delay_us=delay_us)
    solo.hear(by, accepted)


def shorten(solo: Solo, tree: DisseminationTree, *peers: PeerId) -> None:
    """A heartbeat lets the member look for a shorter way."""
    tree.turn.effects = []
    tree.shorten(peers)
    for effect in tree.turn.effects:
        solo._carry_out(effect)


def test_a_member_moves_to_a_peer_by_which_events_come_sooner() -> None:
    solo, tree = member()
    shorten(solo, tree, BOB)
    accept(solo, BOB, 50_000)
    assert tree.parent == BOB
    assert solo.sent_to(ALICE.peer_id, Leave)
    assert tree.delay_us < 200_000


def test_it_stays_where_whoever_took_it_in_is_no_gain() -> None:
    solo, tree = member()
    shorten(solo, tree, BOB)
    accept(solo, BOB, 190_000)
    assert tree.parent == ALICE.peer_id
    assert solo.sent_to(BOB, Leave)
    assert not solo.sent_to(ALICE.peer_id, Leave)


def test_it_asks_nobody_that_is_hardly_nearer() -> None:
    solo, tree = member()
    tree.delays.told(BOB, 180_000)
    shorten(solo, tree, BOB, CAROL)
    assert not solo.said(Join)
