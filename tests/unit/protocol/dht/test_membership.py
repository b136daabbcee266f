"""Joining, and keeping the routing table true."""

from collections.abc import Sequence
from random import Random

import pytest

from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import PeerId, peer_id_of, peer_key
from pulsarcast.model.keys import bucket_of
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dht.membership import JOIN_RETRY_S, REJOIN_S_MIN, Membership
from pulsarcast.protocol.effects import Send
from pulsarcast.protocol.messages import Contact, FindPeers, Peers
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.turn import Turn
from tests.unit.protocol.dht.network import AnyBlocks, Network
from tests.unit.protocol.dht.parts import Parts

PARAMETERS = Parameters()
PEERS = [peer_id_of(Random(number).randbytes(32)) for number in range(8)]


class Newcomer:
    """A node that has just started, and whose peers are played by the test."""

    def __init__(self, contacts: Sequence[Contact] = ()) -> None:
        self.turn = Turn(Identity.from_seed(bytes(32)), Random(1))
        self.key = peer_key(self.turn.me)
        self.dht = Kademlia(Context(self.turn, PARAMETERS), AnyBlocks())
        self.dht.start(contacts)

    def answer_all(self) -> list[tuple[PeerId, FindPeers]]:
        """Play peers that know nobody; returns who was asked what."""
        answered: list[tuple[PeerId, FindPeers]] = []
        while questions := self.asked():
            answered += questions
            for peer, question in questions:
                self.dht.receive(peer, Peers(question.request, ()))
        return answered

    def tend(self, now: float) -> None:
        self.turn.now = now
        self.dht._membership.tend()

    def asked(self) -> list[tuple[PeerId, FindPeers]]:
        effects, self.turn.effects = self.turn.effects, []
        sent = [(e.peer, e.message) for e in effects if isinstance(e, Send)]
        return [(peer, message) for peer, message in sent if isinstance(message, FindPeers)]


class Member(Newcomer):
    """One that has joined."""

    def __init__(self) -> None:
        super().__init__()
        for peer in PEERS[:4]:
            self.dht.saw(Contact(peer))
        self.tend(1.0)
        self.answer_all()


def test_a_node_is_joining_until_somebody_has_shown_it_its_place() -> None:
    first = Newcomer()
    assert not first.dht.is_joining
    assert not Newcomer([Contact(first.turn.me)]).dht.is_joining
    node = Newcomer([Contact(PEERS[0])])
    assert node.dht.is_joining
    node.dht.saw(Contact(PEERS[1]))  # Who dialled us may know nobody either.
    assert node.dht.is_joining
    node.answer_all()
    assert not node.dht.is_joining


def test_no_bucket_that_should_have_contacts_is_empty_after_a_join() -> None:
    network = Network(120).start()
    assert [node.dht._table.empty() for node in network.nodes] == [[]] * 120


def test_a_bucket_that_was_quiet_for_long_is_refreshed() -> None:
    member = Member()
    member.tend(PARAMETERS.refresh_interval_s - 1)
    assert member.asked() == []
    oldest = bucket_of(member.key, peer_key(PEERS[0]))
    for peer in PEERS[1:4]:
        if bucket_of(member.key, peer_key(peer)) != oldest:
            member.dht.saw(Contact(peer))
    member.turn.now = PARAMETERS.refresh_interval_s + 2
    member.dht._membership._refresh_quietest()
    questions = member.asked()
    assert len(questions) == PARAMETERS.lookup_parallel
    assert {bucket_of(member.key, question.key) for _, question in questions} == {oldest}
    member.dht._membership._refresh_quietest()
    assert member.asked() == []


def test_our_neighbourhood_is_looked_up_again_now_and_then() -> None:
    member = Member()
    for peer in PEERS[:4]:
        member.turn.now = PARAMETERS.refresh_interval_s
        member.dht.saw(Contact(peer))
    member.tend(PARAMETERS.refresh_interval_s + 1)
    assert {question.key for _, question in member.asked()} == {member.key}
    member.tend(PARAMETERS.refresh_interval_s + 2)
    assert member.asked() == []


def test_of_all_that_we_know_only_our_neighbours_are_asked_then() -> None:
    """Twice as many as keep a block, and two."""
    member = Member()
    known = [*PEERS[:4], *(peer_id_of(Random(number).randbytes(32)) for number in range(8, 24))]
    member.turn.now = PARAMETERS.refresh_interval_s
    for peer in known:
        member.dht.saw(Contact(peer))
    member.tend(PARAMETERS.refresh_interval_s + 1)
    known.sort(key=lambda peer: peer_key(peer) ^ member.key)
    assert [peer for peer, _ in member.answer_all()] == known[: 2 * PARAMETERS.replicas + 2]


def test_lost_contacts_are_tried_again_by_asking_who_is_near_us() -> None:
    member = Member()
    member.dht.lost(PEERS[0])
    member.tend(PARAMETERS.contact_retry_s)
    assert member.asked() == []
    member.tend(PARAMETERS.contact_retry_s + 1)
    ((peer, question),) = member.asked()
    assert (peer, question.key) == (PEERS[0], member.key)


def test_a_contact_that_comes_back_makes_us_look_for_others_that_did() -> None:
    member = Member()
    member.dht.lost(PEERS[0])
    member.turn.now = 20.0
    member.dht.saw(Contact(PEERS[0]))
    ((_, first), *_) = member.answer_all()
    assert first.key == member.key
    member.dht.lost(PEERS[1])
    member.dht.saw(Contact(PEERS[1]))
    assert member.asked() == [], "but not again at once"


@pytest.mark.parametrize("own_key", [False, True])
def test_hearsay_about_a_lost_contact_counts_only_in_lookups_of_our_own_key(
    own_key: bool,
) -> None:
    member = Member()
    lost = PEERS[7]
    member.dht.lost(lost)
    if own_key:
        member.tend(PARAMETERS.refresh_interval_s + 1)
    else:
        member.dht.lookup(peer_key(lost), lambda contacts: None)
    peer, question = next((p, q) for p, q in member.asked() if (q.key == member.key) == own_key)
    if own_key:
        # The others were heard from long ago, and it failed only now.
        member.dht.lost(lost)
    member.dht.receive(peer, Peers(question.request, (Contact(lost),)))
    assert (lost in [peer for peer, _ in member.asked()]) == own_key


def test_nothing_makes_us_join_before_the_start() -> None:
    turn = Turn(Identity.from_seed(bytes(32)), Random(1))
    dht = Kademlia(Context(turn, PARAMETERS), AnyBlocks())
    dht.saw(Contact(PEERS[0]))
    dht.lost(PEERS[0])
    turn.now = 10.0
    dht.saw(Contact(PEERS[0]))
    assert turn.effects == []


def test_a_node_that_reaches_nobody_joins_again_after_ever_longer_pauses() -> None:
    parts = Parts()
    membership = Membership(parts.context, parts.table, parts.calls, parts.lookups)
    membership.start([Contact(PEERS[0])])
    delays_s = []
    for _ in range(3):
        assert parts.questions.answer(None) == PEERS[0]
        timer = parts.timer()
        delays_s.append(timer.delay_s)
        parts.turn.fired(timer.timer)
    for delay_s, base_s in zip(delays_s, (1.0, 2.0, 4.0), strict=True):
        assert 0.75 * base_s * JOIN_RETRY_S <= delay_s <= 1.25 * base_s * JOIN_RETRY_S
    assert membership.is_joining


def test_contacts_that_return_together_cause_one_more_join() -> None:
    parts = Parts(PEERS[0])
    membership = Membership(parts.context, parts.table, parts.calls, parts.lookups)
    membership.start([])
    while parts.questions.waiting:
        parts.questions.answer(Peers(0, ()))
    membership.returned()
    assert parts.questions.asked() == [], "the last join was a moment ago"
    parts.turn.now = REJOIN_S_MIN
    membership.returned()
    membership.returned()
    assert [who for who, _ in parts.questions.asked()] == [PEERS[0]]


def test_a_node_that_knows_its_place_at_the_start_does_not_join() -> None:
    turn = Turn(Identity.from_seed(bytes(32)), Random(1))
    dht = Kademlia(Context(turn, PARAMETERS), AnyBlocks())
    dht.start([Contact(PEERS[7])], known=[Contact(peer) for peer in PEERS[:4]])
    assert not any(isinstance(effect, Send) for effect in turn.effects)
    assert not dht.is_joining
    assert dht.known_count == 4
    assert dht.bootstrap == (Contact(PEERS[7]),), "after a restart it has to join"


def test_nodes_that_know_their_place_renew_it_at_different_times() -> None:
    renewed: list[int] = []
    for seed in range(20):
        turn = Turn(Identity.from_seed(bytes(32)), Random(seed))
        dht = Kademlia(Context(turn, PARAMETERS), AnyBlocks())
        dht.start([], known=[Contact(peer) for peer in PEERS])
        turn.now = PARAMETERS.refresh_interval_s / 2
        turn.effects = []
        dht._membership.tend()
        renewed.append(any(isinstance(effect, Send) for effect in turn.effects))
    assert 4 < sum(renewed) < 16
