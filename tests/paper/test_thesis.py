"""The thesis, chapter 3: algorithms 1 to 4 and what the text claims about them, claim by claim.

Where we part from the thesis, the docstring says so, with the word *deviation*.
"""

from itertools import pairwise

import pytest

from pulsarcast.model import trace
from pulsarcast.model.events import EventDescriptor, decode_event
from pulsarcast.model.ids import Cid, peer_key
from pulsarcast.model.topics import META, DeliveryOrder, EventLinking, TopicSettings, decode_topic
from pulsarcast.protocol.effects import Send
from pulsarcast.protocol.inputs import FetchBlock, MessageReceived, Publish, Subscribe, Walk
from pulsarcast.protocol.messages import (
    EventMessage,
    FindBlock,
    FindPeers,
    Join,
    JoinAccepted,
    JoinReferred,
    RequestToPublish,
    Role,
    StoreBlocks,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import Block, LoadBlock
from tests.support.lab import Lab
from tests.support.people import unordered

SIZE = 16
MEMBERS = list(range(1, SIZE))
AUTHOR = 0
NARROW = Parameters(fanout=2)
CUSTOM = unordered(linking=EventLinking.CUSTOM)


def author_only(lab: Lab) -> TopicSettings:
    """Figure 3.7: only the author publishes, last seen linking, request to publish."""
    return TopicSettings(publishers=(lab.peer(AUTHOR),))


def walk_back(lab: Lab, index: int, newest: Cid) -> list[EventDescriptor]:
    """Follow parent links from an event to the first, fetching each block through a node."""
    history: list[EventDescriptor] = []
    cid: Cid | None = newest
    while cid is not None:
        reply = lab.ask(index, lambda call, cid=cid: FetchBlock(call, cid))  # type: ignore[misc]
        assert reply.block is not None, reply.refusal
        history.append(decode_event(reply.block))
        assert history[-1].cid == cid
        cid = next(iter(history[-1].parents), None)
    return history


# 3.2 Data structures.


def test_everything_is_named_by_the_hash_of_its_content_and_the_same_wherever_it_is_seen() -> None:
    """3.2.1, 3.2.4: immutable, content-addressable, one representation locally and system-wide."""
    lab = Lab(SIZE)
    topic = lab.create(AUTHOR)
    lab.subscribe([1, 2, 3], topic)
    event = lab.publish(1, topic)
    for cid in (topic, event):
        copies = set()
        for index in range(SIZE):
            answer = lab.world.store(index).answer(LoadBlock(cid))
            assert isinstance(answer, Block)
            if answer.block is not None:
                copies.add(answer.block)
        assert len(copies) == 1


def test_an_event_links_to_its_topic_and_to_an_event_before_it() -> None:
    """3.2.1: events link both to their topic descriptor and to a past event in that topic."""
    lab = Lab(8)
    topic = lab.create(AUTHOR)
    lab.subscribe([1], topic)
    first = lab.event(lab.publish(1, topic))
    second = lab.event(lab.publish(1, topic))
    assert first.topic == second.topic == topic
    assert first.parents == ()
    assert second.parents == (first.cid,)


def test_author_and_publisher_may_be_two_peers() -> None:
    """3.2.2: who made the content and who pushes it into the tree might not be the same peer."""
    lab = Lab(8)
    topic = lab.create(AUTHOR, author_only(lab))
    lab.subscribe([1], topic)
    event = lab.event(lab.publish(1, topic, b"my words"))
    assert (event.author, event.publisher) == (lab.peer(1), lab.peer(AUTHOR))
    assert event.payload == b"my words"


# 3.3.1 Topic creation, algorithm 1.


def test_the_meta_topic_is_made_first_and_linked_as_a_sub_topic() -> None:
    """Algorithm 1, lines 4 to 10, and 3.3.1."""
    lab = Lab(SIZE)
    cid = lab.create(AUTHOR, name="news")
    topic = lab.topic(cid)
    meta = lab.topic(topic.subtopics[META])
    assert topic.parent is None
    assert meta.is_meta
    assert META not in meta.subtopics, "except for its own meta topic of course"
    assert (meta.author, topic.author) == (lab.peer(AUTHOR), lab.peer(AUTHOR))
    assert meta.allowed_publishers == (lab.peer(AUTHOR),)


def test_both_topics_are_in_the_dht_before_creation_is_answered() -> None:
    """Algorithm 1, lines 13 and 14: StoreInDHT(metaTopic), StoreInDHT(topicData)."""
    lab = Lab(SIZE)
    cid = lab.create(AUTHOR)
    meta = lab.topic(cid).subtopics[META]
    replicas = Parameters().replicas
    for block_cid in (cid, meta):
        holders = [
            index
            for index in range(SIZE)
            if lab.world.store(index).answer(LoadBlock(block_cid)) != Block(None)
        ]
        assert len(holders) >= replicas


def test_the_meta_topics_block_is_never_stored_after_its_topics() -> None:
    """3.3.1: only after the meta topic has been created does the node create the actual topic.

    Deviation: both are stored at the same time, the meta topic's block going first; the topic's
    content id already covers the meta topic's, so none can exist without the other.
    """
    lab = Lab(SIZE)
    cid = lab.create(AUTHOR)
    topic = lab.topic(cid)
    meta_block, topic_block = lab.block(topic.subtopics[META]), topic.block
    stored = [
        block for message in lab.messages(StoreBlocks, sender=AUTHOR) for block in message.blocks
    ]
    assert stored.index(meta_block) < stored.index(topic_block)


def test_the_creator_is_in_both_trees() -> None:
    """Algorithm 1, lines 11 and 12: Subscribe(metaTopic), Subscribe(topicData).

    Deviation: the creator is a member of both trees and their root; its application gets events
    once it subscribes, like any other.
    """
    lab = Lab(8)
    cid = lab.create(AUTHOR)
    lab.run(5.0)
    meta = lab.topic(cid).subtopics[META]
    trees = lab.world.node(AUTHOR).trees()
    assert set(trees) == {cid, meta}
    assert trees[cid].root
    assert trees[meta].root


def test_a_new_version_links_to_the_one_before_and_keeps_the_meta_topic() -> None:
    """3.3.1: a new descriptor with the original linked as a parent and the same meta topic."""
    lab = Lab(8)
    cid = lab.create(AUTHOR)
    lab.update(AUTHOR, cid, unordered(payload_bytes_max=100))
    first, second = lab.topic(cid), lab.world.node(AUTHOR).topics[cid].descriptor
    assert second.parent == first.cid
    assert second.subtopics[META] == first.subtopics[META]
    assert second.payload_bytes_max == 100
    assert lab.topic(second.cid) == second, "and it is in the DHT"


def test_a_new_version_is_published_as_an_event_in_the_meta_topic() -> None:
    """Algorithm 1, line 15: Publish(metaTopic, topicData).

    Deviation: the first version is not: nobody can be in the meta topic before it is known.
    """
    lab = Lab(8)
    cid = lab.create(AUTHOR)
    meta = lab.topic(cid).subtopics[META]
    assert not lab.log(AUTHOR, meta)
    lab.update(AUTHOR, cid, unordered(payload_bytes_max=100))
    (announced,) = lab.log(AUTHOR, meta)
    assert announced.topic == meta
    assert decode_topic(announced.payload).parent == cid


# 3.3.2 Subscribing, algorithm 2.


def test_the_creator_is_the_root() -> None:
    """3.3.2: its creator will act as the root node in this newly created dissemination tree."""
    lab = Lab(SIZE)
    topic = lab.create(5)
    lab.subscribe([index for index in range(SIZE) if index != 5], topic)
    assert [index for index in range(SIZE) if lab.view(index, topic).root] == [5]
    for index in range(SIZE):
        way = [index]
        while (parent := lab.view(way[-1], topic).parent) is not None:
            way.append(lab.world.index_of(parent))
            assert len(way) <= SIZE, "a cycle"
        assert way[-1] == 5


def test_a_join_goes_to_the_closest_known_peer_to_the_author() -> None:
    """Algorithm 2, line 20: GetClosestKnownPeer(topicData.author)."""
    lab = Lab(30)
    topic = lab.create(AUTHOR)
    key = peer_key(lab.peer(AUTHOR))
    for index in range(1, 30):
        closest = lab.world.node(index).dht.closest_known(key, 1)[0].peer
        before = len(lab.said)
        lab.subscribe([index], topic)
        first = next(
            said
            for said in lab.said[before:]
            if isinstance(said.message, Join)
            and said.sender == index
            and said.message.topic == topic
        )
        assert first.receiver == closest


def test_a_join_travels_strictly_closer_hop_by_hop() -> None:
    """3.3.2: the recursion ends at the author or at a node of the tree, ever closer to the author.

    Deviation: a peer that is no member names a closer one instead of joining itself (Join,
    JoinReferred), so that nobody forwards what it did not subscribe to; and below a full parent,
    where distance proves nothing, a referral is marked as handed down.
    """
    lab = Lab(60, parameters=Parameters(bucket_size=3))
    topic = lab.create(AUTHOR)
    lab.subscribe(list(range(1, 60, 3)), topic)
    key = peer_key(lab.peer(AUTHOR))
    referrals = 0
    for said in lab.said:
        message = said.message
        if isinstance(message, JoinReferred) and message.topic == topic:
            referrals += 1
            if not message.handed_down:
                here = peer_key(lab.peer(said.sender)) ^ key
                assert peer_key(message.contact.peer) ^ key < here
        elif isinstance(message, Join) and message.topic == topic and not message.handed_down:
            assert peer_key(said.receiver) ^ key < peer_key(lab.peer(said.sender)) ^ key
    assert referrals, "the network must be large enough that some are needed"


def test_whoever_is_asked_and_is_a_member_takes_the_joiner_as_a_child() -> None:
    """Algorithm 2, line 5: AddToChildren; the joiner has it as its parent (line 21)."""
    lab = Lab(8)
    topic = lab.create(AUTHOR)
    lab.subscribe([3], topic)
    assert lab.view(3, topic).parent == lab.peer(AUTHOR)
    assert lab.view(AUTHOR, topic).children == (lab.peer(3),)


def test_a_member_that_is_joined_does_not_join_again() -> None:
    """Algorithm 2, lines 10 to 12: already part of the dissemination tree."""
    lab = Lab(8, parameters=NARROW)
    topic = lab.create(AUTHOR)
    lab.subscribe([1, 2], topic)
    before = len(lab.said)
    lab.subscribe([3, 1], topic)
    joins = [
        said.sender
        for said in lab.said[before:]
        if isinstance(said.message, Join) and said.message.topic == topic
    ]
    assert set(joins) == {3}


def test_subscribing_needs_no_lookup_where_a_closer_peer_is_known() -> None:
    """3.3.2: we are not hitting the network; we resort to what is in the K buckets."""
    lab = Lab(8)
    topic = lab.create(AUTHOR)
    lab.subscribe([2], topic)
    before = len(lab.said)
    lab.subscribe([3], topic)
    kinds = {type(said.message) for said in lab.said[before:] if said.sender == 3}
    assert Join in kinds
    assert FindPeers not in kinds


def test_whoever_loses_its_parent_goes_through_the_subscription_again() -> None:
    """3.3.2: if the node is still unable to connect, it goes through the subscription procedure."""
    lab = Lab(SIZE, parameters=NARROW)
    topic = lab.create(AUTHOR)
    lab.subscribe(MEMBERS, topic)
    parent = next(i for i in MEMBERS if lab.view(i, topic).children)
    orphans = [lab.world.index_of(child) for child in lab.view(parent, topic).children]
    lab.world.lose(parent)
    lab.run(30.0)
    for orphan in orphans:
        new = lab.view(orphan, topic).parent
        assert new is not None
        assert lab.world.index_of(new) != parent
    event = lab.publish(AUTHOR, topic)
    assert all(event in lab.delivered(index, topic) for index in MEMBERS if index != parent)


# 3.3.3 Publishing and dissemination, algorithms 3 and 4.


@pytest.mark.parametrize("publisher", [AUTHOR, 7, 15], ids=["root", "inner", "late"])
def test_events_go_up_and_down_and_reach_every_subscriber_once(publisher: int) -> None:
    """Algorithm 4, lines 8 to 15: emitted to subscribers, sent to children and parents."""
    lab = Lab(SIZE, parameters=NARROW)
    topic = lab.create(AUTHOR)
    lab.subscribe(range(SIZE), topic)
    event = lab.publish(publisher, topic)
    for index in range(SIZE):
        assert lab.delivered(index, topic) == [event]


def test_an_event_never_goes_back_where_it_came_from() -> None:
    """Algorithm 4, lines 12 to 14: do not send the event back."""
    lab = Lab(SIZE, parameters=NARROW)
    topic = lab.create(AUTHOR)
    lab.subscribe(MEMBERS, topic)
    for publisher in MEMBERS:
        lab.publish(publisher, topic)
    turns = 0
    for turn in lab.taken:
        given = turn.given
        if not isinstance(given, MessageReceived) or not isinstance(given.message, EventMessage):
            continue
        turns += 1
        sent = [
            effect.peer
            for effect in turn.effects
            if isinstance(effect, Send) and isinstance(effect.message, EventMessage)
        ]
        assert given.sender not in sent
    assert turns >= len(MEMBERS) * len(MEMBERS)


def test_an_event_costs_one_transmission_for_each_member_but_its_publisher() -> None:
    """3.3.3: nodes forward the event across branches of the tree where it has not gone through."""
    lab = Lab(SIZE, parameters=NARROW)
    topic = lab.create(AUTHOR)
    lab.subscribe(MEMBERS, topic)
    before = len(lab.messages(EventMessage))
    lab.publish(9, topic)
    assert len(lab.messages(EventMessage)) - before == SIZE - 1


def test_a_forwarded_event_is_the_same_bytes() -> None:
    """Figure 3.2: what is disseminated is the descriptor that was stored."""
    lab = Lab(8)
    topic = lab.create(AUTHOR)
    lab.subscribe([1, 2, 3], topic)
    event = lab.publish(1, topic)
    assert {message.block for message in lab.messages(EventMessage)} == {lab.block(event)}


def test_an_event_is_stored_in_the_dht() -> None:
    """Algorithm 4, line 6: StoreInDHT(linkedEvent).

    Deviation: at the same time as it spreads, not before; `replicated` waits for it.
    """
    lab = Lab(SIZE)
    topic = lab.create(AUTHOR)
    lab.subscribe([1], topic)
    reply = lab.ask(1, lambda call: Publish(call, topic, b"kept", replicated=True))
    assert reply.replicas >= Parameters().replicas
    assert reply.cid is not None
    holders = [
        index
        for index in range(2, SIZE)
        if lab.world.store(index).answer(LoadBlock(reply.cid)) != Block(None)
    ]
    assert len(holders) >= Parameters().replicas - 2


def test_last_seen_links_to_the_event_that_the_publisher_saw_last() -> None:
    """3.3.3: with the last seen option, the node links the event to the event last seen by it."""
    lab = Lab(8)
    topic = lab.create(AUTHOR)
    lab.subscribe([1, 2, 3], topic)
    cids = [lab.publish(publisher, topic) for publisher in (1, 2, 3, 1)]
    for before, after in pairwise(cids):
        assert lab.event(after).parents == (before,)


def test_last_seen_ignores_parents_that_the_caller_names() -> None:
    """3.3.3: the Pulsarcast node takes care of linking."""
    lab = Lab(8)
    topic = lab.create(AUTHOR)
    lab.subscribe([1], topic)
    first, second = (lab.publish(1, topic) for _ in range(2))
    third = lab.publish(1, topic, parents=(first,))
    assert lab.event(third).parents == (second,)


def test_custom_linking_takes_the_parent_that_the_caller_names() -> None:
    """3.3.3: the client application can set a custom parent event."""
    lab = Lab(8)
    topic = lab.create(AUTHOR, CUSTOM)
    lab.subscribe([1, 2], topic)
    root = lab.publish(1, topic)
    branches = [lab.publish(index, topic, b"%d" % index, parents=(root,)) for index in (1, 2)]
    for branch in branches:
        assert lab.event(branch).parents == (root,)
    assert lab.event(root).parents == ()


def test_custom_linking_refuses_a_parent_that_does_not_exist() -> None:
    """3.3.3: as long as it exists."""
    lab = Lab(8)
    topic = lab.create(AUTHOR, CUSTOM)
    other = lab.create(AUTHOR, name="other")
    lab.subscribe([1], topic)
    elsewhere = lab.publish(AUTHOR, other)
    nowhere = Cid(topic[:-1] + bytes([topic[-1] ^ 1]))
    for parent in (nowhere, elsewhere, topic):
        reply = lab.ask(1, lambda call, p=parent: Publish(call, topic, b"?", parents=(p,)))  # type: ignore[misc]
        assert reply.refusal is not None
    lab.run(5.0)
    assert not lab.delivered(1, topic)


def test_custom_parents_may_be_found_in_the_dht_alone() -> None:
    """3.3.3 with 3.1: a publisher that never saw the parent can still link to it."""
    lab = Lab(SIZE)
    topic = lab.create(AUTHOR, CUSTOM)
    lab.subscribe([1], topic)
    root = lab.publish(1, topic)
    lab.subscribe([9], topic)
    assert root not in lab.delivered(9, topic), "it was published before"
    branch = lab.publish(9, topic, parents=(root,))
    assert lab.event(branch).parents == (root,)


def test_only_those_on_the_list_may_publish() -> None:
    """3.3.3: a list of nodes is provided that is checked before publishing."""
    lab = Lab(8)
    settings = TopicSettings(publishers=(lab.peer(1), lab.peer(2)), request_to_publish=False)
    topic = lab.create(AUTHOR, settings)
    lab.subscribe([1, 2, 3], topic)
    for publisher in (1, 2):
        lab.publish(publisher, topic)
    for outsider in (AUTHOR, 3, 4):
        reply = lab.ask(outsider, lambda call: Publish(call, topic, b"me too"))
        assert reply.refusal is not None
    assert len(lab.delivered(3, topic)) == 2


def test_without_a_list_anyone_may_publish() -> None:
    """3.3.3: or it can be disabled, and in that scenario every node can publish a message."""
    lab = Lab(8)
    topic = lab.create(AUTHOR)
    lab.subscribe([1], topic)
    for publisher in range(1, 8):
        event = lab.event(lab.publish(publisher, topic))
        assert event.publisher == event.author == lab.peer(publisher)
    lab.run(20.0)
    assert len(lab.delivered(1, topic)) == 7


def test_a_request_finds_someone_who_may_publish() -> None:
    """Algorithm 3 and 3.3.3: until it eventually finds a node which is allowed to publish.

    Deviation: it goes straight to those who may, known from the descriptor, not up the tree hop by
    hop; only so can it be answered, retried and kept in order.
    """
    lab = Lab(SIZE, parameters=NARROW)
    topic = lab.create(AUTHOR, author_only(lab))
    lab.subscribe(MEMBERS, topic)
    event = lab.publish(15, topic, b"please")
    asked = {said.receiver for said in lab.said if isinstance(said.message, RequestToPublish)}
    assert asked == {lab.peer(AUTHOR)}
    assert all(lab.delivered(index, topic) == [event] for index in MEMBERS)


def test_a_request_is_forwarded_past_a_publisher_that_is_gone() -> None:
    """3.3.3: it eventually finds a node which is allowed to publish."""
    lab = Lab(8)
    settings = TopicSettings(publishers=(lab.peer(AUTHOR), lab.peer(5)))
    topic = lab.create(AUTHOR, settings)
    lab.subscribe([1, 5], topic)
    lab.world.lose(AUTHOR)
    lab.run(30.0)
    event = lab.event(lab.publish(1, topic, b"please"))
    assert (event.author, event.publisher) == (lab.peer(1), lab.peer(5))


def test_the_whitelist_of_requesters_is_about_the_author_of_the_request() -> None:
    """3.3.3: optionally, it can also be a whitelist of nodes allowed to submit these."""
    lab = Lab(8)
    settings = TopicSettings(
        publishers=(lab.peer(AUTHOR),), requesters=(lab.peer(1),), request_to_publish=True
    )
    topic = lab.create(AUTHOR, settings)
    lab.subscribe([1, 2], topic)
    assert lab.event(lab.publish(1, topic)).author == lab.peer(1)
    reply = lab.ask(2, lambda call: Publish(call, topic, b"me too"))
    assert reply.refusal is not None
    assert len(lab.delivered(2, topic)) == 1


def test_where_requests_are_off_nobody_may_request() -> None:
    """Algorithm 3, line 7."""
    lab = Lab(8)
    settings = TopicSettings(publishers=(lab.peer(AUTHOR),), request_to_publish=False)
    topic = lab.create(AUTHOR, settings)
    lab.subscribe([1], topic)
    assert lab.ask(1, lambda call: Publish(call, topic, b"please")).refusal is not None
    assert not lab.messages(RequestToPublish)


# Order guarantee.


def concurrent_requests(lab: Lab, topic: Cid, count: int) -> None:
    for number in range(count):
        index = 1 + number % (SIZE - 1)
        lab.start(index, lambda call, n=number: Publish(call, topic, b"%d" % n))  # type: ignore[misc]
    lab.run(60.0)


@pytest.mark.parametrize("order", [DeliveryOrder.NONE, DeliveryOrder.TOTAL])
def test_author_only_with_requests_gives_a_single_stream_all_linked_together(
    order: DeliveryOrder,
) -> None:
    """3.3.3: we can achieve order guarantee, with a single stream of events all linked together.

    Deviation: in the thesis the links alone are the guarantee. Here they are too, whatever the
    delivery order; order `total` also delivers along them.
    """
    lab = Lab(SIZE)
    settings = TopicSettings(
        publishers=(lab.peer(AUTHOR),),
        order=order,
        sequencers=(lab.peer(AUTHOR),) if order is DeliveryOrder.TOTAL else (),
    )
    topic = lab.create(AUTHOR, settings)
    lab.subscribe(MEMBERS, topic)
    concurrent_requests(lab, topic, 50)
    events = lab.log(AUTHOR, topic)
    assert len(events) == 50
    assert events[0].parents == ()
    for before, after in pairwise(events):
        assert after.parents == (before.cid,)
    if order is DeliveryOrder.TOTAL:
        chain = [event.cid for event in events]
        assert all(lab.delivered(index, topic) == chain for index in MEMBERS)


@pytest.mark.parametrize("order", [DeliveryOrder.NONE, DeliveryOrder.TOTAL])
def test_the_single_stream_stays_one_when_its_publisher_restarts(order: DeliveryOrder) -> None:
    """3.3.3, order guarantee: a publisher that was killed links to what it published before."""
    lab = Lab(SIZE)
    settings = TopicSettings(
        publishers=(lab.peer(AUTHOR),),
        order=order,
        sequencers=(lab.peer(AUTHOR),) if order is DeliveryOrder.TOTAL else (),
    )
    topic = lab.create(AUTHOR, settings)
    lab.subscribe([1, 2], topic)
    before = lab.publish(AUTHOR, topic, b"before")
    lab.world.kill(AUTHOR)
    lab.world.restart(AUTHOR)
    after = lab.publish(AUTHOR, topic, b"after")
    assert lab.event(after).parents == (before,)


# History.


def test_history_can_be_rebuilt_by_walking_parents_through_the_dht() -> None:
    """3.1 and 3.2.1: users are free to rebuild their event history to any point they wish."""
    lab = Lab(20)
    topic = lab.create(AUTHOR)
    lab.subscribe([1, 2], topic)
    cids = [lab.publish(1 + number % 2, topic, b"%d" % number) for number in range(10)]
    # Everyone who was in the topic is gone: only the DHT's replicas remain.
    for index in (AUTHOR, 1, 2):
        lab.world.lose(index)
    lab.run(30.0)
    history = walk_back(lab, 19, cids[-1])
    assert [event.cid for event in history] == cids[::-1]
    # The node does the same for a caller that has one content id (figure 3.3).
    walked = lab.ask(18, lambda call: Walk(call, cids[-1], 100))
    assert [event.cid for event in walked.events] == cids[::-1]
    assert (walked.gaps, walked.cursor) == ((), b"")


def test_a_subscription_from_the_start_gets_what_was_published_before_it() -> None:
    """3.2.1: because they were not part of the network at the time."""
    lab = Lab(8)
    topic = lab.create(AUTHOR)
    lab.subscribe([1], topic)
    cids = [lab.publish(1, topic, b"%d" % number) for number in range(5)]
    lab.subscribe([2], topic)
    lab.subscribe([3], topic, from_start=True)
    lab.run(20.0)
    assert lab.delivered(2, topic) == []
    assert sorted(lab.delivered(3, topic)) == sorted(cids)


def test_missed_events_are_fetched_after_a_failure() -> None:
    """3.2.1: because they missed out due to some failure, acting as a NACK for relevant events."""
    lab = Lab(8)
    topic = lab.create(AUTHOR)
    lab.subscribe([1, 2], topic)
    lab.world.kill(2)
    missed = [lab.publish(1, topic, b"%d" % number) for number in range(5)]
    lab.world.restart(2)
    lab.run(30.0)
    assert sorted(lab.delivered(2, topic)) == sorted(missed)


def test_topic_history_can_be_walked_back_to_the_first_version() -> None:
    """3.2.2: parent links in the topic descriptor refer to a previous version of the topic."""
    lab = Lab(12)
    cid = lab.create(AUTHOR)
    for size in (100, 200, 300):
        lab.update(AUTHOR, cid, unordered(payload_bytes_max=size))
    newest = lab.world.node(AUTHOR).topics[cid].descriptor
    sizes: list[int] = []
    at: Cid | None = newest.cid
    while at is not None:
        reply = lab.ask(9, lambda call, at=at: FetchBlock(call, at))  # type: ignore[misc]
        assert reply.block is not None
        version = decode_topic(reply.block)
        sizes.append(version.payload_bytes_max)
        at = version.parent
    assert sizes[:3] == [300, 200, 100]
    assert version.cid == cid


# Descriptors, locally first.


def test_a_descriptor_is_fetched_locally_first_and_then_from_the_dht() -> None:
    """3.1 and 3.3.3: a local search; if this fails, a query to the DHT is in order."""
    lab = Lab(SIZE)
    topic = lab.create(AUTHOR)
    lab.subscribe([9], topic)
    asked = [m.cid for m in lab.messages(FindBlock, sender=9)]
    assert topic in asked, "it was not local"
    event = lab.publish(9, topic)
    before = len(lab.messages(FindBlock, sender=9))
    for cid in (topic, event):
        assert lab.ask(9, lambda call, cid=cid: FetchBlock(call, cid)).block is not None  # type: ignore[misc]
    assert len(lab.messages(FindBlock, sender=9)) == before, "by now both are"


def test_what_nobody_has_is_not_found() -> None:
    """3.1: and the caller is told so."""
    lab = Lab(8)
    nowhere = Cid(lab.create(AUTHOR)[:-1] + b"\0")
    assert lab.ask(3, lambda call: FetchBlock(call, nowhere)).refusal is not None
    assert lab.ask(3, lambda call: Subscribe(call, nowhere)).refusal is not None


# Sub-topics.


def test_a_topic_links_to_its_sub_topics_by_name() -> None:
    """3.2.2: sub-topic links are indexed under a # key, commonly by name."""
    lab = Lab(8)
    child = lab.create(AUTHOR, name="tennis")
    parent = lab.topic(lab.create(AUTHOR, name="sports", subtopics={"tennis": child}))
    assert parent.subtopics["tennis"] == child
    assert set(parent.subtopics) == {"tennis", META}


def test_a_subscription_below_a_topic_takes_in_its_sub_topics() -> None:
    """3.1: some expressiveness through the usage of sub-topics."""
    lab = Lab(10)
    leaf = lab.create(AUTHOR, name="clay")
    middle = lab.create(AUTHOR, name="tennis", subtopics={"clay": leaf})
    top = lab.create(AUTHOR, name="sports", subtopics={"tennis": middle})
    lab.subscribe([1], top, below=True)
    lab.subscribe([2], top)
    lab.run(10.0)
    events = {topic: lab.publish(AUTHOR, topic) for topic in (top, middle, leaf)}
    for topic, event in events.items():
        assert lab.delivered(1, topic) == [event]
    assert [lab.delivered(2, topic) for topic in (middle, leaf)] == [[], []]
    assert lab.delivered(2, top) == [events[top]]


def test_a_sub_topic_that_is_added_later_is_taken_in_too() -> None:
    """3.2.2: possible changes can encompass additions of new sub-topics."""
    lab = Lab(10)
    top = lab.create(AUTHOR, name="sports")
    lab.subscribe([1], top, below=True)
    added = lab.create(AUTHOR, name="tennis")
    lab.update(AUTHOR, top, unordered(), subtopics={"tennis": added})
    lab.run(20.0)
    event = lab.publish(AUTHOR, added)
    assert lab.delivered(1, added) == [event]


def test_sub_topics_in_a_circle_are_followed_once() -> None:
    """3.2.1 calls the graph acyclic: hashes see to that, but two topics may name one sub-topic."""
    lab = Lab(10)
    shared = lab.create(AUTHOR, name="shared")
    left = lab.create(AUTHOR, name="left", subtopics={"shared": shared})
    top = lab.create(AUTHOR, name="top", subtopics={"left": left, "shared": shared})
    lab.subscribe([1], top, below=True)
    lab.run(10.0)
    event = lab.publish(AUTHOR, shared)
    assert lab.delivered(1, shared) == [event]


# Visitors, said aloud.


def test_publishing_does_not_make_one_a_member() -> None:
    """Algorithm 4, line 8: only subscribers are given events.

    Deviation: the thesis lets anyone publish into the tree it is part of; one who is not finds a
    member as a *visitor* and hands its event in.
    """
    lab = Lab(10)
    topic = lab.create(AUTHOR)
    lab.subscribe([1], topic)
    event = lab.publish(7, topic)
    lab.run(10.0)
    assert lab.delivered(1, topic) == [event]
    assert topic not in lab.world.node(7).topics
    roles = {m.role for m in lab.messages(Join, sender=7) if m.topic == topic}
    assert roles == {Role.VISITOR}
    assert lab.messages(JoinAccepted)
    assert not lab.records(trace.Delivered, 7)
