"""Lazy neighbours: whom a member chooses, and who gives its place to another."""

from collections.abc import Iterable
from typing import cast

from pulsarcast.model.ids import PeerId
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.dissemination.delays import Delays
from pulsarcast.protocol.dissemination.overlay import Link
from pulsarcast.protocol.dissemination.tree import DisseminationTree
from pulsarcast.protocol.dissemination.tree_heartbeat import SEEK_S, SILENT_S, Heartbeat
from pulsarcast.protocol.inputs import PeerLost, PeerUp
from pulsarcast.protocol.messages import Contact, Join, Message, Role, Status
from pulsarcast.protocol.parameters import Parameters
from tests.support.parts import Core
from tests.support.people import ALICE, meta_of, peer, topic_of
from tests.support.people import CAROL as ME
from tests.support.solo import EMPTY_DIGEST, Parent, below

TOPIC = topic_of(ALICE)
BEAT_S = 130.0
"""Two of the longest intervals: long enough for a beat, however quiet the topic is."""
BOB, CAROL, DAN, ERIN = peer("bob"), peer("carol"), peer("dan"), peer("erin")


class Answering:
    """A member that answers heartbeats."""

    def __init__(self, who: PeerId) -> None:
        self.path = (who,)

    def __call__(self, message: Message) -> list[Message]:
        if isinstance(message, Status) and message.answer:
            return [Status(message.topic, message.digest, self.path, (), answer=False)]
        return []


class AnsweringParent(Parent):
    """A parent that answers heartbeats as well."""

    def __call__(self, message: Message) -> list[Message]:
        if isinstance(message, Status) and message.answer:
            return [Status(message.topic, message.digest, self.path, (), answer=False)]
        return super().__call__(message)


class Member:
    """One who follows the topic below its author."""

    def __init__(self, *answering: PeerId, lazy_neighbours: int = 2) -> None:
        self.parent = AnsweringParent("alice", [TOPIC.block, meta_of(ALICE).block])
        self.solo = below(self.parent, parameters=Parameters(lazy_neighbours=lazy_neighbours))
        self.solo.subscribe(TOPIC.cid)
        self.solo.peers.update({each: Answering(each) for each in answering})

    def hear_of(self, *peers: PeerId) -> None:
        """Its parent names members."""
        contacts = tuple(Contact(each) for each in peers)
        status = Status(TOPIC.cid, EMPTY_DIGEST, self.parent.path, contacts, answer=False)
        self.solo.hear(self.parent.peer, status)

    @property
    def lazy(self) -> set[PeerId]:
        return set(self.solo.topic(TOPIC.cid).heartbeat.lazy)


def test_members_that_the_parent_names_become_lazy_neighbours() -> None:
    member = Member(BOB, CAROL)
    member.hear_of(BOB, CAROL)
    member.solo.advance(BEAT_S)
    assert member.lazy == {BOB, CAROL}


def test_a_members_view_of_the_tree_names_its_lazy_neighbours() -> None:
    member = Member(BOB, CAROL)
    member.hear_of(BOB, CAROL)
    member.solo.advance(BEAT_S)
    assert set(member.solo.node.trees()[TOPIC.cid].lazy) == {BOB, CAROL}


def test_each_time_that_a_lazy_neighbour_holds_something_else_is_counted() -> None:
    member = Member(BOB)
    member.hear_of(BOB, CAROL)
    member.solo.advance(BEAT_S)
    assert member.solo.node.counts["lazy_difference"] == 0
    for _ in range(2):
        differs = Status(TOPIC.cid, bytes([1] * 16), (BOB,), (), answer=False)
        member.solo.hear(BOB, differs)
    assert member.solo.node.counts["lazy_difference"] == 2


def test_a_parent_that_falls_silent_is_left_and_counted_once() -> None:
    solo = Member().solo
    solo.advance(BEAT_S)
    assert [view.parent for view in solo.node.trees().values()] == 2 * [ALICE.peer_id]
    assert solo.node.counts["silent_parent"] == 0
    del solo.peers[ALICE.peer_id]
    solo.advance(2 * BEAT_S)
    assert [view.parent for view in solo.node.trees().values()] == 2 * [None]
    assert solo.node.counts["silent_parent"] == 1, "the meta topic has no tree of its own"


def test_one_whose_connection_ended_gives_its_place_as_soon_as_there_is_another() -> None:
    member = Member(BOB, CAROL, DAN)
    member.hear_of(BOB, CAROL)
    member.solo.advance(BEAT_S)
    member.solo.give(PeerLost(BOB))
    member.solo.advance(BEAT_S)
    assert member.lazy == {CAROL}
    member.hear_of(DAN)
    member.solo.advance(BEAT_S)
    assert member.lazy == {CAROL, DAN}


def test_one_that_comes_into_our_path_gives_its_place() -> None:
    member = Member(BOB, DAN, lazy_neighbours=1)
    member.hear_of(BOB)
    member.solo.advance(BEAT_S)
    assert member.lazy == {BOB}
    member.parent.path = (member.parent.peer, BOB)
    member.hear_of(DAN)
    member.solo.advance(BEAT_S)
    assert member.lazy == {DAN}


def test_one_that_is_silent_gives_its_place_to_one_that_answers() -> None:
    member = Member(DAN, lazy_neighbours=1)
    member.hear_of(BOB)
    while not member.lazy:
        member.solo.advance(1.0)
    member.hear_of(DAN)
    assert member.lazy == {BOB}
    member.solo.advance(2 * BEAT_S)
    for _ in range(20):
        assert member.lazy == {DAN}, "and is not chosen again while that one answers"
        member.solo.advance(BEAT_S)


def test_silent_ones_give_their_place_in_turns() -> None:
    """Nobody is chosen again at once, as a hostile parent that names few others would like."""
    member = Member(lazy_neighbours=1)
    member.hear_of(*(peer(f"silent {number}") for number in range(4)))
    holder, since_s, changes = frozenset[PeerId](), 0, 0
    for now_s in range(6000):
        member.solo.advance(1.0)
        if member.lazy != holder:
            holder, since_s, changes = frozenset(member.lazy), now_s, changes + 1
        assert now_s - since_s <= SILENT_S + 80, "a beat comes every 75 s at the latest"
    assert changes > 30


def test_one_that_is_silent_is_asked_again_where_no_other_is_known() -> None:
    """It may have been cut off, and we with it."""
    member = Member(lazy_neighbours=1)
    member.hear_of(BOB)
    member.solo.advance(4 * BEAT_S)
    member.solo.peers[BOB] = Answering(BOB)
    member.solo.advance(2 * BEAT_S)
    assert member.lazy == {BOB}


def test_a_member_that_answers_keeps_its_place() -> None:
    member = Member(BOB, DAN, lazy_neighbours=1)
    member.hear_of(BOB)
    member.solo.advance(BEAT_S)
    member.hear_of(DAN)
    for _ in range(20):
        member.solo.advance(BEAT_S)
        assert member.lazy == {BOB}


def test_a_child_stays_as_long_as_its_path_comes_through_us() -> None:
    """Whatever lies beyond us on it; one that names another parent has gone there."""
    member = Member()
    me, parent = member.solo.me, member.parent.peer
    member.solo.hear(BOB, Join(TOPIC.cid, 1, Role.MEMBER, ALICE.peer_id, True, False))
    tree = member.solo.topic(TOPIC.cid).overlay
    assert list(tree.children) == [BOB]

    def says(*path: PeerId) -> None:
        member.solo.advance(BEAT_S)
        member.solo.hear(BOB, Status(TOPIC.cid, EMPTY_DIGEST, path, (), answer=False))

    says(BOB, me, parent)
    says(BOB, me, CAROL, parent)
    assert list(tree.children) == [BOB]
    says(BOB, CAROL, me)
    assert not tree.children


def test_a_member_names_only_members_that_others_can_dial() -> None:
    member = Member()
    member.hear_of(BOB, CAROL)
    member.solo.give(PeerUp(Contact(BOB), reach=Reach.PRIVATE))
    member.solo.sent.clear()
    member.solo.advance(BEAT_S)
    statuses = member.solo.sent_to(member.parent.peer, Status)
    named = [each.members for each in statuses if each.topic == TOPIC.cid]
    assert named
    for contacts in named:
        assert Contact(CAROL) in contacts
        assert Contact(BOB) not in contacts


def test_a_heartbeat_says_whether_the_root_can_be_dialled() -> None:
    core, trunk, owner = Core(ME), Trunk(BOB), Compared()
    heartbeat = heartbeat_of(core, trunk, owner)
    for private_root in (False, True):
        trunk.private_root = private_root
        heartbeat.beat()
        said = [message for _, message in core.sent() if isinstance(message, Status)]
        assert said
        assert {message.private_root for message in said} == {private_root}
        heard = Status(TOPIC.cid, EMPTY_DIGEST, (BOB,), (), False, private_root)
        heartbeat.receive(BOB, heard)
        assert trunk.heard[-1] == (BOB, (BOB,), private_root)


class Trunk:
    """Plays the tree: a parent that answers or does not, and the path to the root."""

    def __init__(self, parent: PeerId) -> None:
        self.parent: PeerId | None = parent
        self.path = (parent,)
        self.links: dict[PeerId, Link] = {}
        self.children: dict[PeerId, None] = {}
        self.members: dict[PeerId, None] = {}
        self.connected: set[PeerId] = set()
        self.private_root = False
        self.in_touch = True
        self.leaving = False
        self.delays = Delays()
        self.delay_us = 0
        self.author_elsewhere: PeerId | None = None
        self.roots_heard: list[tuple[PeerId, tuple[PeerId, ...]]] = []
        self.heard: list[tuple[PeerId, tuple[PeerId, ...], bool]] = []
        """What peers said of the way up; the path stays as it is."""

    def hear_of(self, contacts: tuple[Contact, ...]) -> None:
        self.members.update(dict.fromkeys(contact.peer for contact in contacts))

    def is_connected(self, peer: PeerId) -> bool:
        return peer in self.connected

    def path_from_here(self) -> tuple[PeerId, ...]:
        return (ME.peer_id, *self.path)

    def to_name(self, peers: Iterable[PeerId], count: int) -> tuple[Contact, ...]:
        return tuple(map(Contact, peers))[:count]

    def heard_path(
        self, peer: PeerId, path: tuple[PeerId, ...], *, private_root: bool = False
    ) -> None:
        self.heard.append((peer, path, private_root))

    def heard_root(self, sender: PeerId, path: tuple[PeerId, ...], *, private_root: bool) -> None:
        self.roots_heard.append((sender, path))

    def shorten(self, peers: Iterable[PeerId]) -> None:
        """No other way is shorter."""


class Compared:
    """Plays the topic: remembers which neighbours hold something else."""

    def __init__(self) -> None:
        self.differing: list[PeerId] = []

    def digest(self) -> bytes:
        return EMPTY_DIGEST

    def differs_from(self, peer: PeerId, digest: bytes | None = None) -> None:
        self.differing.append(peer)


def heartbeat_of(core: Core, trunk: Trunk, owner: Compared) -> Heartbeat:
    return Heartbeat(TOPIC.cid, core.context, cast("DisseminationTree", trunk), core.quiet, owner)


def test_a_node_out_of_touch_compares_with_others_each_second_until_it_has_a_parent() -> None:
    core, trunk = Core(ME), Trunk(BOB)
    heartbeat = heartbeat_of(core, trunk, Compared())
    heartbeat.timer.start()
    trunk.members = dict.fromkeys((ERIN, DAN))
    trunk.in_touch = False
    heartbeat.lost_touch()
    heartbeat.lost_touch()
    assert sorted(who for who, _ in core.sent()) == sorted((ERIN, DAN)), "once"
    for _ in range(3):
        assert SEEK_S in core.fire()
        assert {who for who, _ in core.sent()} >= {ERIN, DAN}
    trunk.in_touch = True
    core.fire()
    assert SEEK_S not in core.fire()


def test_a_parent_that_answers_is_compared_with() -> None:
    core, trunk, owner = Core(ME), Trunk(BOB), Compared()
    heartbeat = heartbeat_of(core, trunk, owner)
    for _ in range(3):
        heartbeat.beat()
        heartbeat.receive(BOB, Status(TOPIC.cid, b"other".ljust(16), (BOB,), (), answer=False))
    assert owner.differing == [BOB] * 3


def test_a_connected_author_that_is_not_the_root_is_asked_for_its_path() -> None:
    core, trunk = Core(ME), Trunk(BOB)
    heartbeat = heartbeat_of(core, trunk, Compared())
    trunk.author_elsewhere = ALICE.peer_id
    heartbeat.beat()
    assert [who for who, _ in core.sent()] == [BOB, ALICE.peer_id]
    status = Status(TOPIC.cid, EMPTY_DIGEST, (ALICE.peer_id,), (), answer=False)
    heartbeat.receive(ALICE.peer_id, status)
    assert trunk.roots_heard == [(ALICE.peer_id, (ALICE.peer_id,))]


def test_of_two_lazy_neighbours_one_is_connected_anyhow_and_the_other_is_any() -> None:
    strangers = [peer(f"stranger {number}") for number in range(8)]
    seconds = set()
    for seed in range(20):
        core, trunk = Core(ME), Trunk(BOB)
        core.turn.rng.seed(seed)
        trunk.members = dict.fromkeys((*strangers, ERIN))
        trunk.connected = {ERIN}
        heartbeat = heartbeat_of(core, trunk, Compared())
        heartbeat.choose_lazy()
        first, second = heartbeat.lazy
        assert first == ERIN
        seconds.add(second)
    assert len(seconds) > 4


def test_a_connection_that_nobody_used_takes_no_lazy_neighbour_from_a_sleeping_topic() -> None:
    core, trunk = Core(ME), Trunk(BOB)
    heartbeat = heartbeat_of(core, trunk, Compared())
    trunk.members = dict.fromkeys((ERIN, DAN))
    heartbeat.choose_lazy()
    core.quiet.sleep(heartbeat)
    heartbeat.lost(ERIN)
    assert set(heartbeat.lazy) == {ERIN, DAN}
    heartbeat.ask(ERIN)
    heartbeat.lost(ERIN)
    assert set(heartbeat.lazy) == {DAN}, "it did not answer"
    heartbeat.gone(DAN)
    assert not heartbeat.lazy
    trunk.members = dict.fromkeys((ERIN,))
    heartbeat.choose_lazy()
    core.quiet.wake(heartbeat.topic)
    heartbeat.lost(ERIN)
    assert not heartbeat.lazy, "awake"
