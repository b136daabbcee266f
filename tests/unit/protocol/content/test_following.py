"""One who follows a topic by content: what it says of that, and what members answer it."""

from collections.abc import Callable
from typing import cast

import pytest
from msgspec import structs

from pulsarcast.model import trace
from pulsarcast.model.errors import Conflict, Unavailable
from pulsarcast.model.filters import Filter, parse
from pulsarcast.model.ids import Cid, cid_of
from pulsarcast.model.requests import Sequence, sign_request
from pulsarcast.model.topic_types import (
    AttributeRule,
    DeliveryOrder,
    Mark,
    Retention,
)
from pulsarcast.model.topics import next_version
from pulsarcast.protocol.content import following
from pulsarcast.protocol.content import members as members_module
from pulsarcast.protocol.content.members import id_of
from pulsarcast.protocol.content.messages import CompareContent, ContentCompared, MatchedEvent
from pulsarcast.protocol.content.shape import Shape
from pulsarcast.protocol.content.trees import TREES_MAX, Trees
from pulsarcast.protocol.effects import Load, Persist
from pulsarcast.protocol.inputs import (
    Publish,
    Subscribe,
    SubscribeContent,
    TimerFired,
    UnsubscribeContent,
)
from pulsarcast.protocol.messages import EventMessage
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import LoadLog, MarkState
from pulsarcast.protocol.topic import log as log_module
from pulsarcast.protocol.topic.versions import Versions
from tests.support.lab import Lab
from tests.support.people import (
    ALICE,
    BOB,
    CAROL,
    CREATED_US,
    EPOCH,
    event_for,
    event_of,
    mark_of,
    meta_of,
    nonce,
    topic_of,
    unordered,
    version_of,
)
from tests.support.solo import Parent, below

AUTHOR, MEMBER, READER, OTHER = 0, 1, 2, 3
SETTINGS = unordered(
    attributes=(AttributeRule("price", "float", 0.0, 100.0),), content_routing=True
)


def lab(*, puppets: tuple[int, ...] = ()) -> tuple[Lab, Cid]:
    made = Lab(4, puppets=list(puppets))
    topic = made.create(AUTHOR, SETTINGS)
    made.subscribe([AUTHOR, MEMBER], topic)
    return made, topic


def publish(made: Lab, node: int, topic: Cid, price: float) -> Cid:
    reply = made.ask(node, lambda call: Publish(call, topic, b"", attributes={"price": price}))
    assert reply.cid is not None, reply.refusal
    made.run(5.0)
    return reply.cid


def read(made: Lab, topic: Cid, where: str = "price < 10", sid: int = 1) -> None:
    reply = made.ask(READER, lambda call: SubscribeContent(call, topic, where, sid))
    assert reply.refusal is None, reply.refusal
    made.run(5.0)


def test_its_trace_says_from_where_on_and_by_which_filters() -> None:
    made, topic = lab()
    before = made.event(publish(made, AUTHOR, topic, 5.0))
    read(made, topic)
    read(made, topic, "price > 90", sid=2)
    first, second = made.records(trace.Subscribed, READER)
    start = (Mark(before.publisher, before.sequence.epoch, before.sequence.number),)
    assert (first.topic, first.start, first.filters) == (topic, start, ("price < 10",))
    assert (second.start, second.filters) == (start, ("price < 10", "price > 90"))


def test_an_event_of_a_version_that_it_does_not_know_comes_once_that_was_found() -> None:
    made, topic = lab()
    read(made, topic)
    settings = unordered(
        attributes=SETTINGS.attributes, content_routing=True, payload_bytes_max=1000
    )
    made.update(AUTHOR, topic, settings)
    event = publish(made, AUTHOR, topic, 5.0)
    assert made.event(event).version != topic
    assert made.delivered(READER, topic) == [event], "before the next comparison"
    made.run(60.0)
    assert made.delivered(READER, topic) == [event], "and once"
    assert made.world.node(READER).counts["content_routed"] == 1


@pytest.mark.parametrize("order", [DeliveryOrder.NONE, DeliveryOrder.PER_PUBLISHER])
def test_what_a_member_brings_of_those_who_may_publish_no_longer_is_judged_by_their_marks(
    order: DeliveryOrder,
) -> None:
    made = Lab(5, parameters=Parameters(version_marks=1))
    settings = structs.replace(SETTINGS, order=order)
    topic = made.create(AUTHOR, settings)
    made.subscribe([AUTHOR, MEMBER, OTHER], topic)
    read(made, topic)
    made.world.kill(READER)
    before = [publish(made, node, topic, 5.0) for node in (MEMBER, OTHER)]
    publishers = (made.peer(AUTHOR),)
    made.update(AUTHOR, topic, structs.replace(settings, open=False, publishers=publishers))
    after = publish(made, AUTHOR, topic, 5.0)
    made.world.restart(READER)
    made.run(200.0)
    assert set(made.delivered(READER, topic)) == {*before, after}
    assert made.world.node(READER).footprint()["mark_blocks"]


def test_what_does_not_fit_into_one_answer_is_told_in_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(members_module, "MARKS_PAGE", 1)
    made, topic = lab(puppets=(READER,))
    events = [publish(made, node, topic, 5.0) for node in (AUTHOR, MEMBER)]
    question = CompareContent(1, topic, ("price < 10 or price >= 10",), 0, 0, 0, b"", ())
    made.say(READER, made.peer(AUTHOR), question)
    heard = [each for _, each in made.puppets[READER].heard if isinstance(each, ContentCompared)]
    assert [(len(each.marks), each.more) for each in heard] == [(1, True), (1, False)]
    publishers = {mark.publisher for each in heard for mark in each.marks}
    assert publishers == {made.event(event).publisher for event in events}


def asked(made: Lab, question: CompareContent) -> ContentCompared:
    """What the author answers a puppet."""
    heard = made.puppets[READER].heard
    heard.clear()
    made.say(READER, made.peer(AUTHOR), question)
    (answer,) = [each for _, each in heard if isinstance(each, ContentCompared)]
    return answer


def test_who_asks_again_is_told_of_the_numberings_that_moved_since() -> None:
    made, topic = lab(puppets=(READER,))
    publish(made, MEMBER, topic, 5.0)
    publish(made, AUTHOR, topic, 5.0)
    question = CompareContent(1, topic, ("price < 10",), 0, 0, 0, b"")
    first = asked(made, question)
    publish(made, AUTHOR, topic, 50.0)
    place = first.place
    again = asked(
        made, structs.replace(question, request=2, log=first.log, place=place, base=place)
    )
    assert [(mark.publisher, mark.high) for mark in again.marks] == [(made.peer(AUTHOR), 2)]


def test_who_shows_where_it_stands_is_told_only_of_what_lies_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(members_module, "SOUGHT_MAX", 1)
    made, topic = lab(puppets=(READER,))
    events = [made.event(publish(made, AUTHOR, topic, 5.0)) for _ in range(3)]
    epoch, number = events[1].sequence
    shown = MarkState(events[1].publisher, epoch, 0, number, None)
    answer = asked(made, CompareContent(1, topic, ("price < 10",), 0, 0, 0, b"", (shown,)))
    assert answer.order == id_of(events[2].cid)
    assert answer.blocks == (events[2].block,)


def test_a_page_of_the_log_that_was_read_for_one_question_is_there_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(members_module, "PAGE", 2)
    made, topic = lab(puppets=(READER,))
    for _ in range(5):
        publish(made, AUTHOR, topic, 5.0)

    def pages_read() -> list[int]:
        effects = [effect for each in made.taken if each.node == AUTHOR for effect in each.effects]
        queries = [effect.query for effect in effects if isinstance(effect, Load)]
        return [query.first for query in queries if isinstance(query, LoadLog)]

    question = CompareContent(1, topic, ("price < 10",), 0, 0, 0, b"")
    made.taken.clear()
    first = asked(made, question)
    assert pages_read() == [1, 3, 5]
    assert asked(made, question) == first
    assert pages_read() == [1, 3, 5]


def test_so_many_trees_are_known_and_the_one_used_longest_ago_goes() -> None:
    trees = Trees()
    topics = [cid_of(b"%d" % number) for number in range(TREES_MAX + 1)]
    shapes: list[Shape] = [trees.shape(topic, "price") for topic in topics[:TREES_MAX]]
    assert trees.shape(topics[0], "price") is shapes[0]
    trees.shape(topics[-1], "price")
    assert len(trees) == TREES_MAX
    assert trees.known(topics[0], "price") is shapes[0]
    assert trees.known(topics[1], "price") is None


def end(made: Lab, topic: Cid, sid: int = 1) -> None:
    assert made.ask(READER, lambda call: UnsubscribeContent(call, topic, sid)).refusal is None
    made.run(5.0)


def test_a_filter_that_ended_and_comes_again_is_kept_again() -> None:
    """Its home remembers that it ended, and took the new one for an older one."""
    made, topic = lab()
    for _ in range(2):
        read(made, topic)
        end(made, topic)
    read(made, topic)
    event = publish(made, AUTHOR, topic, 5.0)
    assert made.delivered(READER, topic) == [event], "before the next comparison"
    assert made.world.node(READER).counts["content_routed"] == 1


def test_what_it_published_is_still_known_by_its_key_once_its_last_filter_has_ended() -> None:
    made, topic = lab()
    read(made, topic)
    published: list[Cid | None] = []
    for _ in range(2):
        said = Publish(0, topic, b"", attributes={"price": 50.0}, idempotency_key=b"key")
        reply = made.ask(READER, lambda call: structs.replace(said, call=call))  # noqa: B023
        published.append(reply.cid)
        if len(published) == 1:
            end(made, topic)
    assert published[0] == published[1] is not None
    read(made, topic)
    event = publish(made, AUTHOR, topic, 5.0)
    assert made.delivered(READER, topic) == [event]


def test_who_still_waits_for_its_start_when_its_filter_ends_is_answered() -> None:
    made, topic = lab()
    asked = [
        made.start(READER, lambda call: SubscribeContent(call, topic, "price < 10", 1))
        for _ in range(2)
    ]
    node = made.world.node(READER)
    made.world.run_until(
        lambda: bool(node.content.topics), made.world.now + 1.0, check_every_s=0.01
    )
    assert not node.content.topics[topic].started
    end(made, topic)
    assert all(asked)


def test_all_who_wait_for_a_start_that_nobody_knows_are_told_so() -> None:
    made = Lab(3)
    topic = made.create(AUTHOR, SETTINGS)
    made.run(5.0)
    made.world.kill(AUTHOR)
    asked = [
        made.start(READER, lambda call: SubscribeContent(call, topic, "price < 10", 1))
        for _ in range(2)
    ]
    made.run(120.0)
    errors = [[reply.refusal for reply in replies] for replies in asked]
    assert (
        errors
        == [
            [
                Unavailable(
                    "no member of this topic was found: connect to peers that follow it"
                ).refusal
            ]
        ]
        * 2
    )


def test_an_event_whose_right_goes_while_the_disk_takes_it_is_not_given_to_ourselves() -> None:
    made, topic = lab()
    read(made, topic)
    node = made.world.node(READER)
    replies = made.start(READER, lambda call: Publish(call, topic, b"", attributes={"price": 5.0}))
    made.run(1e-9)
    assert node.numberings.last_of(topic) is not None
    assert not replies
    versions = node.content.topics[topic].versions
    revoked = structs.replace(SETTINGS, open=False)
    author = made.world.node(AUTHOR).turn.identity
    versions.add(version_of(versions.current, revoked, signer=author))
    made.run(5.0)
    assert replies
    assert not made.delivered(READER, topic)


def test_events_that_no_member_gives_a_turn_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that sends what its own log does not list would fill our memory."""
    monkeypatch.setattr(following, "EARLY_BYTES_MAX", 2000)
    order = DeliveryOrder.PER_PUBLISHER
    made = Lab(4)
    topic = made.create(AUTHOR, structs.replace(SETTINGS, order=order))
    made.subscribe([AUTHOR, MEMBER], topic)
    read(made, topic)
    reader = made.world.node(READER).content.topics[topic]
    descriptor = made.topic(topic)
    events = [
        event_of(BOB, descriptor, number, attributes={"price": 5.0}) for number in range(1, 50)
    ]
    names = b"".join(id_of(event.cid) for event in events)
    blocks = tuple(event.block for event in events)
    unlisted = ContentCompared(1, topic, 1, 0, 0, b"", blocks, (), False)
    for decides in (True, False):
        reader.compared(made.peer(MEMBER), unlisted, decides)
    assert reader.held_back == 2000 // len(blocks[0])
    listed = structs.replace(unlisted, order=names)
    reader.compared(made.peer(AUTHOR), listed, True)
    assert reader.held_back == 0
    assert reader.frontier.high(BOB.peer_id, EPOCH) == 49


def test_a_member_acts_on_a_version_that_it_finds_for_the_sake_of_others() -> None:
    """It is a home, too, and an event came there before the word of its version."""
    first = topic_of(ALICE, SETTINGS)
    event = event_of(BOB, first, attributes={"price": 5.0})
    flushed = next_version(
        ALICE,
        first,
        structs.replace(SETTINGS, retention=Retention(count=1)),
        created=CREATED_US,
        valid_until=[mark_of(event)],
        flushed=[mark_of(event)],
    )
    parent = Parent("alice", [first.block, meta_of(ALICE).block, flushed.block])
    solo = below(parent)
    solo.subscribe(first.cid)
    solo.hear(parent.peer, EventMessage(event.block, 1))
    found: list[Versions | None] = []
    find = solo.node.content.spaces.find
    now = solo.node.turn.after(0.0, lambda: find(first.cid, flushed.cid, found.append))
    solo.give(TimerFired(now))
    assert found
    assert solo.version(first.cid) == flushed
    (mark,) = solo.topic(first.cid).frontier.marks()
    assert mark.retired == 1
    saved = [row.key for row in solo.store.rows() if row.table == "topic"]
    assert flushed.cid in saved
    assert [each.version for each in solo.records if isinstance(each, trace.TopicVersion)]


@pytest.mark.parametrize("order", [DeliveryOrder.NONE, DeliveryOrder.PER_PUBLISHER])
def test_what_only_a_member_brings_waits_for_its_version_too(order: DeliveryOrder) -> None:
    """Members confirmed it while its version was looked for, and it was taken for had."""
    settings = structs.replace(SETTINGS, order=order)
    made = Lab(4)
    topic = made.create(AUTHOR, settings)
    made.subscribe([AUTHOR, MEMBER], topic)
    read(made, topic)
    made.update(AUTHOR, topic, structs.replace(settings, payload_bytes_max=1000))
    made.world.node(AUTHOR).content.probing.publish = lambda *_: None  # type: ignore[method-assign]
    events = [publish(made, AUTHOR, topic, 5.0) for _ in range(2)]
    made.run(120.0)
    assert made.delivered(READER, topic) == events


def test_a_filter_on_an_attribute_of_a_newer_version_is_there_after_a_restart() -> None:
    made, topic = lab()
    read(made, topic)
    rules = (*SETTINGS.attributes, AttributeRule("size", "float", 0.0, 100.0))
    made.update(AUTHOR, topic, structs.replace(SETTINGS, attributes=rules))
    publish(made, AUTHOR, topic, 5.0)
    made.run(60.0)
    read(made, topic, "size < 10", sid=2)
    made.world.kill(READER)
    made.run(5.0)
    made.world.restart(READER)
    made.run(60.0)
    said = Publish(0, topic, b"", attributes={"size": 5.0})
    reply = made.ask(AUTHOR, lambda call: structs.replace(said, call=call))
    made.run(60.0)
    assert reply.cid in made.delivered(READER, topic)


def test_a_filter_on_an_attribute_that_a_newer_version_dropped_keeps_nothing_back() -> None:
    """Members could not read it any more, and answered none of what its node asked."""
    made = Lab(4)
    rule = AttributeRule("size", "float", 0.0, 100.0)
    settings = structs.replace(SETTINGS, attributes=(*SETTINGS.attributes, rule))
    topic = made.create(AUTHOR, settings)
    made.subscribe([AUTHOR, MEMBER], topic)
    read(made, topic)
    read(made, topic, "size < 10", sid=2)
    made.update(AUTHOR, topic, SETTINGS)
    made.world.node(AUTHOR).content.probing.publish = lambda *_: None  # type: ignore[method-assign]
    first = publish(made, AUTHOR, topic, 5.0)
    made.run(120.0)
    assert made.delivered(READER, topic) == [first]
    read(made, topic, "price > 90", sid=3)
    made.world.kill(READER)
    made.run(5.0)
    made.world.restart(READER)
    second = publish(made, AUTHOR, topic, 5.0)
    made.run(120.0)
    assert made.delivered(READER, topic)[-1] == second


def test_who_asks_with_many_filters_is_answered_in_smaller_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(members_module, "MATCHED_MAX", 8)
    made, topic = lab(puppets=(READER,))
    events = [publish(made, AUTHOR, topic, 5.0) for _ in range(5)]
    filters = tuple(f"price < {10 + number}" for number in range(4))
    made.say(READER, made.peer(AUTHOR), CompareContent(1, topic, filters, 0, 0, 0, b"", ()))
    heard = [each for _, each in made.puppets[READER].heard if isinstance(each, ContentCompared)]
    (answer,) = heard
    assert (answer.place, answer.newest) == (2, 5)
    assert answer.order == b"".join(map(id_of, events[:2]))


def test_a_filter_is_held_against_an_event_once_however_many_boxes_it_lies_in() -> None:
    rules = tuple(AttributeRule(name, "float", 0.0, 100.0) for name in "pq")
    stairs = " or ".join(f"p > {k} and q < {50 + k} and not q = {k}" for k in range(1, 20))
    wanted = parse(stairs, rules)
    assert len(wanted.cover()) > 10
    topic = topic_of(BOB, unordered(attributes=rules))
    event = event_of(BOB, topic, attributes={"p": 30.0, "q": 40.0})
    asked: list[object] = []

    class Counting:
        cover = staticmethod(wanted.cover)
        matches = staticmethod(asked.append)

    page = members_module._Page(((1, event),))
    assert page.matching(cast(Filter, Counting()), 0, 1) == []
    assert len(asked) == 1


def test_a_filter_that_cannot_be_routed_leaves_the_one_before_it_in_its_place() -> None:
    made = Lab(4)
    rule = AttributeRule("hot", "bool")
    topic = made.create(AUTHOR, structs.replace(SETTINGS, attributes=(*SETTINGS.attributes, rule)))
    made.subscribe([AUTHOR, MEMBER], topic)
    read(made, topic)
    reply = made.ask(READER, lambda call: SubscribeContent(call, topic, "hot", 1))
    assert reply.refusal is not None
    made.run(5.0)
    event = publish(made, AUTHOR, topic, 5.0)
    assert made.delivered(READER, topic) == [event], "before the next comparison"
    assert made.world.node(READER).counts["content_routed"] == 1


def test_an_event_whose_version_was_looked_for_when_we_left_does_not_come_any_more() -> None:
    """It was written into the log of a topic that our disk had forgotten, and delivered."""
    made, topic = lab()
    read(made, topic)
    node = made.world.node(READER)
    left = node.content.topics[topic]
    looking: list[Callable[[Versions | None], None]] = []
    node.content.spaces.find = lambda *given: looking.append(given[2])  # type: ignore[method-assign]
    newer = structs.replace(SETTINGS, payload_bytes_max=1000)
    made.update(AUTHOR, topic, newer)
    event = made.event(publish(made, AUTHOR, topic, 5.0))
    assert looking
    end(made, topic)
    _, version = made.world.node(AUTHOR).topics[topic].versions.all()
    assert event.version == version.cid
    left.versions.add(version)
    for then in looking:
        then(left.versions)
    assert not [each for each in node.turn.effects if isinstance(each, Persist)]


def test_who_missed_many_versions_finds_all_of_them() -> None:
    """After 64 it gave up, and never knew the version of an event again."""
    made, topic = lab()
    read(made, topic)
    for number in range(70):
        made.update(AUTHOR, topic, structs.replace(SETTINGS, payload_bytes_max=1000 + number))
    event = publish(made, AUTHOR, topic, 5.0)
    made.run(120.0)
    assert made.delivered(READER, topic) == [event]


def test_what_a_log_still_holds_is_not_delivered_once_its_last_filter_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next log begins at 1 again: late ones would stand in the way of its events."""
    monkeypatch.setattr(log_module, "PAGE", 2)
    made, topic = lab()
    read(made, topic)
    said = Publish(0, topic, b"", attributes={"price": 5.0})
    for node in (*[AUTHOR] * 40, READER):
        made.ask(node, lambda call: structs.replace(said, call=call))
    made.run(60.0)
    made.world.kill(READER)
    made.run(1.0)
    made.world.restart(READER)
    topics = made.world.node(READER).content.topics
    assert made.world.run_until(lambda: topic in topics, made.world.now + 5.0, check_every_s=0.0001)
    assert topics[topic].log.is_replaying
    made.start(READER, lambda call: UnsubscribeContent(call, topic, 1))
    made.start(READER, lambda call: SubscribeContent(call, topic, "price < 10", 1))
    made.run(30.0)
    new = [publish(made, AUTHOR, topic, 5.0) for _ in range(3)]
    made.run(30.0)
    records = [seen.record for seen in made.seen if seen.node == READER]
    ended = max(at for at, each in enumerate(records) if isinstance(each, trace.Unsubscribed))
    assert [each.event for each in records[ended:] if isinstance(each, trace.Delivered)] == new


def test_comings_and_goings_wait_until_the_disk_has_forgotten_and_the_last_counts() -> None:
    made, topic = lab()
    read(made, topic)
    publish(made, READER, topic, 5.0)

    def end(call: int) -> UnsubscribeContent:
        return UnsubscribeContent(call, topic, 1)

    def begin(call: int) -> SubscribeContent:
        return SubscribeContent(call, topic, "price < 10", 1)

    answers = [made.start(READER, make) for make in (end, begin)]
    answers.append(made.start(READER, lambda call: Subscribe(call, topic)))
    made.run(60.0)
    assert [each[0].refusal for each in answers] == [
        None,
        None,
        Conflict("the node reads this topic by filters: unsubscribe from it first").refusal,
    ]
    answers = [made.start(READER, make) for make in (end, begin, end)]
    made.run(60.0)
    assert [each[0].refusal for each in answers] == [None] * 3
    assert topic not in made.world.node(READER).content.topics


def test_a_filter_to_which_nothing_came_yet_is_there_after_a_restart() -> None:
    made, topic = lab()
    read(made, topic)
    made.world.kill(READER)
    made.run(5.0)
    made.world.restart(READER)
    made.run(5.0)
    event = publish(made, AUTHOR, topic, 5.0)
    assert made.delivered(READER, topic) == [event]


def test_a_member_that_names_a_version_that_nobody_has_is_left_for_another() -> None:
    made, topic = lab()
    read(made, topic)
    made.run(60.0)
    node = made.world.node(READER)
    reader = node.content.topics[topic]
    member, other = reader.comparing.members
    made_up = structs.replace(made.topic(topic), cid=cid_of(b"nobody has it"))
    event = event_of(BOB, made_up, topic_cid=topic, attributes={"price": 5.0})
    looking: list[Callable[[Versions | None], None]] = []

    def find(_: Cid, __: Cid, then: Callable[[Versions | None], None], *, always: bool) -> None:
        looking.append(then)

    node.content.spaces.find = find  # type: ignore[method-assign, assignment]
    answer = ContentCompared(1, topic, 1, 0, 0, b"", (event.block,), (), False)
    assert not reader.compared(member, answer, True)
    (then,) = looking
    then(None)
    assert reader.comparing.members == [other]


def test_a_request_that_two_publish_is_delivered_once_though_we_restart_in_between() -> None:
    puppet = 3
    made, topic = lab(puppets=(puppet,))
    read(made, topic)
    request = sign_request(
        ALICE,
        topic=topic,
        payload=b"please",
        attributes={"price": 5.0},
        created=CREATED_US,
        nonce=nonce("please"),
        sequence=Sequence(EPOCH, 1),
    )
    first, second = (event_for(each, request, made.topic(topic)) for each in (BOB, CAROL))
    made.say(puppet, made.peer(READER), MatchedEvent(first.block, 2))
    made.world.kill(READER)
    made.run(1.0)
    made.world.restart(READER)
    made.run(5.0)
    made.say(puppet, made.peer(READER), MatchedEvent(second.block, 2))
    assert made.log(READER, topic) == [first]
    assert set(made.delivered(READER, topic)) == {first.cid}
