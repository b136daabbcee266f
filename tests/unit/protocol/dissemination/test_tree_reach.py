"""Trees where not every member can be dialled: who acts as root, and who takes joiners in."""

from collections.abc import Callable, Collection
from random import Random
from typing import cast

import pytest

from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import PeerId, cid_of, peer_key
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination import handing_down
from pulsarcast.protocol.dissemination.join_search import REJOIN_S
from pulsarcast.protocol.dissemination.tree import BETTER_S_MAX, DisseminationTree
from pulsarcast.protocol.effects import Send, SetTimer
from pulsarcast.protocol.inputs import PeerUp
from pulsarcast.protocol.messages import (
    Contact,
    Join,
    JoinAccepted,
    JoinReferred,
    Leave,
    Message,
    Role,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.turn import Turn
from tests.support.people import ALICE, identity
from tests.support.reach import reachability_of

TOPIC = cid_of(b"a topic")
DIGEST = bytes(16)
AUTHOR = ALICE
FANOUT = 2
CLOSEST, CLOSER, ME, FARTHER, FARTHEST = sorted(
    (identity(f"peer {number}") for number in range(5)),
    key=lambda each: peer_key(each.peer_id) ^ peer_key(AUTHOR.peer_id),
)
CHILDREN = [identity(f"child {number}").peer_id for number in range(8)]


class Stage:
    """One member's tree between peers that the test plays, and a DHT that waits for the test."""

    def __init__(self, reach: Reach = Reach.PUBLIC, *known: PeerId, who: Identity = ME) -> None:
        self.turn = Turn(who, Random(1))
        context = Context(self.turn, Parameters(fanout=FANOUT))
        self.counts = context.counts
        self.reachability = reachability_of(context, reach)
        self.known = list(known)
        self.lookups: list[Callable[[list[Contact]], None]] = []
        self.told = 0
        """How often the children had to hear of another path."""
        self.tree = DisseminationTree(TOPIC, AUTHOR.peer_id, context, cast(Kademlia, self), self)

    def closest_known(
        self, key: int, count: int, exclude: Collection[PeerId] = ()
    ) -> list[Contact]:
        known = [each for each in self.known if each not in exclude]
        return [Contact(each) for each in sorted(known, key=lambda p: peer_key(p) ^ key)[:count]]

    def lookup(self, key: int, then: Callable[[list[Contact]], None]) -> None:
        self.lookups.append(then)

    def digest(self) -> bytes:
        return DIGEST

    def attached(self, parent: PeerId | None, digest: bytes | None) -> None:
        """Nothing to catch up with."""

    def welcome(self, child: PeerId, *, fresh: bool) -> None:
        """Nothing to show."""

    def path_changed(self) -> None:
        self.told += 1

    def lost_touch(self) -> None:
        """Nobody to ask."""

    def differs_from(self, peer: PeerId, digest: bytes | None = None) -> None:
        """Nothing to show."""

    def overlay_left(self) -> None:
        """Nothing to forget."""

    def sent(self) -> list[tuple[PeerId, Message]]:
        """What it has said since the last look."""
        effects, self.turn.effects = self.turn.effects, []
        return [(each.peer, each.message) for each in effects if isinstance(each, Send)]

    def up(self, peer: PeerId, reach: Reach) -> PeerId:
        """Connect a peer with this reach."""
        self.reachability.up(PeerUp(Contact(peer), reach=reach))
        return peer

    def accept(self, path: tuple[PeerId, ...], *, private_root: bool) -> None:
        """The one peer that was asked takes the node in."""
        ((asked, join),) = self.sent()
        assert isinstance(join, Join)
        accepted = JoinAccepted(TOPIC, join.attempt, (asked, *path), (), DIGEST, private_root)
        self.tree.accepted(asked, accepted)

    def joins(self, peer: PeerId, attempt: int = 1) -> Message:
        """A peer wants to be a child; returns the answer."""
        self.sent()
        join = Join(TOPIC, attempt, Role.MEMBER, AUTHOR.peer_id, False, False)
        self.tree.receive_join(peer, join)
        ((to, answer),) = self.sent()
        assert to == peer
        return answer

    def take_in(self, *children: PeerId) -> None:
        """Become the root, and take children in."""
        self.tree.become_root()
        for child in children:
            assert isinstance(self.joins(child), JoinAccepted)

    def timers(self) -> list[float]:
        """The delays of the timers since the last look."""
        effects, self.turn.effects = self.turn.effects, []
        return [each.delay_s for each in effects if isinstance(each, SetTimer)]


def below(stage: Stage, *, private_root: bool = False) -> PeerId:
    """Take a place below the closest peer, the root, through the one next to it."""
    stage.known = [CLOSER.peer_id]
    stage.tree.join()
    stage.accept((CLOSEST.peer_id,), private_root=private_root)
    stage.sent()
    return CLOSER.peer_id


# Who acts as root.


@pytest.mark.parametrize("reach", Reach)
def test_an_author_that_cannot_be_dialled_asks_a_public_peer_for_its_place(reach: Reach) -> None:
    stage = Stage(reach, FARTHEST.peer_id, who=AUTHOR)
    stage.tree.join()
    private = reach in (Reach.PRIVATE, Reach.RELAYED)
    assert stage.tree.is_root is not private
    asked = [who for who, message in stage.sent() if isinstance(message, Join)]
    assert asked == ([FARTHEST.peer_id] if private else [])


def test_a_private_member_asks_any_public_peer_and_a_public_one_only_closer_ones() -> None:
    for reach, asked in ((Reach.PRIVATE, [FARTHEST.peer_id]), (Reach.PUBLIC, [])):
        stage = Stage(reach, FARTHEST.peer_id)
        stage.tree.join()
        assert [who for who, _ in stage.sent()] == asked


@pytest.mark.parametrize(
    ("reach", "root", "attaches"),
    [
        (Reach.PUBLIC, FARTHEST, False),
        (Reach.PUBLIC, CLOSEST, False),
        (Reach.PRIVATE, FARTHEST, False),
        (Reach.PRIVATE, CLOSEST, True),
        (Reach.RELAYED, CLOSEST, True),
    ],
)
def test_a_member_attaches_below_a_private_root_only_if_it_ranks_after_it(
    reach: Reach, root: Identity, attaches: bool
) -> None:
    stage = Stage(reach, CLOSER.peer_id)
    stage.tree.join()
    stage.accept((root.peer_id,), private_root=True)
    assert stage.tree.parent == (CLOSER.peer_id if attaches else None)
    left = [(CLOSER.peer_id, Leave(TOPIC))]
    assert stage.sent() == ([] if attaches else left)


@pytest.mark.parametrize("reach", Reach)
def test_an_acceptance_that_names_no_root_ends_nothing(reach: Reach) -> None:
    stage = Stage(reach, CLOSER.peer_id)
    stage.tree.join()
    ((asked, join),) = stage.sent()
    assert isinstance(join, Join)
    accepted = JoinAccepted(TOPIC, join.attempt, (), (), DIGEST, private_root=True)
    stage.tree.accepted(asked, accepted)
    stage.tree.heard_root(asked, (), private_root=True)
    stage.tree.heard_path(asked, (), private_root=True)


def test_a_public_author_attaches_below_nobody() -> None:
    stage = Stage(Reach.PRIVATE, FARTHER.peer_id, who=AUTHOR)
    stage.tree.join()
    stage.reachability.start(Reach.PUBLIC)
    stage.accept((FARTHEST.peer_id,), private_root=False)
    assert stage.tree.parent is None
    assert (FARTHER.peer_id, Leave(TOPIC)) in stage.sent()


def test_a_public_member_leaves_a_private_root_while_its_parent_still_forwards() -> None:
    stage = Stage()
    parent = below(stage)
    path = stage.tree.path
    stage.known = [CLOSEST.peer_id]
    stage.tree.heard_path(parent, path, private_root=True)
    ((asked, join),) = stage.sent()
    assert asked == CLOSEST.peer_id
    assert isinstance(join, Join)
    assert stage.tree.parent == parent
    assert list(stage.tree.links) == [parent]
    assert stage.counts["outranked"] == 1
    stage.tree.heard_path(parent, path, private_root=True)
    assert stage.sent() == [], "it looks already"
    assert stage.counts["outranked"] == 1
    accepted = JoinAccepted(TOPIC, join.attempt, (asked,), (), DIGEST, False)
    stage.tree.accepted(asked, accepted)
    assert (parent, Leave(TOPIC)) in stage.sent()
    assert list(stage.tree.links) == [asked]


def test_a_public_member_that_finds_no_other_place_acts_as_root_for_the_private_one() -> None:
    stage = Stage()
    parent = below(stage)
    stage.known = []
    stage.tree.heard_path(parent, stage.tree.path, private_root=True)
    for _ in range(8):
        for found in stage.lookups:
            found([])
        stage.lookups.clear()
        timers = [each for each in stage.turn.effects if isinstance(each, SetTimer)]
        stage.turn.effects = [each for each in stage.turn.effects if isinstance(each, Send)]
        for each in timers:
            stage.turn.fired(each.timer)
    assert stage.tree.is_root
    assert (parent, Leave(TOPIC)) in stage.sent()


def test_a_private_member_stays_below_a_private_root_that_is_closer() -> None:
    stage = Stage(Reach.PRIVATE)
    parent = below(stage)
    stage.tree.heard_path(parent, stage.tree.path, private_root=True)
    assert stage.sent() == []
    assert stage.counts["outranked"] == 0
    farther = (parent, FARTHER.peer_id)
    stage.tree.heard_path(parent, farther, private_root=True)
    assert stage.counts["outranked"] == 1


def test_a_member_below_a_private_root_that_becomes_public_leaves_it() -> None:
    stage = Stage(Reach.PRIVATE)
    parent = below(stage, private_root=True)
    stage.tree.reach_changed(stage.turn.me)
    assert stage.sent() == []
    stage.reachability.start(Reach.PUBLIC)
    stage.tree.reach_changed(stage.turn.me)
    assert stage.counts["outranked"] == 1
    assert stage.tree.parent == parent


# What a member says of its root.


def test_what_the_root_says_of_itself_travels_down() -> None:
    stage = Stage(Reach.PRIVATE)
    parent = below(stage, private_root=True)
    for private_root in (True, False, True):
        before = stage.told
        changes = stage.tree.private_root is not private_root
        stage.tree.heard_path(parent, stage.tree.path, private_root=private_root)
        assert stage.told == before + changes
        answer = stage.joins(CHILDREN[0])
        assert isinstance(answer, JoinAccepted)
        assert answer.private_root is private_root


@pytest.mark.parametrize("reach", Reach)
def test_a_root_says_whether_it_knows_that_it_cannot_be_dialled(reach: Reach) -> None:
    stage = Stage(reach)
    stage.tree.become_root()
    answer = stage.joins(CHILDREN[0])
    assert isinstance(answer, JoinAccepted)
    assert answer.private_root is (reach in (Reach.PRIVATE, Reach.RELAYED))


def test_an_acting_root_tells_its_children_that_its_reach_is_another_one() -> None:
    stage = Stage()
    stage.tree.become_root()
    before = stage.told
    stage.tree.reach_changed(stage.turn.me)
    assert stage.told == before + 1


# Looking out.


@pytest.mark.parametrize(
    ("own", "peer", "reach", "soon"),
    [
        (Reach.PUBLIC, CLOSER, Reach.PUBLIC, True),
        (Reach.PUBLIC, FARTHER, Reach.PUBLIC, False),
        (Reach.PUBLIC, CLOSER, Reach.PRIVATE, False),
        (Reach.PRIVATE, FARTHER, Reach.PUBLIC, True),
        (Reach.PRIVATE, FARTHER, Reach.PRIVATE, False),
    ],
)
def test_an_acting_root_looks_out_soon_after_a_peer_became_a_better_root(
    own: Reach, peer: Identity, reach: Reach, soon: bool
) -> None:
    stage = Stage(own)
    stage.tree.become_root()
    stage.timers()
    stage.tree.reach_changed(stage.up(peer.peer_id, reach))
    delays = stage.timers()
    assert bool(delays) is soon
    assert all(REJOIN_S <= delay_s <= 2 * REJOIN_S for delay_s in delays)


@pytest.mark.parametrize("reach", Reach)
def test_an_author_that_acts_as_root_looks_out_unless_it_is_public(reach: Reach) -> None:
    stage = Stage(reach, who=AUTHOR)
    stage.timers()
    stage.tree.become_root()
    assert len(stage.timers()) == (reach is not Reach.PUBLIC)


def test_a_member_that_has_a_place_may_ask_all_in_reserve_again() -> None:
    stage = Stage()
    stage.tree.search.walk.reserve[FARTHER.peer_id] = None
    stage.tree.become_root()
    assert not stage.tree.search.walk.reserve


def test_an_acting_root_looks_out_soon_after_its_own_reach_changed() -> None:
    stage = Stage()
    stage.tree.become_root()
    stage.timers()
    stage.tree.reach_changed(stage.turn.me)
    (delay_s,) = stage.timers()
    assert delay_s <= 2 * REJOIN_S


def test_a_node_without_a_place_or_about_to_leave_minds_no_reach() -> None:
    stage = Stage(Reach.PRIVATE)
    stage.tree.reach_changed(stage.up(FARTHER.peer_id, Reach.PUBLIC))
    stage.take_in(*CHILDREN[:1])
    stage.tree.leave()
    stage.turn.effects.clear()
    stage.tree.reach_changed(FARTHER.peer_id)
    assert stage.turn.effects == []


# Taking in.


@pytest.mark.parametrize("reach", [Reach.PUBLIC, Reach.RELAYED])
def test_a_joiner_is_handed_down_only_to_children_that_it_can_dial(reach: Reach) -> None:
    stage = Stage()
    private = stage.up(CHILDREN[0], Reach.PRIVATE)
    dialable = stage.up(CHILDREN[1], reach)
    stage.take_in(private, dialable)
    for joiner in CHILDREN[2:]:
        answer = stage.joins(joiner)
        assert answer == JoinReferred(TOPIC, 1, Contact(dialable), True)
    assert list(stage.tree.children) == [private, dialable]


def test_a_full_parent_without_such_children_takes_joiners_in_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handing_down, "CHILDREN_MAX", 4)
    stage = Stage()
    for child in CHILDREN:
        stage.up(child, Reach.PRIVATE)
    stage.take_in(*CHILDREN[:4])
    assert stage.counts["overfill"] == 2
    answer = stage.joins(CHILDREN[4])
    assert isinstance(answer, JoinReferred)
    assert answer.contact.peer in CHILDREN[:4]
    assert list(stage.tree.children) == CHILDREN[:4]


def test_a_private_joiner_that_asked_again_after_each_child_is_taken_in() -> None:
    stage = Stage()
    stage.take_in(*CHILDREN[:FANOUT])
    joiner = stage.up(CHILDREN[4], Reach.PRIVATE)
    for _ in range(2):
        # In each search it counts anew.
        named = [stage.joins(joiner, attempt=5), stage.joins(joiner, attempt=5)]
        contacts = {each.contact.peer for each in named if isinstance(each, JoinReferred)}
        assert contacts == set(CHILDREN[:FANOUT])
        assert isinstance(stage.joins(joiner, attempt=6), JoinReferred)
    stage.joins(joiner, attempt=6)
    assert joiner not in stage.tree.children
    assert isinstance(stage.joins(joiner, attempt=6), JoinAccepted)
    assert joiner in stage.tree.children


def test_a_public_joiner_is_handed_down_as_often_as_it_asks() -> None:
    stage = Stage()
    stage.take_in(*CHILDREN[:FANOUT])
    joiner = stage.up(CHILDREN[4], Reach.PUBLIC)
    for _ in range(2 * FANOUT):
        assert isinstance(stage.joins(joiner, attempt=5), JoinReferred)


def test_the_joiners_remembered_that_were_handed_down_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handing_down, "HANDED_MAX", 1)
    stage = Stage()
    stage.take_in(*CHILDREN[:FANOUT])
    for _ in range(2 * FANOUT):
        # Each makes the node forget the other.
        for joiner in CHILDREN[2:4]:
            assert isinstance(stage.joins(joiner), JoinReferred)


def test_a_parent_names_only_members_that_others_can_dial() -> None:
    stage = Stage()
    private = stage.up(CHILDREN[0], Reach.PRIVATE)
    stage.take_in(private)
    answer = stage.joins(CHILDREN[1])
    assert isinstance(answer, JoinAccepted)
    assert answer.members == ()
    stage.up(private, Reach.RELAYED)
    answer = stage.joins(CHILDREN[1])
    assert isinstance(answer, JoinAccepted)
    assert answer.members == (Contact(private),)
    assert stage.tree.to_name(CHILDREN, 3) == tuple(map(Contact, CHILDREN[:3]))


# Moving to a better root.


def hears(
    stage: Stage, sender: PeerId, root: PeerId, at_s: float, *, private: bool = False
) -> None:
    stage.turn.now = at_s
    stage.tree.heard_root(sender, (sender, root), private_root=private)


def below_a_farther_root(stage: Stage, *, private_root: bool = False) -> None:
    """Take a place below a root that is farther than the closest peer."""
    stage.known = [CLOSER.peer_id]
    stage.tree.join()
    stage.accept((FARTHEST.peer_id,), private_root=private_root)
    stage.sent()


def test_a_member_moves_to_a_better_root_once_it_has_been_named_for_long() -> None:
    stage, namer = Stage(Reach.PRIVATE), CHILDREN[0]
    below_a_farther_root(stage)
    hears(stage, namer, CLOSEST.peer_id, 1.0)
    hears(stage, namer, CLOSEST.peer_id, 1.0 + BETTER_S_MAX)
    assert stage.sent() == []
    hears(stage, namer, CLOSEST.peer_id, 2.0 + BETTER_S_MAX)
    stage.accept((CLOSEST.peer_id,), private_root=False)
    assert stage.tree.parent == namer
    assert stage.sent() == [(CLOSER.peer_id, Leave(TOPIC))]


@pytest.mark.parametrize(
    ("root", "private"),
    [(FARTHEST, False), (AUTHOR, True)],
    ids=["the same root", "a private one"],
)
def test_a_member_of_a_public_root_moves_to_no_other_and_to_no_private_one(
    root: Identity, private: bool
) -> None:
    stage = Stage(Reach.PRIVATE)
    below_a_farther_root(stage)
    for at_s in (1.0, 2.0 + BETTER_S_MAX, 3.0 + BETTER_S_MAX):
        hears(stage, CHILDREN[0], root.peer_id, at_s, private=private)
    assert stage.sent() == []


def test_a_member_below_a_private_root_moves_to_any_public_one() -> None:
    stage = Stage(Reach.PRIVATE)
    stage.known = [CLOSER.peer_id]
    stage.tree.join()
    stage.accept((CLOSEST.peer_id,), private_root=True)
    stage.sent()
    for at_s in (1.0, 2.0 + BETTER_S_MAX):
        hears(stage, CHILDREN[0], FARTHEST.peer_id, at_s)
    assert [to for to, _ in stage.sent()] == [CHILDREN[0]]


def test_a_connected_public_author_that_is_not_the_root_is_asked_for_its_path() -> None:
    stage = Stage(Reach.PRIVATE)
    below_a_farther_root(stage)
    asked = [stage.tree.author_elsewhere]
    stage.up(AUTHOR.peer_id, Reach.PUBLIC)
    asked.append(stage.tree.author_elsewhere)
    stage.tree.heard_path(CLOSER.peer_id, (CLOSER.peer_id, AUTHOR.peer_id))
    asked.append(stage.tree.author_elsewhere)
    assert asked == [None, AUTHOR.peer_id, None]
