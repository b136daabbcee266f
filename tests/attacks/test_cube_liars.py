"""Attacks on a cube: members that are none, floods of them, and lies about who answers for whom."""

from pulsarcast.model.ids import Cid, peer_key
from pulsarcast.model.keys import KEY_BITS, bucket_of
from pulsarcast.model.topics import Dissemination
from pulsarcast.protocol.dissemination.candidates import CANDIDATES_MAX, NAMED_MAX, TRIED_MAX
from pulsarcast.protocol.dissemination.cube import LINKS_MAX, DisseminationCube
from pulsarcast.protocol.dissemination.overlay import DEBT_WINDOWS, size_of
from pulsarcast.protocol.inputs import PeerLost, Subscribe
from pulsarcast.protocol.messages import (
    Contact,
    Credit,
    EventMessage,
    Join,
    JoinAccepted,
    Leave,
    Meet,
    Members,
    Message,
    Role,
    StartParts,
    Status,
)
from pulsarcast.protocol.parameters import Parameters
from tests.support.people import ALICE, BOB, MALLORY, event_of, meta_of, peer, topic_of, unordered
from tests.support.solo import EMPTY_DIGEST, Parent, Solo, below

CUBE = unordered(dissemination=Dissemination.CUBE)
HOT = topic_of(ALICE, CUBE)
BLOCKS = [HOT.block, meta_of(ALICE).block]


def author(
    *members: str, parameters: Parameters | None = None
) -> tuple[Solo, Cid, DisseminationCube]:
    """The author of a cube, and some who have told it that they are members."""
    solo = Solo(parameters=parameters).start()
    topic = solo.create(CUBE)
    for member in members:
        solo.hear(peer(member), Meet(topic, 0, 0))
    solo.sent.clear()
    cube = solo.topic(topic).overlay
    assert isinstance(cube, DisseminationCube)
    return solo, topic, cube


def named(count: int, what: str = "phantom") -> tuple[Contact, ...]:
    return tuple(Contact(peer(f"{what} {number}")) for number in range(count))


def test_whoever_is_only_named_carries_nothing() -> None:
    """A member names phantoms; they are asked whether they are members, and get no event."""
    solo, topic, cube = author("bob")
    solo.hear(peer("bob"), Status(topic, EMPTY_DIGEST, (peer("bob"),), named(20), answer=False))
    assert len(solo.said(Meet)) == TRIED_MAX
    solo.publish(topic)
    assert list(cube.members) == [peer("bob")]
    assert {to for to, message in solo.sent if isinstance(message, EventMessage)} == {peer("bob")}


def test_what_one_peer_can_make_us_try_is_bounded() -> None:
    solo, topic, cube = author("mallory")
    for page in range(100):
        contacts = named(64, f"page {page}")
        solo.hear(peer("mallory"), Status(topic, EMPTY_DIGEST, (peer("mallory"),), contacts, False))
    assert len(solo.said(Meet)) <= TRIED_MAX
    assert len(cube.candidates) <= NAMED_MAX + TRIED_MAX
    solo.advance(60.0)
    asked = {to for to, message in solo.sent if isinstance(message, Meet)}
    assert len(asked) <= NAMED_MAX + 2 * TRIED_MAX, "and phantoms are not tried for ever"


def test_many_namers_together_are_bounded_too() -> None:
    namers = [f"namer {number}" for number in range(40)]
    solo, topic, cube = author(*namers)
    for namer in namers:
        contacts = named(64, namer)
        solo.hear(peer(namer), Status(topic, EMPTY_DIGEST, (peer(namer),), contacts, False))
    assert len(cube.candidates) <= CANDIDATES_MAX + TRIED_MAX


def test_a_phantom_is_left_alone_once_it_was_tried() -> None:
    solo, topic, _ = author("mallory")
    status = Status(topic, EMPTY_DIGEST, (peer("mallory"),), named(1), answer=False)
    for _ in range(5):
        solo.hear(peer("mallory"), status)
        solo.give(PeerLost(peer("phantom 0")))
    assert len(solo.sent_to(peer("phantom 0"), Meet)) == 1


def test_members_that_nobody_asked_for_teach_us_nothing() -> None:
    solo, topic, cube = author("bob")
    solo.hear(MALLORY.peer_id, Members(topic, named(20)))
    solo.hear(MALLORY.peer_id, JoinAccepted(topic, 1, (MALLORY.peer_id,), named(20), EMPTY_DIGEST))
    assert list(cube.members) == [peer("bob")]
    assert not solo.said(Meet)


def test_a_flood_of_members_is_bounded_and_pushes_nobody_out() -> None:
    friends = [f"friend {number}" for number in range(8)]
    solo, topic, cube = author(*friends)
    for number in range(3000):
        solo.hear(peer(f"sybil {number}"), Meet(topic, 0, 64))
    assert {peer(friend) for friend in friends} <= set(cube.members)
    parameters = Parameters()
    assert len(cube.members) <= parameters.cube_view + 20 * parameters.cube_bucket
    assert len(cube.links) <= LINKS_MAX
    assert all(member in cube.links for member in cube.members)
    assert len(cube.children) < 20, "an event of ours still goes to one of each bucket"


def test_a_flood_of_newcomers_leaves_nothing_behind() -> None:
    solo, topic, cube = author()
    for number in range(2000):
        solo.hear(peer(f"newcomer {number}"), Join(topic, 1, Role.MEMBER, solo.me, False, True))
    assert len(cube.members) == len(cube.links) == len(cube.candidates) == 0


def test_nobody_can_make_us_send_more_than_is_ours_to_send() -> None:
    """Whom we answer for follows from who sent it: a lie about a level cannot be told."""
    members = [f"member {number}" for number in range(30)]
    solo, topic, cube = author(*members)
    sender = min(map(peer, members), key=lambda each: peer_key(each) ^ peer_key(solo.me))
    level = bucket_of(peer_key(sender), peer_key(solo.me))
    version = solo.version(topic)
    solo.hear(sender, EventMessage(event_of(BOB, version).block, 1))
    got = {to for to, message in solo.sent if isinstance(message, EventMessage)}
    assert got == set(cube.members.children(level))
    assert len(got) < len(cube.members.children(KEY_BITS))


def test_an_event_from_a_stranger_is_taken_and_the_stranger_met() -> None:
    """It may have met us before we restarted: credit must flow again."""
    solo, topic, cube = author()
    solo.hear(peer("bob"), EventMessage(event_of(BOB, solo.version(topic)).block, 1))
    assert solo.topic(topic).frontier.marks()
    assert len(solo.sent_to(peer("bob"), Meet)) == 1
    assert peer("bob") not in cube.members, "not before it has said that it is a member"
    solo.hear(peer("bob"), Members(topic, ()))
    assert peer("bob") in cube.members


def test_credit_is_not_beyond_the_window_however_often_one_is_met() -> None:
    window = 20_000
    solo, topic, cube = author("greedy", parameters=Parameters(window_bytes=window, stall_s=0.0))
    for _ in range(10):
        solo.hear(peer("greedy"), Credit(topic, 1_000_000), Meet(topic, 0, 0))
    assert cube.links[peer("greedy")].credit == window
    for _ in range(100):
        solo.publish(topic)
    sizes = [size_of(each.block) for each in solo.sent_to(peer("greedy"), EventMessage)]
    most = window * (1 + DEBT_WINDOWS)
    assert most <= sum(sizes) < most + sizes[-1]
    assert cube.links[peer("greedy")].behind


def test_a_host_that_gives_no_start_is_left_for_another() -> None:
    """Whoever lets a newcomer in owes it a start frontier; one that does not give it is left."""
    host = Parent("alice", BLOCKS)

    def stingy(message: Message) -> list[Message]:
        return [each for each in host(message) if not isinstance(each, StartParts)]

    solo = below(host)
    solo.peers[host.peer] = stingy
    solo.give(Subscribe(77, HOT.cid))
    solo.advance(40.0)
    assert 77 not in solo.replies
    assert len([join for join in host.joins if join.topic == HOT.cid]) > 1, "it asks again"
    solo.peers[host.peer] = host
    solo.advance(60.0)
    assert 77 in solo.replies


def test_a_stranger_cannot_send_a_member_away() -> None:
    solo, topic, cube = author("bob")
    solo.hear(MALLORY.peer_id, Leave(topic))
    assert list(cube.members) == [peer("bob")]
    assert not solo.sent_to(MALLORY.peer_id, Leave)
