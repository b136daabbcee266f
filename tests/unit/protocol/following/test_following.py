"""Following: coming, going and coming again (design 6)."""

from collections.abc import Callable
from functools import partial
from typing import cast

import pytest

from pulsarcast.model import trace
from pulsarcast.model.events import decode_request
from pulsarcast.model.ids import Cid, cid_of
from pulsarcast.model.topics import (
    DeliveryOrder,
    Mark,
    TopicDescriptor,
    TopicSettings,
    create_topic,
)
from pulsarcast.protocol.commands.commands import STOPPING
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.effects import Effect, Load, Persist, Reply, Send, Trace
from pulsarcast.protocol.following import descriptors as descriptors_module
from pulsarcast.protocol.inputs import (
    Acknowledge,
    Command,
    Loaded,
    Now,
    Persisted,
    Publish,
    Stop,
    Subscribe,
    Unsubscribe,
)
from pulsarcast.protocol.messages import (
    EventMessage,
    FetchRange,
    Join,
    JoinRefused,
    Range,
    RequestAnswered,
    RequestToPublish,
    Role,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import Block, LoadBlock, MarkState
from pulsarcast.protocol.topic.versions import Versions
from tests.support.lab import Lab
from tests.support.people import (
    ALICE,
    BOB,
    CREATED_US,
    EPOCH,
    MALLORY,
    event_of,
    meta_of,
    topic_of,
    unordered,
    version_of,
)
from tests.support.solo import Parent, Solo, below, start_at

NARROW = Parameters(fanout=2)
HAND_OVER_S = Parameters().handover_timeout_s
NOW = Now(1.0, CREATED_US)


def inner_node(lab: Lab, topic: Cid, members: list[int]) -> int:
    """A member that has both a parent and children."""
    for index in members:
        view = lab.world.node(index).trees()[topic]
        if view.parent is not None and view.children:
            return index
    raise AssertionError("the tree has no inner node")


def test_whoever_subscribes_again_right_after_leaving_is_subscribed() -> None:
    """The reply says so: then events must come, though children were still being handed over."""
    lab = Lab(10, parameters=NARROW)
    topic = lab.create(0)
    members = list(range(1, 10))
    lab.subscribe(members, topic)
    inner = inner_node(lab, topic, members)
    lab.start(inner, lambda call: Unsubscribe(call, topic))
    reply = lab.ask(inner, lambda call: Subscribe(call, topic))
    assert reply.refusal is None
    lab.run(2 * HAND_OVER_S)
    event = lab.publish(0, topic, settle_s=5.0)
    assert lab.delivered(inner, topic) == [event]


def test_a_subscription_outlives_the_hand_over_of_the_one_before() -> None:
    """Left, children handed over, subscribed anew: no timer of the old time may end the new one."""
    lab = Lab(14)
    topic = lab.create(0)
    members = list(range(1, 14))
    lab.subscribe(members, topic)
    inner = inner_node(lab, topic, members)
    lab.unsubscribe(inner, topic)
    lab.subscribe([inner], topic)
    lab.run(2 * HAND_OVER_S)
    event = lab.publish(0, topic, settle_s=5.0)
    assert lab.delivered(inner, topic) == [event]
    lab.world.kill(inner)
    lab.world.restart(inner)
    lab.run(10.0)
    later = lab.publish(0, topic, settle_s=10.0)
    assert later in lab.delivered(inner, topic), "and it is on the disk"


def test_a_requested_event_is_delivered_again_to_whoever_left_and_came_back() -> None:
    """Of requests, too, nothing outlives a subscription: neither in memory nor on the disk."""
    lab = Lab(6)
    topic = lab.create(0, TopicSettings(publishers=(lab.peer(0),)))
    lab.subscribe([1, 2, 3], topic)
    event = lab.publish(2, topic, b"please", settle_s=5.0)
    assert lab.delivered(3, topic) == [event]
    assert [row for row in lab.world.store(3).rows() if row.table == "request"]
    lab.unsubscribe(3, topic)
    lab.run(2.0)
    assert not [row for row in lab.world.store(3).rows() if row.table == "request"]
    lab.start(3, lambda call: Subscribe(call, topic, from_start=True))
    lab.run(0.1)
    lab.world.kill(3)
    lab.world.restart(3)
    lab.subscribe([3], topic, from_start=True)
    lab.run(60.0)
    assert event in lab.delivered(3, topic)[1:]


def test_a_topic_without_a_meta_topic_can_be_left() -> None:
    """The descriptors allow it: a stranger's topic must not be a trap."""
    bare = create_topic(ALICE, "bare", unordered(), created=CREATED_US, meta=None)
    solo = below(Parent("alice", [bare.block]))
    solo.subscribe(bare.cid)
    reply = solo.ask(lambda call: Unsubscribe(call, bare.cid))
    assert reply.refusal is None
    assert bare.cid not in solo.node.topics


def test_a_meta_topic_can_be_followed_and_left_by_itself() -> None:
    meta = meta_of(ALICE)
    solo = below(Parent("alice", [meta.block]))
    solo.subscribe(meta.cid)
    assert solo.ask(lambda call: Unsubscribe(call, meta.cid)).refusal is None
    assert not solo.node.topics


def test_topics_that_were_left_do_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory grows with what we follow, not with what we ever followed."""
    monkeypatch.setattr(descriptors_module, "CACHED_MAX", 4)
    count = 20
    topics = [topic_of(ALICE, name=f"topic {number}") for number in range(count)]
    metas = [meta_of(ALICE, f"topic {number}") for number in range(count)]
    solo = below(Parent("alice", [descriptor.block for descriptor in (*topics, *metas)]))
    for topic in topics:
        solo.subscribe(topic.cid)
        cid = topic.cid
        assert solo.ask(lambda call, cid=cid: Unsubscribe(call, cid)).refusal is None  # type: ignore[misc]
    assert not solo.node.topics
    assert solo.node.footprint()["descriptors"] <= 5
    kept = [row for row in solo.store.rows() if row.table == "topic"]
    assert len(kept) <= 5, "nor on the disk"


def test_a_full_cache_costs_nobody_a_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither while it stops nor while it starts again does a node forget what it follows."""
    monkeypatch.setattr(descriptors_module, "CACHED_MAX", 0)
    lab = Lab(5)
    topics = [lab.create(0, name=f"topic {number}") for number in range(3)]
    for topic in topics:
        lab.subscribe([1], topic)
    lab.world.stop(1)
    lab.run(20.0)
    lab.world.restart(1)
    lab.run(20.0)
    events = [lab.publish(0, topic, settle_s=5.0) for topic in topics]
    assert [lab.delivered(1, topic) for topic in topics] == [[event] for event in events]


def test_a_topic_with_an_open_request_stays_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the request could not be sent again after a restart: nobody would know to whom."""
    monkeypatch.setattr(descriptors_module, "CACHED_MAX", 1)
    asked = topic_of(ALICE, TopicSettings(publishers=(ALICE.peer_id,)), name="asked")
    others = [topic_of(ALICE, name=f"topic {number}") for number in range(5)]
    metas = [meta_of(ALICE, f"topic {number}") for number in range(5)]
    blocks = [descriptor.block for descriptor in (asked, *others, *metas)]
    solo = below(Parent("alice", blocks))
    solo.give(Publish(99, asked.cid, b"please"))
    (sent,) = solo.sent_to(ALICE.peer_id, RequestToPublish)

    def come_and_go() -> list[bytes]:
        for topic in others:
            solo.subscribe(topic.cid)
            unsubscribe = partial(Unsubscribe, topic=topic.cid)
            assert solo.ask(unsubscribe).refusal is None
        return [row.key for row in solo.store.rows() if row.table == "topic"]

    assert asked.cid in come_and_go()
    again = Solo(contacts=(ALICE.peer_id,), store=solo.store.copy())
    again.peers[ALICE.peer_id] = Parent("alice")
    again.start().advance(60.0)
    resent = [message.block for message in again.sent_to(ALICE.peer_id, RequestToPublish)]
    assert sent.block in resent
    request_id = decode_request(sent.block).request_id
    solo.hear(ALICE.peer_id, RequestAnswered(asked.cid, request_id, None, 0, "no"))
    assert asked.cid not in come_and_go()


def test_a_member_that_stops_hands_its_children_over_and_comes_back_subscribed() -> None:
    lab = Lab(10, parameters=NARROW)
    topic = lab.create(0)
    members = list(range(1, 10))
    lab.subscribe(members, topic)
    inner = inner_node(lab, topic, members)
    orphans = [lab.world.index_of(child) for child in lab.view(inner, topic).children]
    lab.world.stop(inner)
    lab.run(20.0)
    assert not lab.world.is_up(inner)
    first = lab.publish(0, topic, settle_s=5.0)
    for orphan in orphans:
        assert first in lab.delivered(orphan, topic)
    lab.world.restart(inner)
    lab.run(20.0)
    second = lab.publish(0, topic, settle_s=5.0)
    assert lab.delivered(inner, topic) == [first, second], "a stop does not end a subscription"


@pytest.mark.parametrize("seed", range(1, 5))
def test_when_the_author_is_lost_somebody_acts_as_root_before_long(seed: int) -> None:
    """Design 2: the closest live peer acts as root; newcomers need one to start from."""
    size = 24
    lab = Lab(size, parameters=Parameters(fanout=3), seed=seed)
    topic = lab.create(0)
    lab.subscribe(list(range(1, size - 1)), topic)
    lab.run(30.0)
    lab.world.lose(0)
    lab.run(120.0)
    assert len([i for i in range(1, size - 1) if lab.view(i, topic).root]) == 1
    lab.subscribe([size - 1], topic)
    event = lab.publish(5, topic, settle_s=5.0)
    assert all(lab.delivered(index, topic) == [event] for index in range(1, size))


def test_whoever_leaves_before_the_subscription_began_leaves_nobody_waiting() -> None:
    """Found by random seed 945: the callers of a subscription that never began heard nothing."""
    topic = topic_of(ALICE)
    solo = below(Parent("alice", [topic.block, meta_of(ALICE).block], takes_in=False))
    solo.give(Subscribe(1, topic.cid))
    solo.give(Subscribe(2, topic.cid))
    solo.advance(1.0)
    assert solo.node.topics[topic.cid].subscribed
    assert 1 not in solo.replies, "it has no parent yet, and so no start"
    solo.give(Publish(3, topic.cid, b"hello"))
    assert solo.ask(lambda call: Unsubscribe(call, topic.cid)).refusal is None
    solo.advance(60.0)
    assert [solo.replies[call].refusal for call in (1, 2, 3)] == [None, None, None]


def test_who_is_about_to_go_begins_nothing_anew() -> None:
    """Found by nodes that came and went: what was left to stop was followed again, from nothing.

    Its log would have begun at 1 on a disk that holds it already.
    """
    solo = Solo().start()
    topic = solo.create()
    solo.subscribe(topic)
    event = solo.publish(topic)
    solo.give(Stop())
    solo.advance(1.0)
    assert not solo.node.topics
    reply = solo.ask(lambda call: Subscribe(call, topic))
    assert reply.refusal == STOPPING
    solo.hear(ALICE.peer_id, Join(topic, 7, Role.MEMBER, solo.me, False, False))
    solo.advance(60.0)
    assert solo.sent_to(ALICE.peer_id, JoinRefused) == [JoinRefused(topic, 7, "stopping")]
    assert not solo.node.topics
    again = Solo(store=solo.store.copy()).start()
    again.advance(1.0)
    assert again.topic(topic).log.newest == 1
    second = again.publish(topic)
    assert [each.cid for each in again.delivered][-2:] == [event, second]


def test_what_was_to_be_published_when_we_were_told_to_go_is_not_put_beside_our_log() -> None:
    """Found by nodes that came and went: it would count as held, and never be delivered to us."""
    solo = Solo().start()
    topic = solo.create()
    solo.subscribe(topic)
    solo.publish(topic)
    replies: list[Reply] = []

    def collect(effects: list[Effect]) -> None:
        replies.extend(effect for effect in effects if isinstance(effect, Reply))

    # With a key the disk is asked first whether it was published before.
    given = Publish(99, topic, b"late", idempotency_key=b"k")
    loads = [each for each in solo.node.handle(given, Now(1.0, 1)) if isinstance(each, Load)]
    collect(solo.node.handle(Stop(), Now(1.0, 1)))
    assert not solo.node.topics
    for load in loads:
        answer = Loaded(load.token, solo.store.answer(load.query))
        collect(solo.node.handle(answer, Now(1.0, 1)))
    assert [(each.call, each.refusal) for each in replies] == [(99, STOPPING)]


def test_who_subscribes_again_while_it_leaves_is_told_so_once_it_is_so() -> None:
    """Found by random seed 1849: an author, who stays in its tree, was told so too early."""
    solo = Solo().start()
    topic = solo.create()
    solo.subscribe(topic)

    def synced(effects: list[Effect]) -> list[Effect]:
        """What follows once the disk has done what was asked."""
        tokens = [each.token for each in effects if isinstance(each, Persist)]
        return [each for token in tokens for each in solo.node.handle(Persisted(token), NOW)]

    leaving = solo.node.handle(Unsubscribe(98, topic), NOW)
    coming = solo.node.handle(Subscribe(99, topic), NOW)
    assert [each.call for each in synced(leaving) if isinstance(each, Reply)] == [98]
    told = synced(coming)
    said = [each.record for each in told if isinstance(each, Trace)]
    assert isinstance(said[0], trace.Subscribed)
    assert [each.call for each in told if isinstance(each, Reply)] == [99]


def test_what_is_published_while_the_disk_forgets_a_topic_waits_for_that() -> None:
    """Or the disk would forget it together with the topic's log."""
    topic = topic_of(ALICE)
    solo = below(Parent("alice", [topic.block, meta_of(ALICE).block]))
    solo.subscribe(topic.topic)
    first = solo.publish(topic.topic, b"as a member")
    todo = list(solo.node.handle(Unsubscribe(98, topic.topic), NOW))

    def go_on() -> None:
        for each in solo._carry_out(todo.pop(0)):
            todo.extend(solo.node.handle(each, NOW))

    while not solo.node.followed.is_forgetting(topic.topic):
        go_on()
    begun = solo.node.handle(Publish(99, topic.topic, b"from outside"), NOW)
    assert not [each for each in begun if isinstance(each, Persist | Send)]
    todo.extend(begun)
    while todo:
        go_on()
    second = solo.replies[99].cid
    assert solo.replies[99].refusal is None
    for event in (first, second):
        assert event is not None
        assert solo.store.answer(LoadBlock(event)) != Block(None)


# Commands that come before the disk has done the one before.


def at_once(solo: Solo, *commands: Command) -> None:
    """Give commands together: the disk answers none of them before the last has come."""
    todo = [each for given in commands for each in solo.node.handle(given, NOW)]
    while todo:
        for answer in solo._carry_out(todo.pop(0)):
            todo.extend(solo.node.handle(answer, NOW))


def test_an_author_that_subscribes_twice_at_once_is_given_everything_once() -> None:
    solo = Solo().start()
    topic = solo.create()
    events = [solo.publish(topic) for _ in range(3)]
    at_once(solo, *(Subscribe(call, topic, from_start=True) for call in (98, 99)))
    assert {98, 99} <= solo.replies.keys()
    assert solo.cids() == events
    assert len([each for each in solo.records if isinstance(each, trace.Subscribed)]) == 1


def test_an_author_that_leaves_before_it_is_subscribed_is_not() -> None:
    solo = Solo().start()
    topic = solo.create()
    at_once(solo, Subscribe(98, topic), Unsubscribe(99, topic))
    solo.publish(topic)
    assert {98, 99} <= solo.replies.keys()
    assert not solo.cids()
    at_once(solo, Subscribe(100, topic), Unsubscribe(101, topic), Subscribe(102, topic))
    event = solo.publish(topic)
    assert solo.cids() == [event]


@pytest.mark.parametrize("last", [Subscribe, Unsubscribe])
def test_of_comings_and_goings_the_last_counts(last: type[Subscribe | Unsubscribe]) -> None:
    """A second end of a subscription must not be the end of the next one."""
    topic = topic_of(ALICE)
    solo = below(Parent("alice", [topic.block, meta_of(ALICE).block]))
    solo.subscribe(topic.cid)
    other = Unsubscribe if last is Subscribe else Subscribe
    at_once(solo, Unsubscribe(97, topic.cid), other(98, topic.cid), last(99, topic.cid))
    solo.advance(60.0)
    assert {97, 98, 99} <= solo.replies.keys()
    assert all(solo.replies[call].refusal is None for call in (97, 98, 99))
    assert solo.node.followed.is_followed(topic.cid) == (last is Subscribe)


def test_what_is_acknowledged_after_the_end_does_not_count_for_the_next_subscription() -> None:
    """Its log begins anew: after a restart its first events would be taken for done."""
    topic = topic_of(ALICE)
    parent = Parent("alice", [topic.block, meta_of(ALICE).block])
    solo = below(parent)
    solo.subscribe(topic.cid)
    for number in (1, 2, 3):
        solo.hear(parent.peer, EventMessage(event_of(ALICE, topic, number).block, 1))
    at_once(solo, Unsubscribe(98, topic.cid), Acknowledge(topic.cid, 3))
    assert topic.cid not in solo.node.topics
    assert not [row for row in solo.store.rows() if row.table == "cursor"]


def slowly_started(solo: Solo) -> tuple[Solo, list[Effect]]:
    """The same node in its next life, of whose disk nothing has been heard yet."""
    again = Solo(store=solo.store.copy())
    return again, list(again.node.handle(again._start, NOW))


def test_who_subscribes_before_the_log_is_read_after_a_restart_is_answered() -> None:
    solo = Solo().start()
    topic = solo.create()
    solo.subscribe(topic)
    solo.publish(topic)
    again, todo = slowly_started(solo)
    todo += again.node.handle(Subscribe(99, topic), NOW)
    while todo:
        for answer in again._carry_out(todo.pop(0)):
            todo.extend(again.node.handle(answer, NOW))
    assert again.replies[99].refusal is None


def test_who_subscribes_before_the_log_is_read_links_to_what_is_in_it_all_the_same() -> None:
    """That the subscription is on the disk does not tell us what we saw last."""
    solo = Solo().start()
    topic = solo.create()
    first = solo.publish(topic)
    again, todo = slowly_started(solo)
    todo += again.node.handle(Subscribe(98, topic), NOW)
    loads: list[Effect] = [each for each in todo if isinstance(each, Load)]
    todo = [each for each in todo if not isinstance(each, Load)]
    for rest in (todo, loads):
        while rest:
            for answer in again._carry_out(rest.pop(0)):
                rest.extend(again.node.handle(answer, NOW))
        if rest is todo:
            loads += again.node.handle(Publish(99, topic, b"second"), NOW)
    assert {98, 99} <= again.replies.keys()
    second = again.replies[99].cid
    assert second is not None
    block = again.store.answer(LoadBlock(second))
    assert isinstance(block, Block)
    assert block.block is not None
    assert again.node.decode(block.block).parents == (first,)


# What our disk says that we follow.


def keeper() -> tuple[Solo, Parent, Cid]:
    """It keeps a tree of Alice's together, who is gone; nobody that it knows is closer to her."""
    topic = topic_of(ALICE)
    carol = Parent("carol", [topic.block, meta_of(ALICE).block], takes_in=False)
    solo = below(carol)
    solo.hear(BOB.peer_id, Join(topic.cid, 1, Role.MEMBER, ALICE.peer_id, False, False))
    solo.advance(30.0)
    assert solo.node.trees()[topic.cid].root
    return solo, carol, topic.cid


def follows(solo: Solo, topic: Cid) -> bool:
    """Whether the disk says so."""
    return any((row.table, row.key) == ("follow", topic) for row in solo.store.rows())


def test_who_keeps_a_tree_together_does_so_for_one_life() -> None:
    """By the next one, somebody may be there who is closer to its root."""
    solo, carol, topic = keeper()
    again = killed_and_started_again(solo, carol)
    assert topic not in again.node.topics


def test_where_a_tree_stood_that_we_kept_together_is_no_start_of_a_later_subscription() -> None:
    """Of a life before the last, its marks were still on the disk: they counted as had."""
    solo, carol, topic = keeper()
    shown = MarkState(ALICE.peer_id, EPOCH, 0, 3, None)
    solo.hear(
        BOB.peer_id,
        Join(topic, 2, Role.MEMBER, ALICE.peer_id, False, False),
        start_at(topic, [shown]),
    )
    assert solo.topic(topic).frontier.high(ALICE.peer_id, EPOCH) == 3
    carol.takes_in = True
    again = killed_and_started_again(solo, carol)
    assert not [mark for cid, mark in again.store.marks() if cid == topic]
    again.subscribe(topic, from_start=True)
    last = killed_and_started_again(again, carol)
    events = [event_of(ALICE, topic_of(ALICE), number) for number in (1, 2, 3)]
    for event in events:
        last.hear(carol.peer, EventMessage(event.block, 1))
    assert last.cids() == [event.cid for event in events]


def test_who_has_left_a_topic_does_not_follow_it_in_its_next_life() -> None:
    topic = topic_of(ALICE)
    alice = Parent("alice", [topic.block, meta_of(ALICE).block])
    solo = below(alice)
    solo.subscribe(topic.cid)
    assert follows(solo, topic.cid)
    assert solo.ask(lambda call: Unsubscribe(call, topic.cid)).refusal is None
    assert not follows(solo, topic.cid)
    assert topic.cid not in killed_and_started_again(solo, alice).node.topics


# What we published before we followed a topic.


def outsider() -> tuple[Solo, Parent, bytes]:
    """It has published in a topic of Alice's, who does not have that yet; and what it published."""
    topic = topic_of(ALICE)
    alice = Parent("alice", [topic.block, meta_of(ALICE).block])
    solo = below(alice)
    block = solo.store.answer(LoadBlock(solo.publish(topic.topic, b"from outside")))
    assert isinstance(block, Block)
    assert block.block is not None
    return solo, alice, block.block


def killed_and_started_again(solo: Solo, parent: Parent) -> Solo:
    again = Solo(contacts=(parent.peer,), store=solo.store.copy())
    again.peers[parent.peer] = parent
    return again.start()


def test_our_own_events_from_outside_are_due_to_us_though_we_are_killed_as_we_subscribe() -> None:
    """Our disk said that we held them, from before there was a log that they could be in."""
    topic = topic_of(ALICE).topic
    solo, alice, block = outsider()
    solo.node.handing_in.hand_in_own = lambda event: None  # type: ignore[method-assign]
    solo.subscribe(topic, from_start=True)
    solo.node.handing_in._late.clear()
    assert not solo.delivered
    again = killed_and_started_again(solo, alice)
    again.hear(alice.peer, EventMessage(block, 1))
    assert [event.payload for event in again.delivered] == [b"from outside"]


def test_what_we_know_to_be_retired_of_our_own_is_before_our_start() -> None:
    """Found by random seed 1013: due until a restart, and after that neither here nor due."""
    topic = topic_of(ALICE).topic
    solo, alice, block = outsider()
    epoch = solo.node.decode(block).sequence.epoch
    solo.node.outside.remember(topic, [MarkState(solo.me, epoch, 1, 1, None, (), 1)])
    solo.subscribe(topic, from_start=True)
    (said,) = [record for record in solo.records if isinstance(record, trace.Subscribed)]
    assert said.start == (Mark(solo.me, epoch, 1),)
    again = killed_and_started_again(solo, alice)
    assert again.topic(topic).frontier.mark(solo.me, epoch) == (solo.me, epoch, 1, 1, None, (), 1)


def test_publishing_does_not_make_us_forget_what_is_retired() -> None:
    solo = Solo().start()
    topic = solo.create()
    solo.subscribe(topic)
    solo.publish(topic)
    (mark,) = solo.topic(topic).frontier.marks()
    solo.topic(topic).work.retirement.retire(solo.me, mark.epoch, 1)
    solo.publish(topic)
    held = [mark for cid, mark in solo.store.marks() if cid == topic]
    assert [(mark.floor, mark.high, mark.retired) for mark in held] == [(1, 2, 1)]


def test_publishing_from_outside_does_not_make_us_forget_what_is_retired() -> None:
    topic = topic_of(ALICE).topic
    solo, _, block = outsider()
    epoch = solo.node.decode(block).sequence.epoch
    solo.node.outside.remember(topic, [MarkState(solo.me, epoch, 1, 1, None, (), 1)])
    solo.publish(topic)
    (mark,) = [mark for cid, mark in solo.store.marks() if cid == topic]
    assert (mark.floor, mark.high, mark.retired) == (1, 1, 1)


def test_what_we_publish_from_outside_others_have_from_us_though_we_subscribe() -> None:
    """Found by random seed 1471: cut off from us, they came back when all others had retired it."""
    topic = topic_of(ALICE).topic
    solo, alice, block = outsider()
    mark = MarkState(solo.me, solo.node.decode(block).sequence.epoch, 1, 1, None)
    alice.marks = (mark,)
    solo.subscribe(topic)
    assert solo.topic(topic).frontier.high(solo.me, mark.epoch) == 1
    again = killed_and_started_again(solo, alice)
    for node in (solo, again):
        node.hear(BOB.peer_id, FetchRange(5, topic, solo.me, mark.epoch, 1, 1))
        (answer,) = node.sent_to(BOB.peer_id, Range)
        assert answer.blocks == (block,)


@pytest.mark.parametrize("order", [DeliveryOrder.CAUSAL, DeliveryOrder.PER_PUBLISHER])
def test_our_own_events_come_in_though_few_may_wait_for_their_turn(order: DeliveryOrder) -> None:
    """Found by random seed 1564: what was dropped for want of room, nobody else had to show."""
    topic = topic_of(ALICE, TopicSettings(open=True, order=order))
    alice = Parent("alice", [topic.block, meta_of(ALICE).block])
    little_room = Parameters(held_back_max=4)
    solo = below(alice, parameters=little_room)
    payloads = [b"%d" % number for number in range(20)]
    for payload in payloads:
        solo.publish(topic.topic, payload)
    # In another life they are handed in by name, and not by number.
    again = Solo(contacts=(alice.peer,), store=solo.store.copy(), parameters=little_room)
    again.peers[alice.peer] = alice
    again.start().subscribe(topic.topic, from_start=True)
    again.advance(60.0)
    assert [event.payload for event in again.delivered] == payloads


def test_a_version_that_was_looked_for_when_we_left_changes_nothing_any_more() -> None:
    """It made us follow the meta topic of a topic that we had left, for good."""
    lab = Lab(3)
    topic = lab.create(0)
    lab.subscribe([1, 2], topic)
    reader = lab.world.node(2)
    left = reader.topics[topic]
    looking: list[Callable[[list[TopicDescriptor]], None]] = []
    reader.descriptors.find_version = lambda *given: looking.append(given[2])  # type: ignore[method-assign]
    reader.renewal.find(left, cid_of(b"a version"), lab.peer(0))
    lab.unsubscribe(2, topic)
    lab.run(60.0)
    assert not reader.topics
    lab.update(0, topic, unordered(payload_bytes_max=1000))
    _, version = lab.world.node(1).topics[topic].versions.all()
    for then in looking:
        then([version])
    lab.publish(0, topic)
    lab.run(30.0)
    assert not reader.topics


def test_a_long_way_of_versions_that_others_signed_is_not_walked_to_its_end() -> None:
    """On the way back nobody can tell a recovery key from a stranger."""
    keys = (MALLORY.peer_id,)
    topic = topic_of(BOB, unordered(recovery_keys=keys))
    chain = [topic]
    for number in range(2 * descriptors_module.STRANGE_MAX):
        settings = unordered(recovery_keys=keys, payload_bytes_max=1000 + number)
        chain.append(version_of(chain[-1], settings, signer=MALLORY))
    blocks = {each.cid: each.block for each in chain}
    asked: list[Cid] = []

    class Blocks:
        def find_block(self, cid: Cid, then: Callable[[bytes | None], None]) -> None:
            asked.append(cid)
            then(blocks[cid])

    descriptors = Solo().node.descriptors
    descriptors.keep(Versions(topic))
    descriptors.dht = cast(Kademlia, Blocks())
    found: list[list[TopicDescriptor]] = []
    descriptors.find_version(topic.cid, chain[-1].cid, found.append)
    assert found == [[]]
    assert len(asked) == descriptors_module.STRANGE_MAX + 1


def test_who_leaves_while_what_lies_below_is_looked_for_does_not_follow_that() -> None:
    lab = Lab(8)
    below_it = lab.create(0, name="below")
    topic = lab.create(0, name="above", subtopics={"below": below_it})
    lab.start(5, lambda call: Subscribe(call, topic, below=True))
    opened = lab.world.run_until(
        lambda: topic in lab.world.node(5).topics, lab.world.now + 60.0, check_every_s=0.001
    )
    assert opened
    lab.unsubscribe(5, topic)
    lab.run(60.0)
    assert not lab.world.node(5).topics


def test_who_wants_the_history_has_it_though_another_subscription_is_on_its_way() -> None:
    lab = Lab(4)
    topic = lab.create(0)
    lab.subscribe([1], topic)
    events = [lab.publish(1, topic) for _ in range(3)]
    lab.start(0, lambda call: Subscribe(call, topic))
    lab.start(0, lambda call: Subscribe(call, topic, from_start=True))
    lab.run(5.0)
    assert lab.delivered(0, topic) == events


def test_who_leaves_while_its_disk_forgets_the_topic_has_left() -> None:
    lab = Lab(4)
    topic = lab.create(0)
    lab.subscribe([1, 2], topic)
    lab.publish(2, topic)
    answers = [lab.start(2, lambda call: Unsubscribe(call, topic))]
    followed = lab.world.node(2).followed
    assert lab.world.run_until(
        lambda: followed.is_forgetting(topic), lab.world.now + 20.0, check_every_s=0.00005
    )
    answers.append(lab.start(2, lambda call: Subscribe(call, topic)))
    answers.append(lab.start(2, lambda call: Unsubscribe(call, topic)))
    lab.run(60.0)
    assert [each[0].refusal for each in answers] == [None] * 3
    assert topic not in lab.world.node(2).topics
