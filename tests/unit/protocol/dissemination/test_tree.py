"""Dissemination trees: many of them in a small network without a DHT, joined in every order."""

from collections.abc import Callable
from math import ceil
from random import Random
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarcast.model.ids import PeerId, cid_of, peer_key
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination import overlay
from pulsarcast.protocol.dissemination.member_search import FORGIVEN_S, REFERRALS_MAX
from pulsarcast.protocol.dissemination.tree import MEMBERS_MAX, NARROW_S, DisseminationTree
from pulsarcast.protocol.effects import Send, SetTimer
from pulsarcast.protocol.inputs import Subscribe
from pulsarcast.protocol.messages import (
    Contact,
    EventMessage,
    HandOver,
    Join,
    JoinAccepted,
    JoinCode,
    JoinReferred,
    JoinRefused,
    Leave,
    Message,
    Role,
    StartParts,
    Status,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.turn import Turn
from tests.support.people import ALICE, identity, meta_of, topic_of
from tests.support.reach import reachability_of
from tests.support.solo import Parent, below

TOPIC = cid_of(b"a topic")
SIZE = 12
FANOUT = 2
DIGEST = bytes(16)


class Knowledge:
    """Whom one node knows: what the tree asks of a DHT."""

    def __init__(
        self, context: Context, known: list[PeerId], everyone: Callable[[], list[PeerId]]
    ) -> None:
        self.me = context.turn.me
        self.reachability = reachability_of(context)
        self.known = known
        self.everyone = everyone

    def closest_known(
        self, key: int, count: int = 1, exclude: dict[PeerId, None] | None = None
    ) -> list[Contact]:
        peers = [peer for peer in self.known if peer not in (exclude or {}) and peer != self.me]
        return [Contact(peer) for peer in sorted(peers, key=lambda p: peer_key(p) ^ key)[:count]]

    def lookup(self, key: int, then: Callable[[list[Contact]], None]) -> None:
        """A lookup finds whoever is alive."""
        peers = sorted(self.everyone(), key=lambda peer: peer_key(peer) ^ key)
        then([Contact(peer) for peer in peers if peer != self.me])


class Member:
    """A tree and the little of a topic that it needs around it."""

    def __init__(self, grove: "Grove", number: int, known: list[PeerId]) -> None:
        self.turn = Turn(identity(f"member {number}"), Random(number))
        self.me = self.turn.me
        self.has_left = False
        self.known = known
        context = Context(self.turn, Parameters(fanout=FANOUT))
        knowledge = Knowledge(context, known, lambda: list(grove.members))
        self.reachability = knowledge.reachability
        dht = cast(Kademlia, knowledge)
        self.tree = DisseminationTree(TOPIC, grove.root, context, dht, self)

    def digest(self) -> bytes:
        return DIGEST

    def attached(self, parent: PeerId | None, digest: bytes | None) -> None:
        """Nothing to catch up with."""

    def welcome(self, child: PeerId, *, fresh: bool) -> None:
        """Nothing to show."""

    def path_changed(self) -> None:
        self.tree.send_children(
            lambda: Status(
                TOPIC,
                DIGEST,
                self.tree.path_from_here(),
                (),
                answer=False,
                private_root=self.tree.private_root,
            )
        )

    def lost_touch(self) -> None:
        """Nobody to ask."""

    def differs_from(self, peer: PeerId, digest: bytes | None = None) -> None:
        """Nothing to show."""

    def overlay_left(self) -> None:
        self.has_left = True

    def hear(self, sender: PeerId, message: Message) -> None:
        match message:
            case Join():
                self.tree.receive_join(sender, message)
            case JoinAccepted() | JoinReferred() | JoinRefused() | Leave() | HandOver():
                self.tree.receive(sender, message)
            case Status():
                path, private_root = message.path, message.private_root
                self.tree.heard_path(sender, path, private_root=private_root)
            case _:
                raise AssertionError(message)


class Grove:
    """Members, and messages between them in an order of chance, but in order between any two."""

    def __init__(self, seed: int, size: int = SIZE) -> None:
        self.rng = Random(seed)
        self.root: PeerId = identity("member 0").peer_id
        self.members: dict[PeerId, Member] = {}
        self.lines: dict[tuple[PeerId, PeerId], list[Message]] = {}
        self.timers: list[tuple[float, int, PeerId]] = []
        self.now = 0.0
        peers = [identity(f"member {number}").peer_id for number in range(size)]
        for number in range(size):
            known = self.rng.sample(peers, self.rng.randint(1, size))
            member = Member(self, number, known)
            self.members[member.me] = member

    def act(self, member: Member, do: Callable[[], None]) -> None:
        """Let a member do something, and carry out what it asks."""
        member.turn.now = self.now
        member.turn.effects = []
        do()
        for effect in member.turn.effects:
            match effect:
                case Send(peer, message):
                    assert peer != member.me
                    self.lines.setdefault((member.me, peer), []).append(message)
                case SetTimer(timer, delay_s):
                    self.timers.append((self.now + delay_s, timer, member.me))
                case _:
                    raise AssertionError(effect)

    def step(self) -> bool:
        """One message arrives, or where none is on its way, one timer fires."""
        if self.lines:
            line = self.rng.choice(sorted(self.lines))
            message = self.lines[line].pop(0)
            if not self.lines[line]:
                del self.lines[line]
            self._arrive(*line, message)
            return True
        if not self.timers:
            return False
        due = min(self.timers)
        self.timers.remove(due)
        self.now, timer, peer = due
        member = self.members.get(peer)
        if member is not None:
            self.act(member, lambda: member.turn.fired(timer))
        return True

    def _arrive(self, sender: PeerId, receiver: PeerId, message: Message) -> None:
        member = self.members.get(receiver)
        if member is not None and sender in self.members:
            self.act(member, lambda: member.hear(sender, message))
        elif sender in self.members:
            teller = self.members[sender]
            self.act(teller, lambda: teller.tree.lost(receiver))

    def settle(self, seconds: float = 600.0) -> None:
        until = self.now + seconds
        for _ in range(100_000):
            if not self.lines and (not self.timers or min(self.timers)[0] > until):
                return
            self.step()
        raise AssertionError("the grove never comes to rest")

    def kill(self, peer: PeerId) -> None:
        """A member dies: everyone learns of it, and its DHT no longer names it."""
        del self.members[peer]
        for member in list(self.members.values()):
            member.known[:] = [known for known in member.known if known != peer]
            self.act(member, lambda member=member: member.tree.lost(peer))  # type: ignore[misc]

    def join_all(self) -> None:
        """Everyone joins at a time of chance, so that joins meet each other on the way."""
        joining = list(self.members.values())
        self.rng.shuffle(joining)
        for member in joining:
            self.act(member, member.tree.join)
            for _ in range(self.rng.randint(0, 6)):
                self.step()

    def check(self, root: PeerId) -> None:
        """One tree: everyone's way up ends at the root, without a cycle, and both ends agree."""
        trees = {peer: member.tree for peer, member in self.members.items()}
        for peer, tree in trees.items():
            assert tree.is_root == (peer == root)
            assert (tree.parent is None) == (peer == root)
            # One more for each joiner whom none of the children took in.
            assert len(tree.children) <= FANOUT + tree.counts["overfill"]
            assert set(tree.links) == {*tree.children, *([tree.parent] if tree.parent else [])}
            way = [peer]
            while (above := trees[way[-1]].parent) is not None:
                assert above not in way, "a cycle"
                assert way[-1] in trees[above].children
                way.append(above)
            assert way[-1] == root
            assert tree.path_from_here() == tuple(way), "and everyone knows its way"


def seeds() -> st.SearchStrategy[int]:
    return st.integers(0, 2**32)


@given(seeds())
@settings(max_examples=60)
def test_however_joins_meet_the_result_is_one_tree_without_a_cycle(seed: int) -> None:
    grove = Grove(seed)
    grove.join_all()
    grove.settle()
    grove.check(grove.root)


@given(seeds())
@settings(max_examples=60)
def test_the_tree_heals_when_a_third_of_its_members_die(seed: int) -> None:
    grove = Grove(seed)
    grove.join_all()
    grove.settle(grove.rng.random() * 5)
    victims = [peer for peer in grove.members if peer != grove.root]
    for peer in grove.rng.sample(victims, SIZE // 3):
        grove.kill(peer)
        for _ in range(grove.rng.randint(0, 6)):
            grove.step()
    grove.settle()
    grove.check(grove.root)


@given(seeds())
@settings(max_examples=60)
def test_when_the_root_dies_exactly_one_member_takes_its_place(seed: int) -> None:
    """Design 2 says the closest to the key; an orphan with the closest below it rules instead."""
    grove = Grove(seed)
    grove.join_all()
    grove.settle()
    grove.kill(grove.root)
    grove.settle()
    roots = [peer for peer, member in grove.members.items() if member.tree.is_root]
    assert len(roots) == 1
    grove.check(roots[0])


@given(seeds())
@settings(max_examples=60)
def test_whoever_leaves_hands_its_children_over(seed: int) -> None:
    grove = Grove(seed)
    grove.join_all()
    grove.settle()
    leavers = [m for m in grove.members.values() if m.tree.children and m.me != grove.root]
    leaver = grove.rng.choice(leavers)
    grove.act(leaver, leaver.tree.leave)
    grove.settle()
    assert leaver.has_left
    del grove.members[leaver.me]
    grove.check(grove.root)


@given(seeds())
@settings(max_examples=60)
def test_nobody_is_left_by_a_parent_that_hands_over(seed: int) -> None:
    """However full the others are, and whoever else leaves: each child finds a place in time."""
    grove = Grove(seed)
    grove.join_all()
    grove.settle()
    leavers = [m for m in grove.members.values() if m.tree.children and m.me != grove.root]
    for leaver in grove.rng.sample(leavers, min(2, len(leavers))):
        grove.act(leaver, leaver.tree.leave)
    grove.settle()
    assert sum(member.tree.counts["rejoin"] for member in grove.members.values()) == 0


def alone(number: int = 1, known: tuple[int, ...] = (0,)) -> tuple[Grove, Member]:
    """A member that knows a few others, who answer only what the test lets them."""
    grove = Grove(1, size=0)
    peers = [identity(f"member {other}").peer_id for other in known]
    member = Member(grove, number, peers)
    grove.members[member.me] = member
    return grove, member


def sent(grove: Grove, member: Member) -> list[tuple[PeerId, Message]]:
    """What a member has said since the last look."""
    said = [
        (receiver, message)
        for (sender, receiver), messages in grove.lines.items()
        for message in messages
        if sender == member.me
    ]
    grove.lines.clear()
    return said


def accept(join: Message, path: tuple[PeerId, ...]) -> JoinAccepted:
    """The answer of a peer with this path that takes the joiner in."""
    assert isinstance(join, Join)
    return JoinAccepted(TOPIC, join.attempt, path, (), DIGEST)


def test_a_join_goes_to_a_peer_strictly_closer_to_the_root() -> None:
    key = peer_key(identity("member 0").peer_id)
    for number in range(1, SIZE):
        others = tuple(other for other in range(1, SIZE) if other != number)
        grove, member = alone(number, others)
        grove.act(member, member.tree.join)
        for receiver, message in sent(grove, member):
            assert isinstance(message, Join)
            assert peer_key(receiver) ^ key < peer_key(member.me) ^ key


def test_a_referral_to_a_peer_that_is_not_closer_is_not_followed() -> None:
    grove, member = alone()
    grove.act(member, member.tree.join)
    ((root, join),) = sent(grove, member)
    assert isinstance(join, Join)
    farther = Contact(identity("member 5").peer_id)
    refer = JoinReferred(TOPIC, join.attempt, farther, handed_down=False)
    grove.act(member, lambda: member.hear(root, refer))
    assert farther.peer not in [receiver for receiver, _ in sent(grove, member)]


def test_referrals_in_circles_come_to_an_end() -> None:
    grove, member = alone()
    liars = [identity(f"member {number}").peer_id for number in (0, 5)]
    grove.act(member, member.tree.join)
    joins = 0
    while messages := sent(grove, member):
        ((asked, join),) = messages
        assert isinstance(join, Join)
        joins += 1
        assert joins <= REFERRALS_MAX
        other = Contact(liars[asked == liars[0]])
        refer = JoinReferred(TOPIC, join.attempt, other, handed_down=True)
        grove.act(member, lambda asked=asked, refer=refer: member.hear(asked, refer))  # type: ignore[misc]
    assert joins == REFERRALS_MAX


def test_nobody_attaches_below_itself() -> None:
    grove, member = alone()
    grove.act(member, member.tree.join)
    ((root, join),) = sent(grove, member)
    assert isinstance(join, Join)
    path = (root, identity("member 5").peer_id, member.me)
    accepted = JoinAccepted(TOPIC, join.attempt, path, (), DIGEST)
    grove.act(member, lambda: member.hear(root, accepted))
    assert member.tree.parent is None
    assert (root, Leave(TOPIC)) in sent(grove, member)


@given(seeds())
@settings(max_examples=20)
def test_who_has_a_narrow_line_hands_half_of_its_children_to_the_others(seed: int) -> None:
    grove = Grove(seed)
    grove.join_all()
    grove.settle()
    root = grove.members[grove.root]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pulsarcast.protocol.dissemination.tree.FANOUT_MIN", 1)
        before = list(root.tree.children)
        grove.act(root, root.tree.serve_fewer)
        grove.settle(NARROW_S / 2)
        grove.check(grove.root)
        (kept,) = root.tree.children
        assert kept in before
        assert root.tree.fanout == 1
    root.turn.now += NARROW_S
    assert root.tree.fanout == FANOUT, "lines change"


def test_nobody_attaches_below_its_own_child() -> None:
    """The child has moved to the node just now, and the peer below it does not know yet."""
    grove, member = alone()
    grove.act(member, member.tree.join)
    ((root, join),) = sent(grove, member)
    assert isinstance(join, Join)
    grove.act(member, lambda: member.hear(root, accept(join, (root,))))
    child, below = (identity(f"member {number}").peer_id for number in (5, 6))
    asks = Join(TOPIC, 1, Role.MEMBER, root, False, False)
    grove.act(member, lambda: member.hear(child, asks))
    grove.act(member, lambda: member.hear(root, HandOver(TOPIC, Contact(below))))
    moves = {receiver: each for receiver, each in sent(grove, member) if isinstance(each, Join)}
    grove.act(member, lambda: member.hear(below, accept(moves[below], (below, child, root))))
    assert member.tree.parent == root
    assert (below, Leave(TOPIC)) in sent(grove, member)


def test_who_looks_for_a_shorter_way_hears_that_its_parent_leaves() -> None:
    """The look may end with nothing, and the node would stay until the parent is gone."""
    grove, member = alone()
    grove.act(member, member.tree.join)
    ((root, join),) = sent(grove, member)
    assert isinstance(join, Join)
    grove.act(member, lambda: member.hear(root, accept(join, (root,))))
    looked_at, other = (identity(f"member {number}").peer_id for number in (4, 5))
    walk = member.tree.search.walk
    grove.act(member, lambda: walk.begin_at(Contact(looked_at)))
    sent(grove, member)
    for _ in range(2):
        grove.act(member, lambda: member.hear(root, HandOver(TOPIC, Contact(other))))
    assert walk.attempt is not None
    refused = JoinRefused(TOPIC, walk.attempt, JoinCode.LEAVING)
    grove.act(member, lambda: member.hear(looked_at, refused))
    grove.lines.clear()
    while not grove.lines:
        assert grove.step()
    assert [to for to, each in sent(grove, member) if isinstance(each, Join)] == [other]


def test_a_full_parent_names_no_child_that_is_about_to_leave() -> None:
    grove, member = alone(0, ())
    grove.act(member, member.tree.join)
    children = [identity(f"member {number}").peer_id for number in range(1, FANOUT + 1)]
    joiners = [identity(f"member {number}").peer_id for number in range(FANOUT + 1, SIZE)]
    ask = Join(TOPIC, 1, Role.MEMBER, member.me, False, False)
    for child in children:
        grove.act(member, lambda child=child: member.hear(child, ask))  # type: ignore[misc]
    grove.act(member, lambda: member.hear(children[0], HandOver(TOPIC, None)))
    sent(grove, member)
    first, *others = joiners
    grove.act(member, lambda: member.hear(first, ask))
    assert isinstance(sent(grove, member)[0][1], JoinAccepted), "the place is as good as free"
    for joiner in others:
        grove.act(member, lambda joiner=joiner: member.hear(joiner, ask))  # type: ignore[misc]
    named = {m.contact.peer for _, m in sent(grove, member) if isinstance(m, JoinReferred)}
    assert named == {*children[1:], first}


def test_a_parent_that_leaves_is_not_asked_again_however_alive_others_know_it_to_be() -> None:
    grove, member = alone()
    grove.act(member, member.tree.join)
    ((root, join),) = sent(grove, member)
    assert isinstance(join, Join)
    grove.act(member, lambda: member.hear(root, accept(join, (root,))))
    other = Contact(identity("member 5").peer_id)
    grove.act(member, lambda: member.hear(root, HandOver(TOPIC, other)))
    ((asked, move),) = sent(grove, member)
    assert isinstance(move, Join)
    grove.now += FORGIVEN_S + 1
    refer = JoinReferred(TOPIC, move.attempt, Contact(root), handed_down=False)
    grove.act(member, lambda: member.hear(asked, refer))
    assert root not in [receiver for receiver, _ in sent(grove, member)]


def test_members_that_a_peer_names_count_only_once_it_is_our_parent() -> None:
    """Whoever answers a join that we never sent must not choose our lazy neighbours."""
    grove, member = alone()
    grove.act(member, member.tree.join)
    ((root, join),) = sent(grove, member)
    assert isinstance(join, Join)
    stranger, friend = (identity(f"member {number}").peer_id for number in (5, 6))
    uninvited = JoinAccepted(TOPIC, join.attempt, (stranger,), (Contact(stranger),), DIGEST)
    grove.act(member, lambda: member.hear(stranger, uninvited))
    assert not member.tree.members
    accepted = JoinAccepted(TOPIC, join.attempt, (root,), (Contact(friend),), DIGEST)
    grove.act(member, lambda: member.hear(root, accepted))
    assert list(member.tree.members) == [friend]


def test_the_members_that_a_tree_remembers_are_bounded() -> None:
    tree = alone()[1].tree
    named = [identity(f"other {number}").peer_id for number in range(MEMBERS_MAX + 1)]
    tree.hear_of(tuple(Contact(each) for each in named))
    assert list(tree.members) == named[1:]


@pytest.mark.parametrize(
    ("code", "at_once"), [(JoinCode.BELOW_YOU, True), (JoinCode.LEAVING, False)]
)
def test_whoever_is_refused_by_its_own_subtree_asks_the_next_one_at_once(
    code: JoinCode, at_once: bool
) -> None:
    """Only "below you" is no reason to wait: the others had nothing to do with it."""
    key = peer_key(identity("member 0").peer_id)
    numbers = sorted(range(1, SIZE), key=lambda n: peer_key(identity(f"member {n}").peer_id) ^ key)
    nearest, next_one, *_, farthest = numbers
    grove, member = alone(farthest, (nearest, next_one))
    grove.act(member, member.tree.join)
    ((asked, join),) = sent(grove, member)
    assert isinstance(join, Join)
    assert asked == identity(f"member {nearest}").peer_id
    refused = JoinRefused(TOPIC, join.attempt, code)
    grove.act(member, lambda: member.hear(asked, refused))
    receivers = [receiver for receiver, _ in sent(grove, member)]
    assert receivers == ([identity(f"member {next_one}").peer_id] if at_once else [])


@pytest.mark.parametrize(("waited_s", "is_asked"), [(FORGIVEN_S, False), (FORGIVEN_S + 0.1, True)])
def test_one_that_failed_us_is_asked_again_once_others_name_it_after_a_while(
    waited_s: float, is_asked: bool
) -> None:
    key = peer_key(identity("member 0").peer_id)
    peers = [identity(f"member {number}").peer_id for number in range(1, SIZE)]
    nearest, next_one, *_, farthest = sorted(peers, key=lambda peer: peer_key(peer) ^ key)
    grove, member = alone(1 + peers.index(farthest), ())
    member.known[:] = [nearest, next_one]
    grove.now = 1.0
    grove.act(member, member.tree.join)
    ((asked, join),) = sent(grove, member)
    assert isinstance(join, Join)
    assert asked == nearest
    refused = JoinRefused(TOPIC, join.attempt, "leaving")
    grove.act(member, lambda: member.hear(nearest, refused))
    grove.now += waited_s
    grove.act(member, member.tree.join)
    ((asked, again),) = sent(grove, member)
    assert isinstance(again, Join)
    assert asked == next_one
    refer = JoinReferred(TOPIC, again.attempt, Contact(nearest), handed_down=False)
    grove.act(member, lambda: member.hear(next_one, refer))
    assert [receiver for receiver, _ in sent(grove, member)] == [nearest] * is_asked


def test_an_answer_to_a_join_of_ours_that_timed_out_does_not_undo_the_one_after_it() -> None:
    """Two joins to one busy peer, both answered at last: both ends must agree on the outcome."""
    grove, member = alone()
    grove.act(member, member.tree.join)
    ((root, first),) = sent(grove, member)
    joins: list[Message] = [first]
    while len(joins) < 2:
        grove.step()
        joins += [message for _, message in sent(grove, member)]
    for join in joins:
        assert isinstance(join, Join)
        accepted = JoinAccepted(TOPIC, join.attempt, (root,), (), DIGEST)
        grove.act(member, lambda accepted=accepted: member.hear(root, accepted))  # type: ignore[misc]
    assert member.tree.parent == root
    assert (root, Leave(TOPIC)) not in sent(grove, member), "or it would no longer be our parent"


def test_a_cycle_that_a_race_made_is_found_in_the_path_and_broken() -> None:
    grove, member = alone()
    grove.act(member, member.tree.join)
    ((root, join),) = sent(grove, member)
    assert isinstance(join, Join)
    accepted = JoinAccepted(TOPIC, join.attempt, (root,), (), DIGEST)
    grove.act(member, lambda: member.hear(root, accepted))
    assert member.tree.parent == root
    cycle = Status(TOPIC, DIGEST, (root, member.me), (), answer=False)
    grove.act(member, lambda: member.hear(root, cycle))
    assert member.tree.parent is None


def test_whoever_is_left_by_its_parent_asks_another_first() -> None:
    key = peer_key(identity("member 0").peer_id)
    peers = [identity(f"member {number}").peer_id for number in range(1, SIZE)]
    nearest, next_one, *_, farthest = sorted(peers, key=lambda peer: peer_key(peer) ^ key)
    grove, member = alone(1 + peers.index(farthest), ())
    member.known[:] = [nearest, next_one]
    grove.act(member, member.tree.join)
    ((asked, join),) = sent(grove, member)
    assert isinstance(join, Join)
    assert asked == nearest
    accepted = JoinAccepted(TOPIC, join.attempt, (nearest,), (), DIGEST)
    grove.act(member, lambda: member.hear(nearest, accepted))
    grove.act(member, lambda: member.hear(nearest, Leave(TOPIC)))
    while not (said := sent(grove, member)):
        grove.step()
    assert [receiver for receiver, _ in said] == [next_one]


def test_an_acting_root_that_finds_one_closer_has_merged_two_trees() -> None:
    grove, member = alone(1, ())
    grove.act(member, member.tree.join)
    while not member.tree.is_root:
        grove.step()
    assert member.tree.counts["tree_merge"] == 0
    root = Member(grove, 0, [])
    grove.members[root.me] = root
    grove.act(root, root.tree.join)
    grove.settle()
    assert member.tree.parent == root.me
    assert member.tree.counts["tree_merge"] == 1


def test_a_full_parent_hands_joiners_down_to_its_children_in_turn() -> None:
    grove, root = alone(0, ())
    grove.act(root, root.tree.join)
    children = [identity(f"member {number}").peer_id for number in (1, 2)]
    for child in children:
        join = Join(TOPIC, 1, Role.MEMBER, grove.root, False, False)
        grove.act(root, lambda child=child, join=join: root.hear(child, join))  # type: ignore[misc]
    sent(grove, root)
    named = []
    for number in range(3, 7):
        joiner = identity(f"member {number}").peer_id
        join = Join(TOPIC, 1, Role.MEMBER, grove.root, False, False)
        grove.act(root, lambda joiner=joiner, join=join: root.hear(joiner, join))  # type: ignore[misc]
        ((_, referred),) = sent(grove, root)
        assert isinstance(referred, JoinReferred)
        assert referred.handed_down
        named.append(referred.contact.peer)
    assert sorted(named) == sorted(2 * children)


def test_an_event_never_goes_back_where_it_came_from() -> None:
    """Thesis, algorithm 4, lines 11 to 14."""
    grove, root = alone(0, ())
    grove.act(root, root.tree.join)
    children = [identity(f"member {number}").peer_id for number in (1, 2)]
    for child in children:
        join = Join(TOPIC, 1, Role.MEMBER, grove.root, False, False)
        grove.act(root, lambda child=child, join=join: root.hear(child, join))  # type: ignore[misc]
    sent(grove, root)
    message = EventMessage(b"an event", 2)
    grove.act(root, lambda: root.tree.forward(message, source=children[0]))
    assert sent(grove, root) == [(children[1], message)]


def test_a_neighbour_without_credit_gets_nothing_and_is_known_to_be_behind() -> None:
    grove, root = alone(0, ())
    grove.act(root, root.tree.join)
    child = identity("member 1").peer_id
    join = Join(TOPIC, 1, Role.MEMBER, grove.root, False, False)
    grove.act(root, lambda: root.hear(child, join))
    sent(grove, root)
    message = EventMessage(bytes(999_744), 1)

    def forward_many() -> None:
        for _ in range(20):
            root.tree.forward(message, source=None)

    grove.act(root, forward_many)
    windows = 1 + overlay.DEBT_WINDOWS
    due = windows * Parameters().window_bytes / overlay.size_of(message.block)
    assert len(sent(grove, root)) == ceil(due) == 17
    assert root.tree.links[child].behind


# Where a newcomer starts.


class Tacit(Parent):
    """It takes joiners in, and keeps to itself where they start."""

    def __call__(self, message: Message) -> list[Message]:
        answers = super().__call__(message)
        return [each for each in answers if not isinstance(each, StartParts)]


def test_a_parent_that_does_not_say_where_we_start_is_left_for_another() -> None:
    topic = topic_of(ALICE)
    alice = Tacit("alice", [topic.block, meta_of(ALICE).block])
    solo = below(alice)
    solo.give(Subscribe(99, topic.cid))
    solo.advance(2.1 * Parameters().join_timeout_s)
    assert solo.sent_to(alice.peer, Leave)
    solo.peers[alice.peer] = Parent("alice", alice.blocks.values())
    solo.advance(30.0)
    assert solo.replies[99].refusal is None
