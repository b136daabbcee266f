"""Publishing from outside: events handed in by peers that do not follow the topic (promise 1)."""

import pytest

from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import PeerId, cid_of
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.dissemination.member_search import REFERRALS_MAX
from pulsarcast.protocol.inputs import PeerLost, PeerUp, Publish
from pulsarcast.protocol.messages import (
    Contact,
    EventMessage,
    FetchRange,
    FrontierPage,
    Join,
    JoinAccepted,
    JoinReferred,
    Leave,
    Message,
    Range,
    Role,
    StoreBlocks,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.publishing import outside
from pulsarcast.protocol.publishing.outside import OutsidePublishing
from pulsarcast.protocol.store import DropState, DropTopic, MarkState
from tests.support.lab import Lab
from tests.support.parts import Core
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
)
from tests.support.solo import EMPTY_DIGEST, Parent, Solo, below

TOPIC = topic_of(ALICE)
OFFER_S = 2 * Parameters().offer_delay_s


def visitor() -> Solo:
    """A node that knows Alice, who keeps the topic's descriptor and answers no knock by herself."""
    return below(Parent("alice", [TOPIC.block, meta_of(ALICE).block], takes_in=False))


def published(solo: Solo) -> MarkState:
    """Publish without following, and say what is on offer."""
    solo.give(Publish(99, TOPIC.cid, b"from outside"))
    solo.advance(1.0)
    assert solo.replies[99].refusal is None
    (join,) = solo.sent_to(ALICE.peer_id, Join)
    assert join.role is Role.VISITOR
    solo.hear(ALICE.peer_id, JoinAccepted(TOPIC.cid, join.attempt, (), (), EMPTY_DIGEST))
    solo.advance(1.0)
    (page,) = solo.sent_to(ALICE.peer_id, FrontierPage)
    (mark,) = page.marks
    return mark


def member_shows(solo: Solo, who: PeerId, *marks: MarkState) -> None:
    solo.hear(who, FrontierPage(TOPIC.cid, marks, answer=False))


def test_a_publisher_that_is_not_subscribed_reaches_every_subscriber() -> None:
    """Design 6: publishing works whether or not one is subscribed."""
    lab = Lab(12)
    topic = lab.create(0)
    members = [1, 2, 3, 4, 5]
    lab.subscribe(members, topic)
    cids = [lab.publish(9, topic, b"%d" % number) for number in range(5)]
    lab.run(30.0)
    for index in members:
        assert sorted(lab.delivered(index, topic)) == sorted(cids)
    assert topic not in lab.world.node(9).topics
    assert lab.world.node(9).footprint()["offers"] == 0
    assert not [row for row in lab.world.store(9).rows() if row.table == "offer"]


def test_a_publisher_that_is_not_subscribed_is_heard_at_once() -> None:
    """Whom it found first it gives the next event too, in one message."""
    lab = Lab(12)
    topic = lab.create(0)
    members = [1, 2, 3, 4, 5]
    lab.subscribe(members, topic)
    for number in range(20):
        knocks = len(lab.messages(Join, sender=9))
        given = len(lab.messages(EventMessage, sender=9))
        cid = lab.publish(9, topic, b"%d" % number, settle_s=0.5)
        for index in members:
            assert lab.delivered(index, topic)[-1] == cid
        assert len(lab.messages(EventMessage, sender=9)) == given + 1
        assert number == 0 or len(lab.messages(Join, sender=9)) == knocks
    assert not lab.messages(Range, sender=9), "nobody had to fetch"
    lab.run(30.0)
    assert lab.world.node(9).footprint()["offers"] == 0


def test_a_publisher_that_is_not_subscribed_finds_another_member_where_one_has_left() -> None:
    lab = Lab(12)
    topic = lab.create(0)
    members = [1, 2, 3]
    lab.subscribe(members, topic)
    lab.publish(9, topic, b"first")
    for gone in members[:2]:
        lab.unsubscribe(gone, topic)
        cid = lab.publish(9, topic, b"after %d" % gone, settle_s=3.0)
        assert cid in lab.delivered(3, topic), gone


def test_what_is_replicated_reaches_the_subscribers_though_its_publisher_died() -> None:
    """Promise 1: the replicas hand it in."""
    lab = Lab(12)
    topic = lab.create(0)
    lab.subscribe([1, 2, 3], topic)
    replies = lab.start(9, lambda call: Publish(call, topic, b"last words", replicated=True))

    def is_stored() -> bool:
        return len(lab.messages(StoreBlocks, sender=9)) >= 3

    assert lab.world.run_until(is_stored, lab.world.now + 10, check_every_s=0.001)
    lab.run(0.03)
    lab.world.lose(9)
    lab.run(120.0)
    assert not replies, "or it lived long enough to hand it in itself"
    delivered = [lab.delivered(index, topic) for index in (1, 2, 3)]
    assert [len(each) for each in delivered] == [1, 1, 1]


def test_an_offer_survives_a_crash() -> None:
    """`accepted` is on our disk: it reaches the subscribers once we are back (promise 1)."""
    lab = Lab(12)
    topic = lab.create(0)
    lab.subscribe([1, 2], topic)
    lab.publish(9, topic, b"so that it knows the topic")
    lab.world.cut([[9]])
    reply = lab.ask(9, lambda call: Publish(call, topic, b"durable"))
    assert reply.refusal is None
    lab.world.kill(9)
    lab.world.heal()
    lab.world.restart(9)
    lab.run(300.0)
    assert reply.cid in lab.delivered(2, topic)


def test_a_visitor_shows_what_it_has_and_gives_what_is_asked() -> None:
    solo = visitor()
    mark = published(solo)
    assert (mark.publisher, mark.floor, mark.high) == (solo.me, 0, 1)
    fetch = FetchRange(5, TOPIC.cid, solo.me, mark.epoch, 1, 1)
    solo.hear(ALICE.peer_id, fetch)
    (answer,) = solo.sent_to(ALICE.peer_id, Range)
    assert (answer.request, len(answer.blocks), answer.more) == (5, 1, False)
    assert solo.node.footprint()["offers"] == 1, "not before the member holds it"
    member_shows(solo, ALICE.peer_id, mark)
    assert solo.node.footprint()["offers"] == 0
    solo.advance(600.0)
    assert len(solo.sent_to(ALICE.peer_id, Join)) == 1, "the visit is over"


def test_who_lets_a_visitor_in_is_given_the_event_before_it_is_shown() -> None:
    solo = visitor()
    published(solo)
    said = [type(message) for to, message in solo.sent if to == ALICE.peer_id]
    assert said.index(EventMessage) < said.index(FrontierPage)
    (given,) = solo.sent_to(ALICE.peer_id, EventMessage)
    assert given.hops == 0


def test_a_member_that_says_nothing_is_given_no_more_than_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No credit flows between us: it fetches what is beyond as fast as it can take it."""
    monkeypatch.setattr(outside, "OFFERS_MAX", 5)
    solo = visitor()
    published(solo)
    for number in range(20):
        solo.give(Publish(100 + number, TOPIC.cid, b"%d" % number))
    assert len(solo.sent_to(ALICE.peer_id, EventMessage)) == 5
    assert solo.node.footprint()["offers"] == 21


def test_who_has_left_the_topic_sends_a_visitor_away() -> None:
    solo = visitor()
    member_shows(solo, ALICE.peer_id, published(solo))
    solo.hear(MALLORY.peer_id, Leave(TOPIC.cid))
    solo.give(Publish(100, TOPIC.cid, b"from outside"))
    assert len(solo.sent_to(ALICE.peer_id, EventMessage)) == 2, "a stranger's word is nothing"
    solo.hear(ALICE.peer_id, Leave(TOPIC.cid))
    solo.advance(0.1)
    assert len(solo.sent_to(ALICE.peer_id, Join)) == 2
    solo.give(Publish(101, TOPIC.cid, b"from outside"))
    assert len(solo.sent_to(ALICE.peer_id, EventMessage)) == 2, "nobody has let us in yet"
    solo.hear(MALLORY.peer_id, EventMessage(event_of(BOB, TOPIC).block, 0))
    assert solo.sent_to(MALLORY.peer_id, Leave), "nor are we a member ourselves"


def test_a_member_that_does_not_answer_is_not_the_only_one_that_is_tried() -> None:
    solo = visitor()
    solo.give(Publish(99, TOPIC.cid, b"from outside"))
    solo.advance(120.0)
    assert len(solo.said(Join)) > 1
    assert solo.node.footprint()["offers"] == 1


@pytest.mark.parametrize(
    ("lost", "joins"), [(ALICE, 2), (MALLORY, 1)], ids=["the member", "a stranger"]
)
def test_what_is_left_to_hand_in_goes_elsewhere_only_where_its_member_is_lost(
    lost: Identity, joins: int
) -> None:
    solo = visitor()
    mark = published(solo)
    member_shows(solo, ALICE.peer_id, mark._replace(high=0))
    solo.give(PeerLost(lost.peer_id))
    solo.give(PeerUp(Contact(ALICE.peer_id), reach=Reach.PUBLIC))
    solo.advance(10.0)
    assert len(solo.sent_to(ALICE.peer_id, Join)) == joins
    assert len(solo.sent_to(ALICE.peer_id, FrontierPage)) == 3 - joins


def test_a_strangers_word_does_not_end_a_visit() -> None:
    """Only the member that we showed our events to can say that it holds them."""
    solo = visitor()
    mark = published(solo)
    member_shows(solo, MALLORY.peer_id, mark._replace(high=2**62, cid=None))
    assert solo.node.footprint()["offers"] == 1
    assert [row for row in solo.store.rows() if row.table == "offer"]


def test_a_lying_member_can_end_a_visit_and_the_replicas_remain() -> None:
    """Said aloud: whom we found may lie. Its event is still offered by its DHT replicas."""
    solo = visitor()
    mark = published(solo)
    member_shows(solo, ALICE.peer_id, mark._replace(high=2**62, cid=None))
    assert solo.node.footprint()["offers"] == 0
    assert solo.said(StoreBlocks), "the replicas have it and will offer it in their turn"


def replica_of(solo: Solo, *events: EventDescriptor) -> None:
    blocks = tuple(event.block for event in events)
    solo.hear(BOB.peer_id, StoreBlocks(2, blocks))


def test_a_replica_leaves_it_to_the_publisher_first() -> None:
    solo = visitor()
    replica_of(solo, event_of(BOB, TOPIC))
    solo.advance(Parameters().offer_delay_s / 2)
    assert not solo.said(Join)
    solo.advance(OFFER_S)
    assert solo.said(Join)


def test_an_event_of_ours_does_not_wait_with_a_replica() -> None:
    solo = visitor()
    replica_of(solo, event_of(BOB, TOPIC))
    solo.advance(0.1)
    assert not solo.said(Join)
    solo.give(Publish(99, TOPIC.cid, b"from outside"))
    solo.advance(0.1)
    assert solo.said(Join)


def test_a_replica_gives_up_in_the_end() -> None:
    """Others keep it as well, and range repair shows it to new ones: memory must not wait."""
    solo = visitor()
    replica_of(solo, event_of(BOB, TOPIC))
    solo.advance(3600.0)
    assert solo.node.footprint()["offers"] == 0


def test_offers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "OFFERS_MAX", 20)
    solo = visitor()
    for number in range(1, 100):
        replica_of(solo, event_of(BOB, TOPIC, number))
    assert solo.node.footprint()["offers"] == 20


def test_what_strangers_store_here_does_not_keep_us_from_handing_in_our_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """We acknowledged it: the topic that we have had a replica for the longest gives way."""
    monkeypatch.setattr(outside, "TOPICS_MAX", 3)
    others = [topic_of(BOB, name=f"other {number}") for number in range(4)]
    blocks = [TOPIC.block, *(topic.block for topic in others)]
    solo = below(Parent("alice", blocks, takes_in=False))
    for topic in others:
        replica_of(solo, event_of(BOB, topic))
    assert solo.node.footprint()["offers"] == 3, "a stranger's takes nobody's place"
    mark = published(solo)
    assert mark.publisher == solo.me
    assert solo.node.footprint()["offers"] == 3
    solo.advance(OFFER_S)
    knocked = {join.topic for join in solo.said(Join)}
    assert knocked == {TOPIC.cid, others[1].cid, others[2].cid}
    member_shows(solo, ALICE.peer_id, mark)
    assert not [row for row in solo.store.rows() if row.table == "offer"]


def test_of_our_own_events_none_is_left_out_in_however_many_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outside, "TOPICS_MAX", 3)
    topics = [topic_of(BOB, name=f"other {number}") for number in range(5)]
    solo = below(Parent("alice", [topic.block for topic in topics], takes_in=False))
    for call, topic in enumerate(topics):
        solo.give(Publish(100 + call, topic.cid, b"from outside"))
    solo.advance(1.0)
    assert {join.topic for join in solo.said(Join)} == {topic.cid for topic in topics}
    assert all(solo.node.outside.has_own(topic.cid) for topic in topics)


def test_a_question_of_ours_does_not_give_way_and_takes_the_place_of_a_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Left unasked, we would take a new epoch for want of an answer."""
    monkeypatch.setattr(outside, "TOPICS_MAX", 1)
    other, third = (topic_of(BOB, name=name) for name in ("other", "third"))
    solo = below(Parent("alice", [TOPIC.block, other.block, third.block], takes_in=False))
    replica_of(solo, event_of(BOB, other))
    solo.node.outside.ask(third.cid, ALICE.peer_id, EPOCH, lambda high: None)
    assert list(solo.node.outside._offers) == [third.cid]
    solo.give(Publish(99, TOPIC.cid, b"from outside"))
    assert list(solo.node.outside._offers) == [third.cid, TOPIC.cid]


def test_gaps_in_what_is_offered_are_shown_as_gaps() -> None:
    solo = visitor()
    replica_of(solo, *(event_of(BOB, TOPIC, number) for number in (3, 4, 7)))
    solo.advance(OFFER_S)
    join = solo.said(Join)[-1]
    solo.hear(ALICE.peer_id, JoinAccepted(TOPIC.cid, join.attempt, (), (), EMPTY_DIGEST))
    solo.advance(1.0)
    (page,) = solo.sent_to(ALICE.peer_id, FrontierPage)
    (mark,) = page.marks
    assert (mark.epoch, mark.floor, mark.high, mark.beyond) == (EPOCH, 2, 4, (7,))


def test_referrals_in_circles_come_to_an_end() -> None:
    solo = visitor()
    knocks = 0

    def answers(message: Message) -> list[Message]:
        nonlocal knocks
        if isinstance(message, Join):
            knocks += 1
            contact = Contact(CAROL.peer_id if knocks % 2 else MALLORY.peer_id)
            return [JoinReferred(TOPIC.cid, message.attempt, contact, handed_down=True)]
        return []

    for liar in (MALLORY, CAROL):
        solo.peers[liar.peer_id] = answers
    solo.give(Publish(99, TOPIC.cid, b"from outside"))
    solo.advance(1.0)
    (join,) = solo.sent_to(ALICE.peer_id, Join)
    first = Contact(MALLORY.peer_id)
    solo.hear(ALICE.peer_id, JoinReferred(TOPIC.cid, join.attempt, first, handed_down=True))
    assert knocks <= REFERRALS_MAX
    solo.advance(600.0)
    assert knocks <= 20 * REFERRALS_MAX


def test_a_topic_that_we_come_to_follow_gets_what_we_had_for_it() -> None:
    lab = Lab(10)
    topic = lab.create(0)
    lab.subscribe([1, 2], topic)
    cid = lab.publish(9, topic, b"before I joined", settle_s=0.0)
    lab.subscribe([9], topic)
    lab.run(60.0)
    assert lab.delivered(1, topic) == [cid]
    assert lab.world.node(9).footprint()["offers"] == 0


def test_a_peer_that_is_told_of_itself_does_not_knock_at_its_own_door() -> None:
    solo = visitor()
    solo.give(Publish(99, TOPIC.cid, b"from outside"))
    solo.advance(1.0)
    (join,) = solo.sent_to(ALICE.peer_id, Join)
    ourselves = JoinReferred(TOPIC.cid, join.attempt, Contact(solo.me), handed_down=True)
    solo.hear(ALICE.peer_id, ourselves)  # `Solo` asserts that nobody sends to itself.
    stranger = JoinReferred(TOPIC.cid, join.attempt, Contact(peer("nobody")), handed_down=True)
    solo.hear(ALICE.peer_id, stranger)
    (knock,) = solo.sent_to(peer("nobody"), Join)
    assert knock == join


def test_a_publisher_gives_again_what_it_has_handed_in_before() -> None:
    """Promise 1: its disk is whole, so what the member that took it has lost is not lost."""
    solo = visitor()
    mark = published(solo)
    member_shows(solo, ALICE.peer_id, mark)
    solo.advance(1.0)
    assert solo.node.footprint()["offers"] == 0
    ask = FetchRange(7, TOPIC.cid, mark.publisher, mark.epoch, 1, mark.high)
    solo.hear(BOB.peer_id, ask)
    (given,) = solo.sent_to(BOB.peer_id, Range)
    assert given.request == 7
    assert [len(block) > 0 for block in given.blocks] == [True]
    assert not given.more


def test_what_we_have_to_hand_in_is_given_though_our_log_forgot_it() -> None:
    """Whoever followed the topic in between forgot its log when it left, and its offers stayed."""
    solo = visitor()
    mark = published(solo)
    solo.store.apply([DropTopic(TOPIC.cid)])
    solo.hear(ALICE.peer_id, FetchRange(5, TOPIC.cid, solo.me, mark.epoch, 1, mark.high))
    (answer,) = solo.sent_to(ALICE.peer_id, Range)
    assert [cid_of(block) for block in answer.blocks] == [mark.cid]


def test_a_publisher_that_left_still_says_how_far_its_numbering_is_retired() -> None:
    """Nobody else can say it alone, and members that lost their disks would wait for ever."""
    solo = visitor()
    mark = published(solo)
    solo.node.outside.remember(TOPIC.cid, [mark._replace(floor=9, high=9, retired=9)])
    for number in (8, 12):
        event = event_of(solo.identity, TOPIC, number, epoch=mark.epoch)
        solo.node.outside.offer(event, ALICE.peer_id, own=True)
    # It cannot call retired what it offers itself.
    assert [shown.retired for shown in offered(solo)] == [mark.floor]
    member_shows(solo, ALICE.peer_id, mark._replace(high=8))
    assert [(shown.floor, shown.retired) for shown in offered(solo)] == [(11, 9)]


def offered(solo: Solo) -> tuple[MarkState, ...]:
    """What the next visit shows."""
    before = len(solo.sent_to(ALICE.peer_id, FrontierPage))
    for _ in range(100):
        solo.advance(1.0)
        for join in solo.sent_to(ALICE.peer_id, Join)[-1:]:
            solo.hear(ALICE.peer_id, JoinAccepted(TOPIC.cid, join.attempt, (), (), EMPTY_DIGEST))
        pages = solo.sent_to(ALICE.peer_id, FrontierPage)
        if len(pages) > before:
            return pages[-1].marks
    raise AssertionError("no visit")


@pytest.mark.parametrize("is_let_in", [False, True])
def test_nobody_lets_us_in_at_whose_door_we_did_not_knock(is_let_in: bool) -> None:
    """A stranger that says so, and then that it has everything, would end our event's way."""
    solo = visitor()
    solo.give(Publish(99, TOPIC.cid, b"from outside"))
    solo.advance(1.0)
    (join,) = solo.sent_to(ALICE.peer_id, Join)
    if is_let_in:
        solo.hear(ALICE.peer_id, JoinAccepted(TOPIC.cid, join.attempt, (), (), EMPTY_DIGEST))
    for attempt in (0, join.attempt):
        solo.hear(
            MALLORY.peer_id,
            JoinReferred(TOPIC.cid, attempt, Contact(CAROL.peer_id), handed_down=False),
            JoinAccepted(TOPIC.cid, attempt, (), (), EMPTY_DIGEST),
        )
    solo.advance(1.0)
    ((epoch, last),) = [solo.node.numberings.last_of(TOPIC.cid) or (0, 0)]
    all_of_it = MarkState(solo.me, epoch, 0, last, None)
    solo.hear(MALLORY.peer_id, FrontierPage(TOPIC.cid, (all_of_it,), answer=False))
    assert not solo.sent_to(MALLORY.peer_id, EventMessage)
    assert not solo.sent_to(CAROL.peer_id, Join)
    assert solo.node.outside.has_own(TOPIC.cid)
    assert [row for row in solo.store.rows() if row.table == "offer"]


def test_replicas_of_others_are_offered_up_to_a_bound_but_own_events_always(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outside, "OFFERS_MAX", 2)
    core = Core()
    part = OutsidePublishing(core.context, core.dht)
    for number in (1, 2, 3):
        part.offer(event_of(BOB, TOPIC, number), ALICE.peer_id)
    assert len(part) == 2
    part.offer(event_of(ALICE, TOPIC, 1), ALICE.peer_id, own=True)
    assert len(part) == 3
    assert part.has_own(TOPIC.cid)


def test_an_own_event_goes_to_the_first_member_and_is_dropped_once_that_one_shows_it() -> None:
    core = Core()
    core.network.known = [BOB.peer_id]
    part = OutsidePublishing(core.context, core.dht)
    event = event_of(ALICE, TOPIC, 1)
    part.offer(event, BOB.peer_id, own=True)
    core.fire()
    ((_, join),) = core.sent()
    assert isinstance(join, Join)
    accepted = JoinAccepted(TOPIC.cid, join.attempt, (BOB.peer_id,), (), EMPTY_DIGEST)
    part.accepted(CAROL.peer_id, accepted)
    assert core.sent() == [], "another peer's answer counts for nothing"
    part.accepted(BOB.peer_id, accepted)
    assert core.sent() == [(BOB.peer_id, EventMessage(event.block, 0))]
    core.fire()
    page = FrontierPage(
        TOPIC.cid, (MarkState(ALICE.peer_id, EPOCH, 0, 1, event.cid),), answer=False
    )
    part.receive_page(CAROL.peer_id, page)
    assert len(part) == 1
    part.receive_page(BOB.peer_id, page)
    assert len(part) == 0
    assert core.sync() == [DropState("offer", event.cid)]
