"""Plots: small stories in each of which one promise is broken, and no other unless it must be.

Node 0 made the topic; unless told otherwise all three nodes are subscribed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tests.pipeline.stories import Event, Story, cid

ROLES: Final = 3
"""Nodes that a story needs."""


def _everyone(story: Story, *events: Event, but: Iterable[int] = ()) -> None:
    for node in range(ROLES):
        if node not in but:
            story.deliver(node, *events)


def _published(story: Story, count: int, by: int = 0) -> list[Event]:
    story.begin(0, 1, 2)
    return [story.publish(by) for _ in range(count)]


def one_is_missing(story: Story) -> None:
    first, second, third = _published(story, 3)
    _everyone(story, first, second, third, but=[1])
    story.deliver(1, first, third)


def the_last_is_missing_at_two(story: Story) -> None:
    *others, last = _published(story, 3)
    _everyone(story, *others)
    story.deliver(0, last)


def one_gets_nothing(story: Story) -> None:
    _everyone(story, *_published(story, 2), but=[1])


def missing_beside_a_flush(story: Story) -> None:
    events = _published(story, 5)
    story.deliver(0, *events)
    story.flush(events[2], by=(0, 1, 2))
    story.deliver(1, events[0])
    # The fourth was not flushed, whatever the node says; the two before were.
    story.retire(1, events[3])
    story.deliver(1, events[4])
    # This one never says that it let go of anything.
    story.deliver(2, events[0], *events[2:])


def delivered_twice(story: Story) -> None:
    events = _published(story, 2)
    _everyone(story, *events)
    story.deliver(1, events[0])


def delivered_twice_and_marked(story: Story) -> None:
    events = _published(story, 2)
    _everyone(story, *events)
    story.deliver(2, events[1], redelivery=True)


def both_twins_delivered(story: Story) -> None:
    story.begin(0, 1, 2)
    first = story.publish(0, request="asked twice")
    twin = story.publish(2, request="asked twice")
    story.deliver(0, first)
    story.deliver(1, first, twin)
    story.deliver(2, twin)


def two_turned_around(story: Story) -> None:
    events = _published(story, 2)
    _everyone(story, *events, but=[1])
    story.deliver(1, *reversed(events))


def the_last_comes_first(story: Story) -> None:
    first, second, third = _published(story, 3)
    _everyone(story, first, second, third, but=[2])
    story.deliver(2, third, first, second)


def two_publishers_turned_around(story: Story) -> None:
    story.begin(0, 1, 2)
    mine = [story.publish(0) for _ in range(2)]
    yours = [story.publish(2) for _ in range(2)]
    _everyone(story, *mine, *yours, but=[1])
    story.deliver(1, mine[1], yours[1], yours[0], mine[0])


def total_turned_around(story: Story) -> None:
    first, second, third, fourth = _published(story, 4)
    _everyone(story, first, second, third, fourth, but=[1])
    story.deliver(1, first, third, second, fourth)


def total_turned_around_at_the_end(story: Story) -> None:
    first, second, third = _published(story, 3)
    _everyone(story, first, second, third, but=[2])
    story.deliver(2, first, third, second)


def left_out_before_leaving(story: Story) -> None:
    first, second, third = _published(story, 3)
    _everyone(story, first, second, third, but=[1])
    story.deliver(1, first, third)
    story.unsubscribe(1, third)


def child_before_parent(story: Story) -> None:
    story.begin(0, 1, 2)
    parent = story.publish(0)
    story.deliver(0, parent)
    story.deliver(2, parent)
    child = story.publish(2)
    story.deliver(2, child)
    story.deliver(0, child)
    story.deliver(1, child, parent)


def child_without_parent_before_leaving(story: Story) -> None:
    story.begin(0, 1, 2)
    parent = story.publish(0)
    story.deliver(0, parent)
    story.deliver(2, parent)
    child = story.publish(2)
    story.deliver(2, child)
    story.deliver(0, child)
    story.deliver(1, child)
    story.unsubscribe(1, child)


def child_before_one_of_two_parents(story: Story) -> None:
    story.begin(0, 1, 2)
    mine = story.publish(0)
    yours = story.publish(1)
    story.deliver(0, mine, yours)
    story.deliver(1, yours, mine)
    story.deliver(2, yours, mine)
    child = story.publish(0)
    story.deliver(0, child)
    grandchild = story.publish(0)
    story.deliver(0, grandchild)
    story.deliver(1, child, grandchild)
    # Node 2 left, came back from the start, and got the child before what it is linked to.
    story.unsubscribe(2, mine, yours)
    story.subscribe(2)
    story.deliver(2, mine, child, yours, grandchild)


def not_linked_at_all(story: Story) -> None:
    story.begin(0, 1, 2)
    first = story.publish(0)
    _everyone(story, first)
    second = story.publish(2, parents=[])
    _everyone(story, second)


def linked_to_what_is_no_head_any_more(story: Story) -> None:
    story.begin(0, 1, 2)
    first = story.publish(0)
    story.deliver(0, first)
    second = story.publish(0)
    story.deliver(0, second)
    story.deliver(1, first, second)
    story.deliver(2, first, second)
    third = story.publish(2, parents=[first.cid])
    _everyone(story, third)


def linked_to_what_comes_after_it(story: Story) -> None:
    story.begin(0, 1, 2)
    first = story.publish(0)
    story.deliver(0, first)
    second = story.publish(2, parents=[first.cid])
    story.deliver(2, second, first)
    story.deliver(0, second)
    story.deliver(1, first, second)


def two_at_one_position(story: Story) -> None:
    story.create()
    first = story.publish(0)
    story.publish(0)
    story.publish(2, position=2, parents=[first.cid])


def _lead(story: Story, node: int, term: int, heard_by: Iterable[int] = ()) -> None:
    for each in (node, *heard_by):
        leader = story.names[node]
        story.say(each, "leader_changed", topic=story.topic, term=term, leader=leader)


def two_lead_in_one_term(story: Story) -> None:
    story.create()
    story.publish(0)
    _lead(story, 0, 1, heard_by=[1])
    _lead(story, 2, 1)


def three_lead_in_one_term(story: Story) -> None:
    story.create()
    story.publish(0)
    for node in range(ROLES):
        _lead(story, node, 4)


def two_lead_in_a_later_term(story: Story) -> None:
    story.create()
    story.publish(0)
    _lead(story, 0, 1, heard_by=[1, 2])
    story.say(2, "leader_changed", topic=story.topic, term=1, leader=None)
    _lead(story, 2, 2, heard_by=[1])
    _lead(story, 0, 2)


def the_position_of_an_earlier_epoch(story: Story) -> None:
    story.create()
    first = story.publish(0)
    story.publish(0)
    story.publish(0, epoch=8, position=2, parents=[first.cid])


def three_at_one_position(story: Story) -> None:
    story.create()
    first = story.publish(0)
    story.publish(0)
    for node in (1, 2):
        story.publish(node, position=2, parents=[first.cid])


def linked_to_nothing(story: Story) -> None:
    story.create()
    story.publish(0)
    story.publish(0, parents=[])


def linked_to_the_one_before_the_last(story: Story) -> None:
    story.create()
    first = story.publish(0)
    story.publish(0)
    story.publish(0, parents=[first.cid])


def a_position_left_out(story: Story) -> None:
    story.create()
    story.publish(0)
    story.publish(0)
    story.publish(0, position=4)


def another_under_a_number_that_was_acknowledged(story: Story) -> None:
    story.create()
    story.publish(0)
    story.publish(0, number=1, acknowledged=False)


def another_under_that_number_told_twice(story: Story) -> None:
    story.create()
    story.publish(0)
    other = story.publish(0, number=1, acknowledged=False)
    story.tell_published(other)


def another_under_a_number_that_was_delivered(story: Story) -> None:
    story.begin(1)
    story.deliver(1, story.publish(0, acknowledged=False))
    story.publish(0, number=1, acknowledged=False)


def two_events_of_an_injection(story: Story) -> None:
    story.create()
    story.inject(0, story.tag)
    for _ in range(2):
        story.publish(0, injection=story.tag)


def three_events_of_an_injection(story: Story) -> None:
    story.create()
    story.inject(0, story.tag)
    for _ in range(3):
        story.publish(0, injection=story.tag)


def an_injection_at_two_publishers(story: Story) -> None:
    story.create()
    for node in (0, 2):
        story.inject(node, story.tag)
        story.publish(node, injection=story.tag)


def delivered_and_never_published(story: Story) -> None:
    events = _published(story, 2)
    _everyone(story, *events)
    story.deliver(1, Event(cid("nobody's", story.tag), 0, 7, 3))


def delivered_under_anothers_number(story: Story) -> None:
    events = _published(story, 2)
    _everyone(story, *events)
    story.deliver(2, Event(cid("another", story.tag), 0, 7, 2))


def published_in_anothers_name(story: Story) -> None:
    story.create()
    story.publish(0, said_by=2, acknowledged=False)


def published_and_never_injected(story: Story) -> None:
    story.create()
    story.inject(0, f"{story.tag}, really")
    story.publish(0, injection=story.tag)


def published_by_one_who_may_not(story: Story) -> None:
    story.create(allowed=[0])
    story.publish(2)


def published_again_by_one_who_may_not(story: Story) -> None:
    story.create(allowed=[0, 1])
    story.tell_published(story.publish(2))


def published_where_nobody_may(story: Story) -> None:
    story.create(allowed=[])
    story.publish(0)


def delivered_to_one_who_never_subscribed(story: Story) -> None:
    story.begin(0)
    event = story.publish(0)
    story.deliver(0, event)
    story.deliver(1, event)


def delivered_to_one_who_has_left(story: Story) -> None:
    first, second = _published(story, 2)
    _everyone(story, first, second, but=[1])
    story.deliver(1, first)
    story.unsubscribe(1, first)
    story.deliver(1, second)


def delivered_to_one_who_comes_later(story: Story) -> None:
    story.begin(0)
    event = story.publish(0)
    story.deliver(0, event)
    story.deliver(1, event)
    story.subscribe(1, event)


def delivered_from_before_the_start(story: Story) -> None:
    story.begin(0)
    first, second = story.publish(0), story.publish(0)
    story.deliver(0, first, second)
    story.subscribe(1, first)
    story.deliver(1, first, second)


def two_from_before_the_start(story: Story) -> None:
    story.begin(0)
    first, second = story.publish(0), story.publish(0)
    story.deliver(0, first, second)
    story.subscribe(2, second)
    story.deliver(2, first, second)


def one_from_before_the_start_twice(story: Story) -> None:
    story.begin(0)
    event = story.publish(0)
    story.deliver(0, event)
    story.subscribe(1, event)
    story.deliver(1, event, event)


def a_number_left_out(story: Story) -> None:
    story.create()
    for number in (1, 3):
        story.publish(0, number=number)


def the_first_number_left_out(story: Story) -> None:
    story.create()
    story.publish(2, number=2)


def two_numbers_left_out(story: Story) -> None:
    story.create()
    for number in (1, 3, 5):
        story.publish(0, number=number)


def acknowledged_and_unheard_of(story: Story) -> None:
    story.create()
    story.acknowledge(1, Event(cid("nobody's", story.tag), 0, 7, 1))


def acknowledged_twice_and_unheard_of(story: Story) -> None:
    story.create()
    event = Event(cid("nobody's", story.tag), 0, 7, 1)
    story.acknowledge(1, event, "accepted")
    story.acknowledge(1, event)


def acknowledged_beside_another(story: Story) -> None:
    story.create()
    story.publish(0)
    story.acknowledge(0, story.publish(0, number=1, acknowledged=False))
