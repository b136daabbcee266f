"""Causal order (design 7; VCube-PS, 3.2): what an event waits for, and at whose expense."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, cid_of
from pulsarcast.model.topics import DeliveryOrder, Mark, TopicSettings
from pulsarcast.protocol.topic.barrier import CausalBarrier
from pulsarcast.protocol.topic.causality import EXCUSED_MAX, KNOWN_MAX, CausalOrdering
from pulsarcast.protocol.topic.frontier import Frontier
from tests.support.people import (
    ALICE,
    BOB,
    CAROL,
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

TOPIC = topic_of(ALICE, TopicSettings(open=True, order=DeliveryOrder.CAUSAL))
NOBODYS = cid_of(b"nobody's")


class Reader:
    """Delivers as a topic does."""

    def __init__(self, held_back_max: int = 1000) -> None:
        self.frontier = Frontier()
        self.ordering = CausalOrdering(self.frontier, held_back_max)
        self.barrier = CausalBarrier(TOPIC.topic)
        self.got: list[EventDescriptor] = []

    def take(self, *events: EventDescriptor) -> None:
        for event in events:
            if self.frontier.holds(event.publisher, *event.sequence):
                continue
            if self.ordering.held_back(event.publisher, *event.sequence) is not None:
                continue
            if self.ordering.offer(event, 1):
                self.deliver(event)
                self.go_on(event)

    def go_on(self, event: EventDescriptor) -> None:
        while (found := self.ordering.next_of(event.publisher, event.sequence.epoch)) is not None:
            self.deliver(found[0])

    def deliver(self, event: EventDescriptor) -> None:
        self.frontier.add(event.publisher, *event.sequence, event.cid)
        list(self.barrier.take(event))
        self.got.append(event)

    def publish(self, publisher: str, *, room: int = 64) -> EventDescriptor:
        """Say something as one who has delivered all this, without delivering it."""
        who = identity(publisher)
        number = self.frontier.high(who.peer_id, EPOCH) + 1
        links = self.barrier.links(room, (who.peer_id, EPOCH))
        return event_of(who, TOPIC, number, parents=links.parents, marks=links.marks)

    def cids(self) -> list[Cid]:
        return [event.cid for event in self.got]


def test_an_event_waits_for_all_that_it_follows() -> None:
    first, second = event_of(ALICE, TOPIC), event_of(BOB, TOPIC)
    third = event_of(CAROL, TOPIC, **following(first, second))
    reader = Reader()
    reader.take(third)
    assert {mark for mark, _ in reader.ordering.lacking(third)} == {mark_of(first), mark_of(second)}
    reader.take(first)
    assert reader.cids() == [first.cid]
    assert [mark for mark, _ in reader.ordering.lacking(third)] == [mark_of(second)]
    reader.take(second)
    assert reader.cids() == [first.cid, second.cid, third.cid]
    assert len(reader.ordering) == 0


def test_an_event_waits_for_the_one_before_it_whatever_its_parents_say() -> None:
    first, second = event_of(ALICE, TOPIC, 1), event_of(ALICE, TOPIC, 2)
    reader = Reader()
    reader.take(second)
    assert not reader.got
    reader.take(first)
    assert reader.cids() == [first.cid, second.cid]


def test_a_parent_held_back_is_not_asked_for_again() -> None:
    before, parent = event_of(ALICE, TOPIC, 1), event_of(ALICE, TOPIC, 2)
    child = event_of(BOB, TOPIC, **following(parent))
    reader = Reader()
    reader.take(parent, child)
    assert not list(reader.ordering.lacking(child))
    reader.take(before)
    assert reader.cids() == [before.cid, parent.cid, child.cid]


def test_what_came_before_the_start_or_is_retired_counts_as_delivered() -> None:
    old, gone = event_of(ALICE, TOPIC, 5), event_of(BOB, TOPIC, 9)
    child = event_of(CAROL, TOPIC, **following(old, gone))
    reader = Reader()
    reader.frontier.retire(ALICE.peer_id, EPOCH, 5)
    reader.take(child)
    assert not reader.got
    reader.frontier.retire(BOB.peer_id, EPOCH, 9)
    reader.go_on(gone)
    assert reader.cids() == [child.cid]


def test_what_is_excused_is_not_waited_for_and_not_counted_as_ours() -> None:
    gone = event_of(BOB, TOPIC, 9)
    child, later = event_of(CAROL, TOPIC, **following(gone)), event_of(BOB, TOPIC, 10)
    reader = Reader()
    reader.take(child, later)
    assert reader.ordering.needed(BOB.peer_id, EPOCH) == 9
    reader.ordering.excuse(BOB.peer_id, EPOCH, 9)
    reader.go_on(gone)
    assert reader.cids() == [child.cid]
    assert reader.frontier.high(BOB.peer_id, EPOCH) == 0
    for epoch in range(EXCUSED_MAX + 5):
        reader.ordering.excuse(BOB.peer_id, epoch, 1)
    assert len(reader.ordering._excused) <= EXCUSED_MAX


def test_who_waits_for_nothing_any_more_once_its_event_is_flushed_is_not_asked_what_for() -> None:
    """Its first event waited for Bob's fifth and is retired; its third waits for its second."""
    far = Mark(BOB.peer_id, EPOCH, 5)
    reader = Reader()
    reader.take(event_of(MALLORY, TOPIC, 1, parents=(NOBODYS,), marks=(far,)))
    reader.take(third := event_of(MALLORY, TOPIC, 3))
    assert reader.ordering.needed(BOB.peer_id, EPOCH) == 5
    reader.frontier.retire(MALLORY.peer_id, EPOCH, 1)
    assert reader.ordering.next_of(MALLORY.peer_id, EPOCH) is None
    assert reader.ordering.needed(BOB.peer_id, EPOCH) == 0
    reader.take(second := event_of(MALLORY, TOPIC, 2))
    assert reader.cids() == [second.cid, third.cid]
    assert not reader.ordering._blocked


def test_a_requested_event_waits_for_what_its_author_had_seen() -> None:
    seen = event_of(CAROL, TOPIC)
    signed = request_of(BOB, TOPIC.topic, after=(seen.cid,), marks=(mark_of(seen),))
    careless = event_for(ALICE, signed, TOPIC)
    reader = Reader()
    reader.take(careless)
    assert not reader.got
    reader.take(seen)
    assert reader.cids() == [seen.cid, careless.cid]


def test_who_calls_a_known_event_what_it_is_not_is_refused() -> None:
    known = event_of(ALICE, TOPIC, 1)
    reader = Reader()
    reader.take(known)
    for mark in (Mark(ALICE.peer_id, EPOCH, 2), Mark(BOB.peer_id, EPOCH, 1)):
        liar = event_of(MALLORY, TOPIC, parents=(known.cid,), marks=(mark,))
        with pytest.raises(RemoteError, match="not what the event says"):
            reader.ordering.check_links(liar)
    reader.ordering.check_links(event_of(BOB, TOPIC, **following(known)))
    asked = request_of(BOB, TOPIC.topic, after=(known.cid,), marks=(Mark(BOB.peer_id, 1, 1),))
    with pytest.raises(RemoteError, match="not what the event says"):
        reader.ordering.check_links(event_for(ALICE, asked, TOPIC, 2))


def test_two_events_with_one_number_make_nobody_a_liar_who_links_to_either() -> None:
    # The one who published both did lie; those who link to what they have did not.
    ours, theirs = (event_of(MALLORY, TOPIC, payload=text) for text in (b"yes", b"no"))
    reader = Reader()
    reader.take(ours)
    child = event_of(BOB, TOPIC, **following(theirs))
    reader.ordering.check_links(child)
    reader.take(child)
    assert reader.cids() == [ours.cid, child.cid]


def test_what_we_remember_of_others_events_is_bounded() -> None:
    reader = Reader(held_back_max=4)
    for number in range(2, KNOWN_MAX // 64):
        reader.take(event_of(ALICE, TOPIC, number))
    assert len(reader.ordering._known) <= KNOWN_MAX


# Hostile parents.


def _waits_for_ever(who: str, number: int, epoch: int = EPOCH) -> EventDescriptor:
    mark = Mark(identity("a ghost").peer_id, 1, 1_000_000 + number)
    return event_of(identity(who), TOPIC, number, epoch=epoch, parents=(NOBODYS,), marks=(mark,))


def test_parents_that_never_existed_cost_only_their_publisher() -> None:
    reader = Reader(held_back_max=16)
    for number in range(1, 100):
        reader.take(_waits_for_ever("mallory", number))
    assert len(reader.ordering) == 4
    first, second = event_of(ALICE, TOPIC), event_of(BOB, TOPIC)
    reader.take(event_of(CAROL, TOPIC, **following(first, second)), second, first)
    assert len(reader.got) == 3


def test_of_one_publishers_events_the_earliest_stay() -> None:
    reader = Reader(held_back_max=8)
    for number in (9, 8, 3, 2):
        reader.take(event_of(ALICE, TOPIC, number))
    assert reader.ordering.highest(ALICE.peer_id, EPOCH) == 3
    reader.take(event_of(ALICE, TOPIC, 1))
    assert [event.sequence.number for event in reader.got] == [1, 2, 3]


def test_where_all_room_is_taken_the_greediest_gives_way() -> None:
    reader = Reader(held_back_max=8)
    for number in (1, 2):
        for who in ("m1", "m2", "m3", "m4"):
            reader.take(_waits_for_ever(who, number))
    assert len(reader.ordering) == 8
    parent = event_of(ALICE, TOPIC)
    child = event_of(BOB, TOPIC, **following(parent))
    reader.take(child)
    assert reader.ordering.held_back(child.publisher, *child.sequence) == child.cid
    assert len(reader.ordering) == 8
    reader.take(parent)
    assert reader.cids() == [parent.cid, child.cid]


def _all_wait_for(late: EventDescriptor, *, room: int = 4) -> Reader:
    """All room is taken, by one event each of as many publishers, and each follows one event."""
    reader = Reader(held_back_max=room)
    for number in range(room):
        reader.take(event_of(identity(f"p{number}"), TOPIC, **following(late)))
    assert len(reader.ordering) == room
    return reader


def test_what_others_wait_for_takes_the_room_of_one_of_them() -> None:
    """It is behind a gap that is retired: only if it is here do we skip that."""
    late = event_of(ALICE, TOPIC, 5)
    reader = _all_wait_for(late)
    reader.take(late)
    assert reader.ordering.held_back(late.publisher, *late.sequence) == late.cid
    assert reader.ordering.seen(ALICE.peer_id, EPOCH) == 5
    assert len(reader.ordering) == 4
    reader.frontier.retire(ALICE.peer_id, EPOCH, 4)
    reader.go_on(late)
    assert len(reader.got) == 4, "what gave way comes again with a comparison"


def test_so_does_what_comes_before_what_they_wait_for() -> None:
    reader = _all_wait_for(event_of(ALICE, TOPIC, 5))
    earlier = event_of(ALICE, TOPIC, 4)
    reader.take(earlier)
    assert reader.ordering.held_back(earlier.publisher, *earlier.sequence) == earlier.cid


def test_what_nobody_waits_for_takes_nobodys_room() -> None:
    reader = _all_wait_for(event_of(ALICE, TOPIC, 5))
    reader.take(event_of(ALICE, TOPIC, 6), _waits_for_ever("mallory", 1))
    assert len(reader.ordering) == 4
    assert reader.ordering.highest(ALICE.peer_id, EPOCH) == 0
    assert reader.ordering.highest(MALLORY.peer_id, EPOCH) == 0


def test_a_publisher_beyond_its_share_takes_no_room_of_those_that_wait_for_it() -> None:
    reader = Reader(held_back_max=4)
    reader.take(_waits_for_ever("alice", 1, EPOCH - 1))
    late = event_of(ALICE, TOPIC, 5)
    for who in (BOB, CAROL, MALLORY):
        reader.take(event_of(who, TOPIC, **following(late)))
    reader.take(late)
    assert reader.ordering.highest(ALICE.peer_id, EPOCH) == 0
    assert len(reader.ordering) == 4


def test_of_one_publishers_epochs_the_one_that_the_other_follows_stays() -> None:
    reader = Reader(held_back_max=4)
    old = event_of(ALICE, TOPIC, 5)
    new = event_of(ALICE, TOPIC, 1, epoch=EPOCH + 1, **following(old))
    reader.take(new, old)
    assert reader.ordering.held_back(old.publisher, *old.sequence) == old.cid
    assert reader.ordering.held_back(new.publisher, *new.sequence) is None


def test_nothing_is_left_of_what_was_dropped() -> None:
    reader = Reader(held_back_max=4)
    for epoch in range(200):
        reader.take(_waits_for_ever("mallory", 1, epoch), _waits_for_ever("m2", 1, epoch))
    ordering = reader.ordering
    assert len(ordering) <= 4
    assert len(ordering._blocked) <= 4
    assert len(ordering._waits) <= 4
    assert sum(ordering._counts.values()) == len(ordering)
    assert sum(ordering._bytes.values()) == ordering._waiting_bytes


# Whatever comes first.

NAMES = ("alice", "bob", "carol", "dave")


def _converse(rng: Random, length: int, room: int) -> list[EventDescriptor]:
    """What some people say to each other, each having heard some of it, merges included."""
    readers = {name: Reader() for name in NAMES}
    said: list[EventDescriptor] = []
    for _ in range(length):
        name = rng.choice(NAMES)
        reader = readers[name]
        for event in rng.sample(said, rng.randint(0, len(said))):
            reader.take(event)
        while len(reader.barrier) > room:
            who = identity(name)
            links = reader.barrier.links(room, (who.peer_id, EPOCH))
            number = reader.frontier.high(who.peer_id, EPOCH) + 1
            merge = event_of(
                who,
                TOPIC,
                number,
                payload=b"",
                parents=links.parents,
                marks=links.marks,
                is_merge=True,
            )
            reader.take(merge)
            said.append(merge)
        event = reader.publish(name)
        assert len(event.parents) <= room
        reader.take(event)
        said.append(event)
        assert reader.got[-1] is event, "whoever says something has delivered all that it follows"
    return said


def _past(event: EventDescriptor, by_cid: dict[Cid, EventDescriptor]) -> set[Cid]:
    past: set[Cid] = set()
    ahead = list(event.parents)
    while ahead:
        cid = ahead.pop()
        if cid not in past:
            past.add(cid)
            ahead.extend(by_cid[cid].parents)
    return past


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 24), st.sampled_from([2, 3, 64]), st.data())
def test_any_arrival_gives_a_causal_order_of_everything(
    seed: int, length: int, room: int, data: st.DataObject
) -> None:
    said = _converse(Random(seed), length, room)
    by_cid = {event.cid: event for event in said}
    reader = Reader()
    reader.take(*(said[at] for at in data.draw(st.permutations(range(len(said))))))
    assert sorted(reader.cids()) == sorted(by_cid)
    assert len(reader.ordering) == 0
    assert not reader.ordering._blocked
    done: set[Cid] = set()
    numbers: dict[bytes, int] = {}
    for event in reader.got:
        assert _past(event, by_cid) <= done
        assert event.sequence.number == numbers.get(event.publisher, 0) + 1
        numbers[event.publisher] = event.sequence.number
        done.add(event.cid)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 20), st.integers(0, 6), st.data())
def test_with_little_room_nothing_overtakes_and_what_comes_again_is_delivered(
    seed: int, length: int, room: int, data: st.DataObject
) -> None:
    said = _converse(Random(seed), length, 64)
    by_cid = {event.cid: event for event in said}
    reader = Reader(held_back_max=room)
    for _ in range(len(said)):
        reader.take(*(said[at] for at in data.draw(st.permutations(range(len(said))))))
        assert len(reader.ordering) <= max(room, 0)
        if len(reader.got) == len(said):
            break
    assert sorted(reader.cids()) == sorted(by_cid)
    done: set[Cid] = set()
    for event in reader.got:
        assert _past(event, by_cid) <= done
        done.add(event.cid)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_whatever_comes_is_retired_or_excused_only_what_waits_is_asked_for(seed: int) -> None:
    rng = Random(seed)
    people = (ALICE, BOB, CAROL)
    reader = Reader(held_back_max=12)
    for _ in range(60):
        who, number = rng.choice(people), rng.randint(1, 8)
        place = (who.peer_id, EPOCH, number)
        chance = rng.random()
        if chance < 0.75:
            others = [other for other in people if other is not who and rng.random() < 0.5]
            marks = [Mark(other.peer_id, EPOCH, rng.randint(1, 8)) for other in others]
            parents = sorted(cid_of(rng.randbytes(8)) for _ in marks)
            reader.take(event_of(who, TOPIC, number, parents=parents, marks=marks))
        elif chance < 0.85:
            reader.frontier.retire(*place)
        elif chance < 0.9:
            reader.frontier.add(*place, None)
        else:
            reader.ordering.excuse(*place)
        while (found := reader.ordering.next_of(who.peer_id, EPOCH)) is not None:
            reader.deliver(found[0])
        for each in people:
            reader.ordering.needed(each.peer_id, EPOCH)
        blocked = [each for waiting in reader.ordering._blocked.values() for each in waiting]
        assert sorted(blocked) == sorted(reader.ordering._waits)
        for source in blocked:
            assert reader.ordering.held_back(*source, reader.frontier.high(*source) + 1)
