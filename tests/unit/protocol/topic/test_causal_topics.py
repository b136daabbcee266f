"""Causal topics on whole nodes: links, merges, restarts, requests, and hostile parents."""

from functools import partial

import pytest

from pulsarcast.model import trace
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, cid_of
from pulsarcast.model.topics import DeliveryOrder, Mark, Retention, TopicSettings
from pulsarcast.protocol.following.following import OWN_AWAITED_S, OWN_LOOK_S
from pulsarcast.protocol.inputs import Publish
from pulsarcast.protocol.messages import (
    EventMessage,
    FetchRange,
    FrontierPage,
    Message,
    Range,
    RequestAnswered,
    RequestToPublish,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import Block, LoadBlock, MarkState
from pulsarcast.protocol.topic.recovery import PEER_SHARE, WANTS_MAX
from tests.support.lab import Lab
from tests.support.people import (
    ALICE,
    BOB,
    CAROL,
    CREATED_US,
    EPOCH,
    MALLORY,
    event_for,
    event_of,
    following,
    identity,
    mark_of,
    request_of,
    topic_of,
)
from tests.support.solo import Parent, Solo, below

CAUSAL = TopicSettings(open=True, order=DeliveryOrder.CAUSAL)
TOPIC = topic_of(ALICE, CAUSAL)


def member(*, parameters: Parameters | None = None, marks: tuple[MarkState, ...] = ()) -> Solo:
    """A subscriber below a scripted parent."""
    node = below(Parent("upstream", [TOPIC.block], marks=marks), parameters=parameters)
    node.subscribe(TOPIC.topic)
    return node


UPSTREAM = identity("upstream").peer_id


def hear(node: Solo, *events: EventDescriptor) -> None:
    node.hear(UPSTREAM, *(EventMessage(event.block, 1) for event in events))


def published(node: Solo) -> list[EventDescriptor]:
    return [event for event in node.delivered if event.publisher == node.me]


# Linking.


def test_an_event_links_to_all_heads_that_its_publisher_has_delivered() -> None:
    node = member()
    first, second = event_of(ALICE, TOPIC), event_of(BOB, TOPIC)
    third = event_of(CAROL, TOPIC, **following(second))
    hear(node, first, second, third)
    node.publish(TOPIC.topic)
    node.publish(TOPIC.topic)
    ours, next_one = published(node)
    assert set(ours.parents) == {first.cid, third.cid}
    assert next_one.parents == (ours.cid,)
    assert next_one.marks == (mark_of(ours),)


def test_nobody_links_to_what_it_has_only_received() -> None:
    node = member()
    missing = event_of(ALICE, TOPIC)
    hear(node, event_of(BOB, TOPIC, **following(missing)))
    node.publish(TOPIC.topic)
    assert published(node)[0].parents == ()


def test_who_publishes_from_outside_links_to_its_own_events() -> None:
    lab = Lab(3)
    topic = lab.create(0, CAUSAL)
    first = lab.publish(1, topic)
    second = lab.publish(1, topic)
    assert lab.event(first).parents == ()
    assert lab.event(second).parents == (first,)
    assert lab.event(second).marks == (mark_of(lab.event(first)),)


def test_who_leaves_and_comes_back_still_follows_what_it_said() -> None:
    lab = Lab(3)
    topic = lab.create(0, CAUSAL)
    lab.subscribe([1, 2], topic)
    first = lab.publish(1, topic)
    lab.unsubscribe(1, topic)
    lab.run(40.0)
    lab.subscribe([1], topic)
    second = lab.event(lab.publish(1, topic))
    assert second.sequence.number == 2
    assert second.parents == (first,)
    assert lab.delivered(2, topic) == [first, second.cid]


def outsider_that_subscribes() -> tuple[Solo, EventDescriptor]:
    """It has published, nobody in the topic has got that yet, and now it is a member."""
    node = below(Parent("upstream", [TOPIC.block]))
    node.publish(TOPIC.topic, b"from outside")
    (first,) = [record for record in node.records if isinstance(record, trace.Published)]
    node.subscribe(TOPIC.topic)
    block = node.store.answer(LoadBlock(first.event))
    assert isinstance(block, Block)
    assert block.block is not None
    return node, node.node.decode(block.block)


def test_who_subscribes_is_given_what_it_said_from_outside_before_it_says_more() -> None:
    node, first = outsider_that_subscribes()
    node.publish(TOPIC.topic, b"from inside")
    assert [event.payload for event in node.delivered] == [b"from outside", b"from inside"]
    assert node.delivered[1].parents == (first.cid,)
    assert node.delivered[1].sequence.epoch != first.sequence.epoch


def test_what_nobody_can_deliver_does_not_silence_its_author_for_ever() -> None:
    node, _ = outsider_that_subscribes()
    node.node.handing_in.hand_in_own = lambda event: None  # type: ignore[method-assign]
    node.node.handing_in._late.clear()
    began_s = node.now_s
    node.publish(TOPIC.topic, b"from inside")
    assert node.now_s - began_s == pytest.approx(OWN_AWAITED_S, abs=1.0)
    assert [event.payload for event in node.delivered] == [b"from inside"]


def test_who_was_killed_while_it_waited_for_what_it_said_from_outside_waits_again() -> None:
    node, first = outsider_that_subscribes()
    node.node.handing_in._late.clear()
    assert not node.delivered
    again = Solo(contacts=(UPSTREAM,), store=node.store.copy())
    again.peers[UPSTREAM] = Parent("upstream", [TOPIC.block])
    again.start()
    again.node.handing_in._late.clear()
    again.give(Publish(1, TOPIC.topic, b"from inside"))
    again.advance(OWN_AWAITED_S / 2)
    assert not again.delivered
    hear(again, first)
    again.advance(OWN_AWAITED_S / 2)
    assert [event.payload for event in again.delivered] == [b"from outside", b"from inside"]
    assert again.delivered[1].parents == (first.cid,)


def test_nobody_waits_for_what_it_said_from_outside_once_that_is_retired() -> None:
    node, first = outsider_that_subscribes()
    node.node.handing_in._late.clear()
    node.topic(TOPIC.topic).frontier.retire(node.me, *first.sequence)
    began_s = node.now_s
    node.publish(TOPIC.topic, b"from inside")
    assert node.now_s - began_s == pytest.approx(OWN_LOOK_S)
    assert [event.payload for event in node.delivered] == [b"from inside"]


def test_without_causal_order_nobody_waits_for_what_it_said_from_outside() -> None:
    topic = topic_of(ALICE)
    node = below(Parent("upstream", [topic.block]))
    node.publish(topic.topic, b"from outside")
    node.subscribe(topic.topic)
    node.publish(topic.topic, b"from inside")
    assert [event.payload for event in node.delivered] == [b"from inside"]


# Merges.


def test_heads_that_do_not_fit_are_merged_and_none_is_dropped() -> None:
    node = member(parameters=Parameters(barrier_max=3))
    heads = [event_of(identity(f"p{n}"), TOPIC) for n in range(8)]
    hear(node, *heads)
    node.publish(TOPIC.topic, b"at last")
    *merges, said = published(node)
    assert [merge.is_merge for merge in merges] == [True] * len(merges)
    assert (said.is_merge, said.payload) == (False, b"at last")
    assert all(len(event.parents) <= 3 for event in (*merges, said))
    # By hash, the event follows every head.
    by_cid = {event.cid: event for event in (*merges, *heads)}
    past, ahead = set[Cid](), list(said.parents)
    while ahead:
        cid = ahead.pop()
        past.add(cid)
        ahead += by_cid[cid].parents
    assert past >= {head.cid for head in heads}
    assert [event.sequence.number for event in published(node)] == list(range(1, len(merges) + 2))
    records = [record for record in node.records if isinstance(record, trace.Published)]
    assert [record.merge for record in records] == [*(True for _ in merges), False]


def test_a_merge_is_an_event_like_any_other_to_those_who_receive_it() -> None:
    parent = event_of(ALICE, TOPIC)
    merge = event_of(BOB, TOPIC, payload=b"", is_merge=True, **following(parent))
    node = member()
    hear(node, merge, parent)
    assert node.cids() == [parent.cid, merge.cid]
    node.publish(TOPIC.topic)
    assert published(node)[0].parents == (merge.cid,)


# Restarts.


def test_a_killed_node_links_to_what_its_log_holds() -> None:
    node = member()
    first, second = event_of(ALICE, TOPIC), event_of(BOB, TOPIC)
    hear(node, first, second)
    again = Solo(contacts=(UPSTREAM,), store=node.store)
    again.peers[UPSTREAM] = Parent("upstream", [TOPIC.block])
    again.start()
    again.publish(TOPIC.topic)
    (ours,) = [event for event in again.delivered if event.publisher == again.me]
    assert set(ours.parents) == {first.cid, second.cid}
    # What it follows was handed to the application first, though it was not acknowledged before.
    assert again.cids() == [first.cid, second.cid, ours.cid]


def test_who_has_left_a_topic_forgets_its_heads() -> None:
    lab = Lab(3)
    topic = lab.create(0, CAUSAL)
    lab.subscribe([1], topic)
    lab.publish(0, topic)
    assert any(row.table == "head" for row in lab.world.store(1).rows())
    lab.unsubscribe(1, topic)
    lab.run(60.0)
    assert not any(row.table == "head" for row in lab.world.store(1).rows())


def test_a_kill_at_any_moment_leaves_log_and_heads_alike() -> None:
    for delay_s in (0.0, 0.001, 0.004, 0.01, 0.021, 0.05):
        lab = Lab(4, settle_s=5.0)
        topic = lab.create(0, CAUSAL)
        lab.subscribe([1, 2, 3], topic)
        for at in range(12):
            lab.start(at % 3, partial(Publish, topic=topic, payload=b"x"))
        lab.run(delay_s)
        lab.world.kill(1)
        log = lab.log(1, topic)
        followed = {parent for event in log for parent in event.parents}
        heads = {event.cid for event in log} - followed
        rows = [row for row in lab.world.store(1).rows() if row.table == "head"]
        assert {row.value[8:] for row in rows} == heads


# Missing parents.


def test_a_missing_parent_is_asked_for_by_its_mark() -> None:
    node = member()
    parent = event_of(ALICE, TOPIC, 3)
    child = event_of(BOB, TOPIC, **following(parent))
    hear(node, child)
    node.advance(1.0)
    (asked,) = node.said(FetchRange)
    assert (asked.publisher, asked.epoch, asked.first, asked.last) == (ALICE.peer_id, EPOCH, 1, 3)
    events = [event_of(ALICE, TOPIC, number) for number in (1, 2)]
    node.hear(UPSTREAM, _range(asked, *events, parent))
    assert node.cids() == [*(event.cid for event in events), parent.cid, child.cid]


def _range(asked: FetchRange, *events: EventDescriptor) -> Message:
    return Range(asked.request, asked.topic, tuple(event.block for event in events), False)


def test_the_childs_publisher_is_asked_too_since_it_had_the_parent() -> None:
    node = member()
    hear(node, event_of(BOB, TOPIC, **following(event_of(ALICE, TOPIC))))
    for _ in range(10):
        node.advance(1.0)
        asked = [(to, message) for to, message in node.sent if isinstance(message, FetchRange)]
        to, last = asked[-1]
        node.hear(to, Range(last.request, last.topic, (), False))
    assert BOB.peer_id in [to for to, _ in asked]


def test_a_parent_that_everyone_retired_is_not_waited_for() -> None:
    """Nobody has it, nothing of its publisher is behind it, and its publisher calls it retired."""
    topic = topic_of(
        ALICE,
        TopicSettings(open=True, order=DeliveryOrder.CAUSAL, retention=Retention(count=1)),
    )
    upstream = Parent("upstream", [topic.block])
    node = below(upstream)
    node.subscribe(topic.topic)
    child = event_of(CAROL, topic, **following(event_of(BOB, topic, 5)))
    node.hear(UPSTREAM, EventMessage(child.block, 1))
    assert not node.delivered
    gone = MarkState(BOB.peer_id, EPOCH, 5, 5, None, (), 5)
    followed = node.topic(topic.topic)

    def has_nothing(message: Message) -> list[Message]:
        if isinstance(message, FetchRange):
            return [Range(message.request, message.topic, (), False)]
        return upstream(message)

    for peer in (UPSTREAM, ALICE.peer_id, BOB.peer_id, CAROL.peer_id):
        node.peers[peer] = has_nothing
    node.hear(UPSTREAM, FrontierPage(topic.topic, (gone,), answer=False))
    node.advance(10.0)
    assert not node.delivered, "one neighbour's word is not enough"
    node.hear(BOB.peer_id, FrontierPage(topic.topic, (gone,), answer=False))
    node.advance(10.0)
    assert node.cids() == [child.cid]
    retired = [record for record in node.records if isinstance(record, trace.Retired)]
    assert [(record.publisher, record.number) for record in retired] == [(BOB.peer_id, 5)]
    # It was not skipped: whoever names a number does not prove that its publisher gave it.
    assert followed.frontier.high(BOB.peer_id, EPOCH) == 0


# Requests.


def test_a_request_waits_until_what_its_author_had_seen_is_delivered() -> None:
    node = member()
    seen = event_of(ALICE, TOPIC)
    signed = request_of(BOB, TOPIC.topic, after=(seen.cid,), marks=(mark_of(seen),))
    node.hear(BOB.peer_id, RequestToPublish(signed.block, False, 0))
    assert not node.delivered
    hear(node, seen)
    first, second = node.delivered
    assert first.cid == seen.cid
    assert (second.publisher, second.author) == (node.me, BOB.peer_id)
    assert second.parents == (seen.cid,)
    (answer,) = node.sent_to(BOB.peer_id, RequestAnswered)
    assert answer.event == second.cid


def test_an_authors_later_request_does_not_overtake_one_that_waits() -> None:
    node = member()
    seen = event_of(ALICE, TOPIC)
    early = request_of(BOB, TOPIC.topic, 1, after=(seen.cid,), marks=(mark_of(seen),))
    later = request_of(BOB, TOPIC.topic, 2)
    for signed in (early, later):
        node.hear(BOB.peer_id, RequestToPublish(signed.block, False, 0))
    assert not node.delivered
    hear(node, seen)
    requested = [
        event.request.sequence.number for event in node.delivered if event.author != event.publisher
    ]
    assert requested == [1, 2]


def test_what_a_request_waits_for_is_fetched() -> None:
    node = member()
    seen = event_of(ALICE, TOPIC)
    signed = request_of(BOB, TOPIC.topic, after=(seen.cid,), marks=(mark_of(seen),))
    node.hear(BOB.peer_id, RequestToPublish(signed.block, False, 0))
    node.advance(1.0)
    asked = node.said(FetchRange)[0]
    assert (asked.publisher, asked.last) == (ALICE.peer_id, 1)


def test_a_request_that_expires_while_it_waits_is_refused_in_its_turn() -> None:
    settings = TopicSettings(
        order=DeliveryOrder.CAUSAL,
        publishers=(ALICE.peer_id, identity("victim").peer_id),
    )
    topic = topic_of(ALICE, settings)
    node = below(Parent("upstream", [topic.block]))
    node.subscribe(topic.topic)
    seen = event_of(ALICE, topic)
    soon = CREATED_US + 50_000_000
    short, patient = (
        request_of(who, topic.topic, expires=expires, after=(seen.cid,), marks=(mark_of(seen),))
        for who, expires in ((BOB, soon), (CAROL, None))
    )
    for signed in (short, patient):
        node.hear(signed.request.author, RequestToPublish(signed.block, False, 0))
    node.advance(100.0)
    assert not node.said(RequestAnswered)
    hear(node, seen)
    (refused,) = node.sent_to(BOB.peer_id, RequestAnswered)
    assert refused.request_id == short.request_id
    assert (refused.event, refused.message) == (None, "the request has expired")
    (answer,) = node.sent_to(CAROL.peer_id, RequestAnswered)
    assert node.cids() == [seen.cid, answer.event]


def test_a_request_that_another_publisher_took_while_it_waited_behind_is_answered_once() -> None:
    node = member()
    seen = event_of(ALICE, TOPIC)
    signed = request_of(BOB, TOPIC.topic, after=(seen.cid,), marks=(mark_of(seen),))
    node.hear(BOB.peer_id, RequestToPublish(signed.block, False, 0))
    carols = event_for(CAROL, signed, TOPIC, **following(seen))
    hear(node, carols, seen)
    node.advance(60.0)
    assert node.cids() == [seen.cid, carols.cid]
    (answer,) = node.sent_to(BOB.peer_id, RequestAnswered)
    assert answer.event == carols.cid


def test_a_request_without_the_marks_that_its_topic_asks_for_is_refused() -> None:
    """Published all the same, nobody would take it, and the numbering would have a gap for ever."""
    node = member()
    node.hear(
        BOB.peer_id,
        RequestToPublish(request_of(BOB, TOPIC.topic, after=(cid_of(b"x"),)).block, False, 0),
    )
    (answer,) = node.sent_to(BOB.peer_id, RequestAnswered)
    assert "marks" in answer.message
    assert not node.delivered


def test_who_may_only_request_asks_after_all_that_it_has_seen() -> None:
    lab = Lab(3)
    settings = TopicSettings(order=DeliveryOrder.CAUSAL, publishers=(lab.peer(0), lab.peer(1)))
    topic = lab.create(0, settings)
    lab.subscribe([0, 1, 2], topic)
    seen = lab.publish(1, topic)
    asked = lab.event(lab.publish(2, topic))
    assert asked.author == lab.peer(2)
    assert asked.request.after == (seen,)
    assert asked.request.marks == (mark_of(lab.event(seen)),)
    assert asked.parents == (seen,)


# Liars.


def test_a_lie_about_a_parent_is_rejected_and_takes_its_number() -> None:
    node = member()
    known = event_of(ALICE, TOPIC)
    lie = event_of(MALLORY, TOPIC, parents=(known.cid,), marks=(Mark(BOB.peer_id, EPOCH, 1),))
    hear(node, known, lie)
    assert node.cids() == [known.cid]
    assert node.reasons() == ["foreign_parent"]
    # Who did not know better links to it: that must not wait for ever.
    child = event_of(CAROL, TOPIC, **following(lie))
    hear(node, child)
    assert node.cids() == [known.cid, child.cid]


def test_a_lie_is_found_also_where_the_parent_comes_later() -> None:
    node = member()
    known = event_of(ALICE, TOPIC, 2)
    lie = event_of(MALLORY, TOPIC, parents=(known.cid,), marks=(Mark(ALICE.peer_id, EPOCH, 1),))
    hear(node, lie, known, event_of(ALICE, TOPIC, 1))
    assert lie.cid not in node.cids()
    assert "foreign_parent" in node.reasons()


def test_one_who_names_parents_without_end_leaves_recovery_to_the_others() -> None:
    node = member()
    for number in range(1, 40):
        ghosts = sorted(cid_of(b"%d/%d" % (number, n)) for n in range(64))
        marks = [Mark(identity("a ghost").peer_id, 64 * number + n, 7) for n in range(64)]
        hear(node, event_of(MALLORY, TOPIC, number, parents=ghosts, marks=marks))
    topic = node.topic(TOPIC.topic)
    # And one for its own numbering, of which the first are missing, on the sender's account.
    assert len(topic.work.recovery) <= WANTS_MAX // PEER_SHARE + 1
    parent = event_of(ALICE, TOPIC)
    hear(node, event_of(BOB, TOPIC, **following(parent)))
    node.advance(1.0)
    assert ALICE.peer_id in [message.publisher for message in node.said(FetchRange)]
    hear(node, parent)
    assert len(node.delivered) == 2
