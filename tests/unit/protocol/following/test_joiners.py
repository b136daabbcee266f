"""Joiners: referred to a closer peer, or kept together by the node where there is none."""

from typing import cast

import pytest

from pulsarcast.model.ids import Cid, PeerId, cid_of, peer_key
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.following.following import Following
from pulsarcast.protocol.following.joiners import (
    KEPT_MAX,
    NAMED_MAX,
    NAMED_S,
    REFERRED_MAX,
    TOPICS_MAX,
    Joiners,
)
from pulsarcast.protocol.inputs import PeerUp
from pulsarcast.protocol.messages import Contact, Join, JoinReferred, JoinRefused, Role
from pulsarcast.protocol.topic.life import FollowReason
from pulsarcast.protocol.topic.topic import Topic
from pulsarcast.protocol.topic.versions import Versions
from tests.support.parts import Core
from tests.support.people import BOB, peer, topic_of

TOPIC = topic_of(BOB)
ROOT = BOB.peer_id
ROOT_KEY = peer_key(ROOT)
CLOSER, *_, JOINER = sorted(
    (peer(f"joiner {number}") for number in range(8)), key=lambda p: peer_key(p) ^ ROOT_KEY
)
"""Joiners that are closer to the root's key than the node, and farther."""


class Kept:
    """Plays following: remembers the topics that the node is asked to keep."""

    def __init__(self) -> None:
        self.topics: dict[Cid, Topic] = {}
        self.is_stopping = False
        self.count = 0
        self.asked: list[tuple[Cid, FollowReason]] = []
        self.places: list[str] = []

    def kept_count(self) -> int:
        return self.count

    def follow(self, versions: Versions, why: FollowReason, *, place: str) -> None:
        self.asked.append((versions.first.cid, why))
        self.places.append(place)


class Door:
    """A node at whose door a joiner knocks."""

    def __init__(self, *known: PeerId, reach: Reach = Reach.PUBLIC) -> None:
        self.core = Core()
        self.core.network.reachability.start(reach)
        self.core.network.known = list(known)
        self.kept = Kept()
        following = cast("Following", self.kept)
        self.joiners = Joiners(self.core.context, self.core.dht, self.core.descriptors, following)
        self.core.descriptors.keep(Versions(TOPIC))

    def knock(self, role: Role = Role.MEMBER, root: PeerId = ROOT, joiner: PeerId = JOINER) -> None:
        self.joiners.receive_join(joiner, Join(TOPIC.cid, 3, role, root, False, True))

    def look_up(self, *found: PeerId) -> None:
        """The lookup of the root's key ends."""
        ((_, then),) = self.core.network.lookups
        then([Contact(each) for each in found])


def test_a_joiner_is_referred_to_a_known_peer_closer_to_the_root() -> None:
    door = Door(ROOT)
    door.knock()
    assert door.core.sent() == [(JOINER, JoinReferred(TOPIC.cid, 3, Contact(ROOT), False))]
    assert door.core.network.lookups == []


def test_a_joiner_is_never_referred_to_itself() -> None:
    door = Door()
    door.knock(joiner=CLOSER)
    door.look_up(CLOSER)
    assert door.core.sent() == [(CLOSER, JoinRefused(TOPIC.cid, 3, "no member"))]


def test_a_node_keeps_the_tree_where_no_peer_is_closer() -> None:
    door = Door()
    door.knock()
    door.look_up(JOINER)
    assert door.core.sent() == []
    assert door.kept.asked == [(TOPIC.cid, FollowReason.KEEPER)]


def test_a_tree_is_kept_at_the_cost_of_the_joiners_place() -> None:
    door = Door()
    door.core.network.reachability.up(PeerUp(Contact(JOINER), "192.0.2.0/24"))
    door.knock()
    door.look_up(JOINER)
    assert door.kept.places == ["192.0.2.0/24"]


def test_a_node_keeps_no_tree_for_a_place_without_room_and_says_so() -> None:
    door = Door()
    door.core.network.full.append(JOINER)
    door.knock()
    door.look_up(JOINER)
    assert door.core.sent() == [(JOINER, JoinRefused(TOPIC.cid, 3, "no room"))]
    assert door.kept.asked == []


def test_a_node_keeps_no_tree_for_a_joiner_that_ranks_before_it() -> None:
    door = Door()
    door.knock(joiner=CLOSER)
    door.look_up()
    assert door.core.sent() == [(CLOSER, JoinRefused(TOPIC.cid, 3, "no member"))]
    assert door.kept.asked == []


def test_a_closer_peer_that_the_lookup_finds_gets_the_joiner() -> None:
    door = Door()
    door.knock()
    door.look_up(ROOT)
    assert door.core.sent() == [(JOINER, JoinReferred(TOPIC.cid, 3, Contact(ROOT), False))]
    assert door.kept.asked == []


@pytest.mark.parametrize("reach", [each for each in Reach if each is not Reach.PUBLIC])
def test_a_node_that_is_not_public_never_keeps_a_tree(reach: Reach) -> None:
    for joiner in (JOINER, CLOSER):
        door = Door(reach=reach)
        given = PeerUp(Contact(joiner), reach=Reach.PRIVATE, relayed=True)
        door.core.network.reachability.up(given)
        door.knock(joiner=joiner)
        door.look_up()
        assert door.core.sent() == [(joiner, JoinRefused(TOPIC.cid, 3, "no member"))]
        assert door.kept.asked == []


def test_a_public_node_keeps_the_tree_for_a_private_joiner_that_is_closer() -> None:
    door = Door()
    door.core.network.reachability.up(PeerUp(Contact(CLOSER), reach=Reach.PRIVATE))
    door.knock(joiner=CLOSER)
    door.look_up()
    assert door.kept.asked == [(TOPIC.cid, FollowReason.KEEPER)]


def test_a_node_that_is_not_public_refers_a_joiner_to_any_peer_that_is() -> None:
    for reach, referred in ((Reach.PRIVATE, True), (Reach.PUBLIC, False)):
        door = Door(JOINER, reach=reach)
        door.knock(joiner=CLOSER)
        answers = [answer for _, answer in door.core.sent()]
        contact = JoinReferred(TOPIC.cid, 3, Contact(JOINER), False)
        assert answers == ([contact] if referred else [])


def test_an_author_that_cannot_be_dialled_refers_joiners_too() -> None:
    door = Door(CLOSER, reach=Reach.PRIVATE)
    door.knock(root=door.core.turn.me)
    assert door.core.sent() == [(JOINER, JoinReferred(TOPIC.cid, 3, Contact(CLOSER), False))]


def test_no_tree_is_kept_for_a_visitor() -> None:
    door = Door()
    door.knock(Role.VISITOR)
    door.look_up()
    ((_, answer),) = door.core.sent()
    assert isinstance(answer, JoinRefused)
    assert door.kept.asked == []


def test_no_tree_is_kept_for_a_root_that_is_not_the_topics() -> None:
    door = Door()
    door.knock(root=peer("made up"))
    door.look_up()
    assert door.kept.asked == []


@pytest.mark.parametrize("count", [KEPT_MAX - 1, KEPT_MAX])
def test_a_node_keeps_a_bounded_number_of_trees(count: int) -> None:
    door = Door()
    door.kept.count = count
    door.knock()
    door.look_up()
    assert len(door.kept.asked) == (count < KEPT_MAX)


def test_a_node_that_stops_refuses_joiners() -> None:
    door = Door(ROOT)
    door.kept.is_stopping = True
    door.knock()
    ((_, answer),) = door.core.sent()
    assert isinstance(answer, JoinRefused)


def named(door: Door, joiner: PeerId) -> PeerId:
    """To whom a joiner is referred."""
    door.knock(joiner=joiner)
    ((asked_by, message),) = door.core.sent()
    assert asked_by == joiner
    assert isinstance(message, JoinReferred)
    assert message.handed_down is (message.contact.peer != ROOT)
    return message.contact.peer


CROWD = [peer(f"one of a crowd {number}") for number in range(200)]


def test_of_a_crowd_few_are_sent_on_towards_the_root() -> None:
    door = Door(ROOT)
    first, *others = [named(door, joiner) for joiner in CROWD]
    assert first == ROOT
    assert others[0] == CROWD[0]
    assert others.count(ROOT) <= len(CROWD) / NAMED_MAX
    for earlier in CROWD[:REFERRED_MAX]:
        assert NAMED_MAX - 1 <= others.count(earlier) <= NAMED_MAX


def test_a_joiner_that_asks_again_is_sent_towards_the_root() -> None:
    door = Door(ROOT)
    assert [named(door, each) for each in CROWD[:2]] == [ROOT, CROWD[0]]
    assert named(door, CROWD[1]) == ROOT


def test_a_joiner_of_long_ago_is_named_no_more() -> None:
    door = Door(ROOT)
    named(door, CROWD[0])
    assert NAMED_S in door.core.fire()
    assert named(door, CROWD[1]) == ROOT
    assert len(door.joiners) == 1


def test_visitors_go_to_the_root_and_are_named_to_nobody() -> None:
    door = Door(ROOT)
    for joiner in CROWD[:3]:
        door.knock(Role.VISITOR, joiner=joiner)
        ((_, message),) = door.core.sent()
        assert isinstance(message, JoinReferred)
        assert message.contact.peer == ROOT
    assert named(door, CROWD[3]) == ROOT


def test_joiners_of_topics_without_end_fill_no_memory() -> None:
    door = Door(ROOT)
    for number in range(2 * TOPICS_MAX):
        join = Join(cid_of(b"%d" % number), 1, Role.MEMBER, ROOT, False, True)
        door.joiners.receive_join(JOINER, join)
    assert len(door.joiners) == TOPICS_MAX
