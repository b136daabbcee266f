"""Attacks by peers that lie about the tree, about each other, or about what was asked of them."""

from collections.abc import Callable

import msgspec
import pytest

from pulsarcast.model import trace
from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.protocol.dissemination.member_search import REFERRALS_MAX
from pulsarcast.protocol.dissemination.overlay import DEBT_WINDOWS, size_of
from pulsarcast.protocol.inputs import Subscribe
from pulsarcast.protocol.limits import COUNT_MAX, HOPS_MAX, PATH_MAX
from pulsarcast.protocol.messages import (
    BlockFound,
    Contact,
    Credit,
    EventMessage,
    FetchRange,
    FrontierPage,
    HandOver,
    Join,
    JoinAccepted,
    JoinReferred,
    JoinRefused,
    KeysDiffer,
    Leave,
    Message,
    Peers,
    PointerFound,
    Range,
    Role,
    Status,
    Stored,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import MarkState
from pulsarcast.wire import codec
from tests.support.people import (
    ALICE,
    BOB,
    CAROL,
    EPOCH,
    MALLORY,
    event_of,
    meta_of,
    peer,
    topic_of,
    unordered,
)
from tests.support.solo import EMPTY_DIGEST, Parent, Solo, below

OPEN = topic_of(ALICE)
BLOCKS = [OPEN.block, meta_of(ALICE).block]


def member() -> Solo:
    """A subscriber below Alice."""
    solo = below(Parent("alice", BLOCKS))
    solo.subscribe(OPEN.cid)
    solo.advance(5.0)
    solo.sent.clear()
    return solo


def attempt_at(parent: Parent) -> int:
    """The number under which a node last asked to join the topic (and not its meta topic)."""
    return [join.attempt for join in parent.joins if join.topic == OPEN.cid][-1]


def root_with_children(*children: str, parameters: Parameters | None = None) -> tuple[Solo, Cid]:
    solo = Solo(parameters=parameters).start()
    topic = solo.create()
    for child in children:
        solo.hear(peer(child), Join(topic, 1, Role.MEMBER, solo.me, False, False))
    solo.sent.clear()
    return solo, topic


# Lies about the tree.


def test_lying_referrals_in_circles_do_not_keep_a_node_out() -> None:
    """Two liars refer a joiner to each other; it gives up on them and finds an honest member."""
    silent = Parent("alice", BLOCKS, takes_in=False)
    solo = below(silent)
    circle = {MALLORY.peer_id: CAROL.peer_id, CAROL.peer_id: MALLORY.peer_id}
    knocks = 0

    def refer_to(other: PeerId) -> Callable[[Message], list[Message]]:
        def answer(message: Message) -> list[Message]:
            nonlocal knocks
            if not isinstance(message, Join):
                return []
            knocks += 1
            return [JoinReferred(message.topic, message.attempt, Contact(other), handed_down=True)]

        return answer

    for liar, other in circle.items():
        solo.peers[liar] = refer_to(other)
    solo.give(Subscribe(77, OPEN.cid))
    # An honest peer was misled, and names one of them.
    misled = JoinReferred(OPEN.cid, attempt_at(silent), Contact(MALLORY.peer_id), True)
    solo.hear(ALICE.peer_id, misled)
    assert 0 < knocks <= REFERRALS_MAX
    silent.takes_in = True
    solo.advance(60.0)
    assert solo.topic(OPEN.cid).overlay.upstream == ALICE.peer_id
    assert knocks <= 4 * REFERRALS_MAX


def test_a_child_that_names_itself_is_no_way_to_a_parent() -> None:
    """Referred to ourselves, handed over to ourselves, told that we are a member: no talk to us."""
    silent = Parent("alice", BLOCKS, takes_in=False)
    solo = below(silent)
    solo.give(Subscribe(77, OPEN.cid))
    attempt = attempt_at(silent)
    ourselves = Contact(solo.me)
    solo.hear(ALICE.peer_id, JoinReferred(OPEN.cid, attempt, ourselves, handed_down=True))
    solo.hear(ALICE.peer_id, JoinReferred(OPEN.cid, attempt, ourselves, handed_down=False))
    solo.advance(60.0)  # `Solo` asserts that nobody sends to itself.
    silent.takes_in = True
    solo.advance(60.0)
    assert solo.topic(OPEN.cid).overlay.upstream == ALICE.peer_id
    solo.hear(ALICE.peer_id, HandOver(OPEN.cid, ourselves))
    members = (ourselves, ourselves)
    path = (ALICE.peer_id,)
    solo.hear(ALICE.peer_id, Status(OPEN.cid, EMPTY_DIGEST, path, members, answer=False))
    solo.advance(300.0)
    assert solo.me not in solo.topic(OPEN.cid).heartbeat.members()


def test_nobody_is_taken_in_who_is_above_us() -> None:
    """A parent's parent that asks to be our child would close a circle."""
    parent = Parent("alice", BLOCKS)
    parent.path = (ALICE.peer_id, BOB.peer_id, CAROL.peer_id)
    solo = below(parent)
    solo.subscribe(OPEN.cid)
    solo.hear(CAROL.peer_id, Join(OPEN.cid, 5, Role.MEMBER, ALICE.peer_id, True, False))
    (refused,) = solo.sent_to(CAROL.peer_id, JoinRefused)
    assert refused.code == "below_you"
    assert CAROL.peer_id not in solo.topic(OPEN.cid).overlay.children


@pytest.mark.parametrize("role", Role)
def test_a_flood_of_joiners_leaves_nothing_behind(role: Role) -> None:
    """Visitors cost an answer each and no memory; members beyond the fan-out are handed down."""
    solo, topic = root_with_children()
    before = solo.node.footprint()
    for number in range(2000):
        solo.hear(peer(f"joiner {number}"), Join(topic, 1, role, solo.me, False, True))
    solo.advance(120.0)
    after = solo.node.footprint()
    grown = {kind: after[kind] - before[kind] for kind in after if after[kind] > before[kind]}
    grown.pop("dht_contacts", None)
    grown.pop("dht_spares", None)
    links = Parameters().fanout if role is Role.MEMBER else 0
    assert grown.pop("links", 0) == links
    assert sum(grown.values()) <= 4, grown
    assert len(solo.topic(topic).overlay.children) == links


def test_a_flood_of_joins_to_unknown_topics_leaves_nothing_behind() -> None:
    solo, _ = root_with_children()
    before = solo.node.footprint()
    for number in range(2000):
        unknown = cid_of(b"unknown %d" % number)
        solo.hear(MALLORY.peer_id, Join(unknown, 1, Role.MEMBER, solo.me, False, True))
    solo.advance(600.0)
    after = solo.node.footprint()
    assert after["topics"] == before["topics"]
    assert sum(after.values()) <= sum(before.values()) + 8


def test_topics_that_a_stranger_makes_us_keep_are_bounded() -> None:
    """Whoever makes topics whose root we are can ask us to keep their trees together."""
    solo = Solo(contacts=(MALLORY.peer_id,))
    count = 600
    settings = unordered(root=solo.me)
    topics = [topic_of(MALLORY, settings, name=f"topic {number}") for number in range(count)]
    solo.peers[MALLORY.peer_id] = Parent("mallory", [topic.block for topic in topics])
    solo.start()
    for topic in topics:
        solo.hear(MALLORY.peer_id, Join(topic.cid, 1, Role.MEMBER, solo.me, False, True))
        solo.advance(0.1)
        solo.hear(MALLORY.peer_id, Join(topic.cid, 2, Role.MEMBER, solo.me, False, True))
    assert solo.node.footprint()["topics"] <= 256


def test_an_unsolicited_acceptance_changes_nothing() -> None:
    """Nor does it teach us whom to compare with: that is how one eclipses a node."""
    solo = member()
    tree = solo.topic(OPEN.cid).overlay
    strangers = tuple(Contact(peer(f"stranger {number}")) for number in range(20))
    accepted = JoinAccepted(OPEN.cid, 1, (MALLORY.peer_id,), strangers, EMPTY_DIGEST)
    solo.hear(MALLORY.peer_id, accepted)
    assert tree.upstream == ALICE.peer_id
    assert tree.path == (ALICE.peer_id,)
    known = solo.topic(OPEN.cid).heartbeat.members()
    assert not {contact.peer for contact in strangers} & set(known)


def test_a_stranger_cannot_send_our_parent_away() -> None:
    solo = member()
    solo.hear(
        MALLORY.peer_id,
        Leave(OPEN.cid),
        HandOver(OPEN.cid, Contact(MALLORY.peer_id)),
        JoinRefused(OPEN.cid, 1, "no"),
        JoinReferred(OPEN.cid, 1, Contact(MALLORY.peer_id), handed_down=True),
        Status(OPEN.cid, EMPTY_DIGEST, (MALLORY.peer_id, solo.me), (), answer=False),
    )
    assert solo.topic(OPEN.cid).overlay.upstream == ALICE.peer_id
    assert not solo.sent_to(MALLORY.peer_id, Join)


def test_a_path_of_the_longest_kind_does_not_make_us_say_what_nobody_may_say() -> None:
    """We add ourselves to our parent's path: what we send on must still be a valid message."""
    parent = Parent("alice", BLOCKS)
    strangers = tuple(peer(f"above {number}") for number in range(PATH_MAX - 1))
    parent.path = (ALICE.peer_id, *strangers)
    solo = below(parent)
    solo.subscribe(OPEN.cid)
    solo.hear(BOB.peer_id, Join(OPEN.cid, 1, Role.MEMBER, ALICE.peer_id, False, True))
    solo.hear(BOB.peer_id, Status(OPEN.cid, EMPTY_DIGEST, (BOB.peer_id,), (), answer=True))
    solo.advance(60.0)
    for _, message in solo.sent:
        codec.decode(codec.encode(message))


def test_an_event_of_the_most_hops_is_not_passed_on_as_what_nobody_may_say() -> None:
    """A number beyond the bound makes our neighbours blame us for a stranger's message."""
    solo = member()
    event = event_of(BOB, OPEN)
    solo.hear(MALLORY.peer_id, EventMessage(event.block, HOPS_MAX))
    assert solo.cids() == [event.cid]
    for _, message in solo.sent:
        codec.decode(codec.encode(message))


# Lies about what we asked for.


def test_an_unsolicited_range_is_not_looked_at() -> None:
    solo = member()
    event = event_of(BOB, OPEN)
    for request in range(20):
        solo.hear(MALLORY.peer_id, Range(request, OPEN.cid, (event.block,), more=True))
    assert not solo.delivered
    assert not solo.sent


def test_a_range_with_events_of_another_topic_is_refused() -> None:
    other = topic_of(ALICE, name="other")
    solo = member()
    mark = MarkState(BOB.peer_id, EPOCH, 0, 3, None)
    solo.hear(ALICE.peer_id, FrontierPage(OPEN.cid, (mark,), answer=False))
    solo.advance(5.0)
    (fetch,) = solo.sent_to(ALICE.peer_id, FetchRange)
    block = event_of(BOB, other).block
    solo.hear(ALICE.peer_id, Range(fetch.request, OPEN.cid, (block,), more=False))
    assert not solo.delivered
    assert solo.reasons() == ["wrong_topic"]


@pytest.mark.parametrize(
    "answer",
    [
        Peers(2, tuple(Contact(peer(f"stranger {number}")) for number in range(20))),
        Stored(2, (OPEN.cid,)),
        BlockFound(2, OPEN.block, ()),
        PointerFound(2, (b"pointer",), ()),
        KeysDiffer(2, 0, 1, (), ()),
    ],
    ids=lambda answer: type(answer).__name__,
)
def test_an_unsolicited_answer_changes_nothing(answer: Message) -> None:
    """Whatever its number: only a peer that was asked this very question is heard."""
    solo = member()
    before = solo.node.footprint()
    for request in range(0, 200_000, 101):
        solo.hear(MALLORY.peer_id, msgspec.structs.replace(answer, request=request))
    after = solo.node.footprint()
    after["dht_contacts"] -= 1  # Mallory herself spoke to us.
    assert after == before
    assert not [m for _, m in solo.sent if not isinstance(m, (Status, FrontierPage))]


def test_another_peers_answer_to_our_question_is_not_heard() -> None:
    solo = Solo(contacts=(ALICE.peer_id,)).start()
    asked = [(to, m) for to, m in solo.sent if hasattr(m, "request")]
    assert asked
    forged = tuple(Contact(peer(f"stranger {number}")) for number in range(5))
    for _, question in asked:
        solo.hear(MALLORY.peer_id, Peers(question.request, forged))
    assert not {to for to, _ in solo.sent} & {contact.peer for contact in forged}


# Flow control.


def test_credit_beyond_all_bounds_is_no_credit() -> None:
    """Credits overflow: a neighbour gets a window and what it may owe, whatever it says."""
    window = 20_000
    solo, topic = root_with_children(
        "greedy", parameters=Parameters(window_bytes=window, stall_s=0.0)
    )
    greedy = peer("greedy")
    for _ in range(10):
        solo.hear(greedy, Credit(topic, COUNT_MAX))
    for _ in range(100):
        solo.publish(topic)
    sizes = [size_of(each.block) for each in solo.sent_to(greedy, EventMessage)]
    most = window * (1 + DEBT_WINDOWS)
    assert most <= sum(sizes) < most + sizes[-1]
    assert solo.topic(topic).overlay.links[greedy].credit == window - sum(sizes)


def test_credit_from_a_stranger_is_worth_nothing() -> None:
    solo, topic = root_with_children()
    solo.hear(MALLORY.peer_id, Credit(topic, 1000))
    solo.publish(topic)
    assert not solo.sent_to(MALLORY.peer_id, EventMessage)
    assert not solo.topic(topic).overlay.links


def test_a_neighbour_that_never_gives_credit_back_costs_no_memory() -> None:
    """Design 6: memory never grows with a slow peer; it is left to recover by history."""
    parameters = Parameters(window_bytes=200_000, stall_s=0.0)
    solo, topic = root_with_children("slow", parameters=parameters)
    for _ in range(1000):
        solo.publish(topic)
    footprint = solo.node.footprint()
    for _ in range(1000):
        solo.publish(topic)
    after = solo.node.footprint()
    assert {kind for kind in after if after[kind] > footprint[kind]} <= {"timers", "dht_held"}
    assert solo.topic(topic).overlay.links[peer("slow")].behind
    solo.hear(peer("slow"), Credit(topic, 200_000 * (1 + DEBT_WINDOWS)))
    assert solo.sent_to(peer("slow"), FrontierPage), "it is told to compare"


def test_nobody_is_to_blame_for_what_cannot_be_its_fault() -> None:
    """Late answers, talk of a topic that we left: no verdict, only silence or a farewell."""
    solo = member()
    solo.hear(
        BOB.peer_id,
        Status(cid_of(b"left long ago"), EMPTY_DIGEST, (BOB.peer_id,), (), answer=True),
        Leave(cid_of(b"left long ago")),
        Range(1, cid_of(b"left long ago"), (), more=False),
    )
    assert solo.sent_to(BOB.peer_id, Leave) == [Leave(cid_of(b"left long ago"))]
    assert not [record for record in solo.records if isinstance(record, trace.Rejected)]


def test_a_stranger_makes_itself_a_lazy_neighbour_and_is_not_relied_on() -> None:
    """It says that it is a member, and the node compares with it: that serves the node little."""
    solo = member()
    said = Status(OPEN.cid, EMPTY_DIGEST, (MALLORY.peer_id, ALICE.peer_id), (), answer=True)
    solo.hear(MALLORY.peer_id, said)
    solo.advance(30.0)
    assert MALLORY.peer_id in solo.topic(OPEN.cid).heartbeat.lazy
    assert set(solo.node.relied_on()) == {ALICE.peer_id}
    assert MALLORY.peer_id in solo.node.neighbours()
