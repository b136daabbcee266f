"""The search for a member: whom it asks, which referrals it follows, and how it ends."""

from collections.abc import Callable, Collection
from random import Random
from typing import cast

import pytest

from pulsarcast.model.ids import PeerId, cid_of, peer_key
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination.member_search import (
    RESERVE_MAX,
    DeadEnd,
    MemberSearch,
    NobodyFound,
)
from pulsarcast.protocol.effects import Send, SetTimer
from pulsarcast.protocol.inputs import PeerUp
from pulsarcast.protocol.messages import Contact, Join, JoinCode, JoinReferred, JoinRefused, Role
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.turn import Turn
from tests.support.people import identity, peer
from tests.support.reach import reachability_of

TOPIC = cid_of(b"a topic")
ROOT = peer("root")
*CLOSER, ME, FAR_1, FAR_2, FAR_3, FAR_4 = sorted(
    (identity(f"peer {number}") for number in range(9)),
    key=lambda each: peer_key(each.peer_id) ^ peer_key(ROOT),
)
PEERS = [each.peer_id for each in (*CLOSER, FAR_1, FAR_2, FAR_3, FAR_4)]
"""The closest to the root's key first; the searcher is closer than the last four."""


class Stage:
    """A search, the few peers that its node knows, and a DHT that answers when it is told to."""

    fresh = False

    def __init__(self, role: Role, *known: PeerId, reach: Reach = Reach.PUBLIC) -> None:
        self.turn = Turn(ME, Random(1))
        self.known = known
        self.lookups: list[Callable[[list[Contact]], None]] = []
        self.outcomes: list[DeadEnd | NobodyFound] = []
        self.parameters = Parameters()
        context = Context(self.turn, self.parameters)
        self.reachability = reachability_of(context, reach)
        self.search = MemberSearch(TOPIC, ROOT, role, context, cast(Kademlia, self), self)

    def closest_known(self, key: int, count: int, exclude: Collection[PeerId]) -> list[Contact]:
        known = [each for each in self.known if each not in exclude]
        return [Contact(each) for each in sorted(known, key=lambda p: peer_key(p) ^ key)[:count]]

    def lookup(self, key: int, then: Callable[[list[Contact]], None]) -> None:
        self.lookups.append(then)

    def search_failed(self, outcome: DeadEnd | NobodyFound) -> None:
        self.outcomes.append(outcome)

    @property
    def joins(self) -> list[tuple[PeerId, Join]]:
        sent = [each for each in self.turn.effects if isinstance(each, Send)]
        return [(each.peer, each.message) for each in sent if isinstance(each.message, Join)]

    @property
    def asked(self) -> list[PeerId]:
        return [receiver for receiver, _ in self.joins]

    def refer(self, to: PeerId, *, handed_down: bool = False) -> None:
        """The peer that was asked last names another."""
        asked, join = self.joins[-1]
        referred = JoinReferred(TOPIC, join.attempt, Contact(to), handed_down)
        self.search.referred(asked, referred)


@pytest.mark.parametrize("role", Role)
def test_a_referral_is_followed_only_to_a_peer_strictly_closer_to_the_root(role: Role) -> None:
    stage = Stage(role, PEERS[1])
    stage.search.begin()
    stage.refer(PEERS[2])
    assert stage.asked == [PEERS[1]]
    assert stage.outcomes == [DeadEnd(PEERS[1])]
    stage.refer(PEERS[0])
    assert stage.asked == [PEERS[1], PEERS[0]]


def test_a_member_is_handed_down_and_says_so() -> None:
    stage = Stage(Role.MEMBER, PEERS[1])
    stage.search.begin()
    stage.refer(PEERS[6], handed_down=True)
    assert [(who, join.handed_down) for who, join in stage.joins] == [
        (PEERS[1], False),
        (PEERS[6], True),
    ]


def test_a_member_begins_only_at_a_closer_peer_and_a_visitor_at_any() -> None:
    member, visitor = (Stage(role, PEERS[5]) for role in (Role.MEMBER, Role.VISITOR))
    for stage in (member, visitor):
        stage.search.begin()
    assert visitor.asked == [PEERS[5]]
    assert not member.asked
    member.lookups.pop()([Contact(PEERS[6])])
    assert not member.asked
    assert member.outcomes == [NobodyFound(is_alone=False)]


def test_a_visitor_takes_the_first_of_a_lookup_in_turn() -> None:
    stage = Stage(Role.VISITOR)
    for rank in range(4):
        stage.search.begin(look_up=True, rank=rank)
        stage.lookups.pop()([Contact(each) for each in PEERS])
    assert stage.asked == [*PEERS[:3], PEERS[0]]


def test_a_lookup_of_a_search_that_has_ended_asks_nobody() -> None:
    stage = Stage(Role.VISITOR)
    stage.search.begin()
    (found,) = stage.lookups
    stage.search.end()
    found([Contact(PEERS[0])])
    assert not stage.asked
    stage.search.begin()
    found([Contact(PEERS[0])])
    assert not stage.asked, "nor does it speak for the next one"


def test_a_full_parent_is_asked_again_for_another_child_than_the_one_that_failed() -> None:
    stage = Stage(Role.MEMBER, PEERS[1])
    stage.search.avoided[PEERS[6]] = 0.0
    stage.search.begin()
    stage.refer(PEERS[6], handed_down=True)
    stage.refer(PEERS[7], handed_down=True)
    assert stage.asked == [PEERS[1], PEERS[1], PEERS[7]]


def test_a_peer_that_names_one_below_us_leads_below_us_too() -> None:
    stage = Stage(Role.MEMBER, PEERS[1])
    stage.search.below[PEERS[0]] = None
    stage.search.begin()
    stage.refer(PEERS[0])
    asked, join = stage.joins[-1]
    stage.search.refused(asked, JoinRefused(TOPIC, join.attempt, JoinCode.BELOW_YOU))
    assert stage.outcomes == 2 * [DeadEnd(PEERS[1], below=True)]


def test_each_peer_has_its_own_time_to_take_a_member_in() -> None:
    stage = Stage(Role.MEMBER, PEERS[2])
    stage.search.begin()
    stage.refer(PEERS[1])
    timers = [each for each in stage.turn.effects if isinstance(each, SetTimer)]
    assert [each.delay_s for each in timers] == 2 * [stage.parameters.join_timeout_s]
    stage.turn.fired(timers[0].timer)
    assert not stage.outcomes
    stage.turn.fired(timers[-1].timer)
    assert stage.outcomes == [DeadEnd(PEERS[1])]


def test_only_the_peer_that_was_asked_can_answer() -> None:
    stage = Stage(Role.VISITOR, PEERS[1])
    stage.search.begin()
    ((asked, join),) = stage.joins
    assert stage.search.is_answer(asked, join.attempt)
    assert not stage.search.is_answer(PEERS[5], join.attempt)
    assert not stage.search.is_answer(asked, join.attempt + 1)
    stage.search.lost(PEERS[5])
    stage.search.referred(PEERS[5], JoinReferred(TOPIC, join.attempt, Contact(PEERS[0]), False))
    assert stage.asked == [PEERS[1]]
    assert not stage.outcomes
    stage.search.lost(asked)
    assert stage.outcomes == [DeadEnd(asked)]
    stage.search.end()
    assert not stage.search.is_answer(asked, join.attempt)


# Connected peers that no lookup finds.

UNLISTED = sorted(
    (peer(f"unlisted {number}") for number in range(RESERVE_MAX + 2)),
    key=lambda each: peer_key(each) ^ peer_key(ROOT),
)


def with_reserve(role: Role = Role.MEMBER, reach: Reach = Reach.PRIVATE, seed: int = 1) -> Stage:
    """A search that has looked up in vain, of a node with connections to peers in reserve.

    The author has failed already.
    """
    stage = Stage(role, reach=reach)
    stage.search.avoided[ROOT] = 0.0
    stage.turn.rng.seed(seed)
    for each in UNLISTED:
        stage.reachability.up(PeerUp(Contact(each), reach=Reach.PRIVATE))
    stage.search.begin()
    stage.lookups.pop()([])
    return stage


def refuse(stage: Stage, code: JoinCode = JoinCode.LEAVING) -> None:
    """The peer that was asked last refuses."""
    asked, join = stage.joins[-1]
    stage.search.refused(asked, JoinRefused(TOPIC, join.attempt, code))


def test_a_private_node_asks_those_in_reserve_one_after_the_other_the_closest_first() -> None:
    stage = with_reserve()
    for count in range(1, RESERVE_MAX + 1):
        assert stage.asked == UNLISTED[:count]
        assert not stage.outcomes
        refuse(stage)
    assert stage.asked == UNLISTED[:RESERVE_MAX]
    assert stage.outcomes == [NobodyFound(is_alone=False)]


def test_a_private_node_asks_the_author_first_in_case_a_relay_leads_there() -> None:
    stage = Stage(Role.MEMBER, reach=Reach.PRIVATE)
    stage.reachability.up(PeerUp(Contact(UNLISTED[0]), reach=Reach.PRIVATE))
    stage.search.begin()
    stage.lookups.pop()([])
    assert stage.asked == [ROOT]
    refuse(stage)
    assert stage.asked == [ROOT, UNLISTED[0]]


def test_a_public_node_asks_one_in_reserve_at_random() -> None:
    stages = [with_reserve(reach=Reach.PUBLIC, seed=seed) for seed in range(8)]
    assert all(len(stage.asked) == 1 for stage in stages)
    assert len({stage.asked[0] for stage in stages}) > 1
    refuse(stages[0])
    assert len(stages[0].asked) == 1
    assert stages[0].outcomes == [NobodyFound(is_alone=False)]


def test_a_silent_peer_in_reserve_gives_way_to_the_next() -> None:
    stage = with_reserve()
    timers = [each for each in stage.turn.effects if isinstance(each, SetTimer)]
    stage.turn.fired(timers[-1].timer)
    assert stage.asked == UNLISTED[:2]
    stage.search.lost(UNLISTED[1])
    assert stage.asked == UNLISTED[:3]


def test_a_visitor_asks_none_in_reserve() -> None:
    stage = with_reserve(Role.VISITOR)
    assert not stage.asked
    assert stage.outcomes == [NobodyFound(is_alone=True)]


def test_a_peer_in_reserve_that_failed_or_leads_below_is_passed_over() -> None:
    stage = Stage(Role.MEMBER, reach=Reach.PRIVATE)
    for each in UNLISTED[:3]:
        stage.reachability.up(PeerUp(Contact(each), reach=Reach.PRIVATE))
    stage.search.avoided[ROOT] = stage.search.avoided[UNLISTED[0]] = 0.0
    stage.search.below[UNLISTED[1]] = None
    stage.search.begin()
    stage.lookups.pop()([])
    assert stage.asked == [UNLISTED[2]]


def test_a_peer_in_reserve_that_is_below_the_searcher_is_told_of() -> None:
    stage = with_reserve()
    refuse(stage, JoinCode.BELOW_YOU)
    assert stage.outcomes == [DeadEnd(UNLISTED[0], below=True)]


def test_a_peer_in_reserve_may_name_a_public_peer() -> None:
    stage = with_reserve()
    stage.refer(PEERS[-1])
    assert stage.asked == [UNLISTED[0], PEERS[-1]]
    refuse(stage)
    assert stage.outcomes == [DeadEnd(PEERS[-1])]


def test_those_in_reserve_are_asked_only_after_a_lookup_in_vain() -> None:
    stage = Stage(Role.MEMBER, reach=Reach.PRIVATE)
    stage.reachability.up(PeerUp(Contact(UNLISTED[0]), reach=Reach.PRIVATE))
    stage.search.begin()
    assert not stage.asked
    stage.lookups.pop()([Contact(PEERS[-1])])
    assert stage.asked == [PEERS[-1]]


def test_a_visitor_takes_a_late_answer_after_a_dead_end() -> None:
    stage = Stage(Role.VISITOR, PEERS[1])
    stage.search.begin()
    refuse(stage)
    assert stage.outcomes == [DeadEnd(PEERS[1])]
    stage.refer(PEERS[0])
    assert stage.asked == [PEERS[1], PEERS[0]]
