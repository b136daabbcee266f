"""True stories: histories in which something looks wrong at first and is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.pipeline.stories import Event, Line, Story, Trace, name_of, tell

_NAMES = [name_of(node) for node in range(3)]
_DRIVER: Final = "driver"


def _plain(order: str) -> Callable[[str], list[Line]]:
    def told(run_id: str) -> list[Line]:
        story = Story(run_id, _NAMES, order)
        story.begin(0, 1, 2)
        for node in (0, 1, 0, 2) if order != "total" else (0, 0, 0, 0):
            event = story.publish(node)
            for each in range(3):
                story.deliver(each, event)
        return tell([story], run_id)

    return told


def _any_order_where_none_is_promised(run_id: str) -> list[Line]:
    story = Story(run_id, _NAMES)
    story.begin(0, 1, 2)
    events = [story.publish(0) for _ in range(4)]
    story.deliver(0, *events)
    story.deliver(1, *reversed(events))
    story.deliver(2, events[2], events[0], events[3], events[1])
    return tell([story], run_id)


def _publishers_in_any_order_among_themselves(run_id: str) -> list[Line]:
    story = Story(run_id, _NAMES, "per-publisher")
    story.begin(0, 1, 2)
    mine = [story.publish(0) for _ in range(2)]
    yours = [story.publish(2) for _ in range(2)]
    story.deliver(0, *mine, *yours)
    story.deliver(1, *yours, *mine)
    story.deliver(2, yours[0], mine[0], mine[1], yours[1])
    return tell([story], run_id)


def _one_of_two_twins_each(run_id: str) -> list[Line]:
    story = Story(run_id, _NAMES)
    story.begin(0, 1, 2)
    first = story.publish(0, request="asked twice")
    twin = story.publish(1, request="asked twice")
    story.deliver(0, first)
    story.deliver(1, twin)
    story.deliver(2, twin)
    return tell([story], run_id)


def _twins_on_both_sides_of_a_start(run_id: str) -> list[Line]:
    story = Story(run_id, _NAMES)
    story.begin(0)
    first = story.publish(0, request="asked twice")
    twin = story.publish(1, request="asked twice")
    story.deliver(0, first)
    story.subscribe(2, first)
    assert twin.number == 1
    return tell([story], run_id)


def _left_and_came_back(run_id: str) -> list[Line]:
    story = Story(run_id, _NAMES, "per-publisher")
    story.begin(0, 1)
    first = story.publish(0)
    story.deliver(1, first)
    story.unsubscribe(1, first)
    second = story.publish(0)
    story.subscribe(1)
    third = story.publish(0)
    story.deliver(0, first, second, third)
    story.deliver(1, first, second, third)
    return tell([story], run_id)


def _left_before_it_had_all(run_id: str) -> list[Line]:
    story = Story(run_id, _NAMES)
    story.begin(0, 1)
    events = [story.publish(0) for _ in range(3)]
    story.deliver(0, *events)
    story.deliver(1, events[0])
    story.unsubscribe(1, events[1])
    return tell([story], run_id)


def _let_off_by_retention(run_id: str) -> list[Line]:
    story = Story(run_id, _NAMES, "total")
    story.create(retention_count=2)
    for node in (0, 1):
        story.subscribe(node)
    events = [story.publish(0) for _ in range(5)]
    story.deliver(0, *events)
    story.deliver(1, events[0])
    story.retire(1, events[2])
    story.deliver(1, events[3], events[4])
    return tell([story], run_id)


def _let_off_by_a_retention_that_was(counts: tuple[int, int]) -> Callable[[str], list[Line]]:
    """The author thought better of it: under one of both versions something was let go of."""

    def told(run_id: str) -> list[Line]:
        story = Story(run_id, _NAMES)
        story.create(retention_count=counts[0])
        story.subscribe(0)
        story.subscribe(1)
        events = [story.publish(0) for _ in range(5)]
        story.deliver(0, *events)
        story.flush(retention_count=counts[1])
        story.retire(1, events[2])
        story.deliver(1, events[3], events[4])
        return tell([story], run_id)

    return told


def _let_off_by_a_flush(run_id: str) -> list[Line]:
    story = Story(run_id, _NAMES, "total")
    story.begin(0, 1)
    events = [story.publish(0) for _ in range(3)]
    story.deliver(0, *events)
    story.deliver(1, events[0])
    story.retire(1, events[2])
    story.flush(events[2], by=(0, 1))
    last = story.publish(0)
    story.deliver(0, last)
    story.deliver(1, last)
    return tell([story], run_id)


def _causal_from_a_start_on(run_id: str) -> list[Line]:
    story = Story(run_id, _NAMES, "causal")
    story.begin(0, 1)
    first = story.publish(0)
    story.deliver(0, first)
    story.deliver(1, first)
    second = story.publish(1)
    story.deliver(0, second)
    story.deliver(1, second)
    story.subscribe(2, first)
    story.deliver(2, second)
    third = story.publish(2)
    for node in range(3):
        story.deliver(node, third)
    return tell([story], run_id)


def _causal_and_concurrent(run_id: str) -> list[Line]:
    story = Story(run_id, _NAMES, "causal")
    story.begin(0, 1, 2)
    mine, yours = story.publish(0), story.publish(1)
    story.deliver(0, mine, yours)
    story.deliver(1, yours, mine)
    story.deliver(2, yours, mine)
    both = story.publish(2)
    assert set(both.parents) == {mine.cid, yours.cid}
    for node in range(3):
        story.deliver(node, both)
    return tell([story], run_id)


def _causal_without_a_subscription(run_id: str) -> list[Line]:
    """Whoever publishes from outside has been delivered nothing, and links to what it likes."""
    story = Story(run_id, _NAMES, "causal")
    story.begin(0)
    first = story.publish(0)
    story.deliver(0, first)
    second = story.publish(2, parents=[first.cid])
    story.deliver(0, second)
    return tell([story], run_id)


# Stories with lives in them: a driver kills nodes, and they start again.


def _traces(run_id: str) -> tuple[Trace, Trace, Trace]:
    nodes = [Trace(run_id, name) for name in (*_NAMES[:2], _DRIVER)]
    for node in nodes[:2]:
        node.say({"kind": "node_started"})
    return nodes[0], nodes[1], nodes[2]


def _fault(action: str, node: int, life: int) -> Line:
    target = {"target": _NAMES[node], "target_incarnation": life}
    return {"kind": "fault", "action": action, "detail": "", **target}


def _said(story: Story, node: int) -> list[Line]:
    """What a node has said since the last time that this was asked."""
    return story.said.pop(node, [])


def _end(*nodes: Trace) -> list[Line]:
    for node in nodes:
        if node.name != _DRIVER:
            node.say({"kind": "node_stopped", "reason": "the run ended"})
    return [line for node in nodes for line in node.lines]


def _delivered_again_after_a_kill(run_id: str) -> list[Line]:
    publisher, subscriber, driver = _traces(run_id)
    story = Story(run_id, _NAMES, "total")
    story.begin(0, 1)
    events = [story.publish(0) for _ in range(4)]
    story.deliver(0, *events)
    story.deliver(1, *events[:3])
    for record in _said(story, 1):
        subscriber.say(record)
    driver.say(_fault("kill", 1, 1))
    subscriber.say({"kind": "node_started"})
    story.deliver(1, *events[1:3], redelivery=True)
    story.deliver(1, events[3])
    for record in _said(story, 1):
        subscriber.say(record)
    for record in _said(story, 0):
        publisher.say(record)
    return _end(publisher, subscriber, driver)


def _taken_back(run_id: str) -> list[Line]:
    """Killed before its disk had synced: nobody knew of the event, and its number is free."""
    publisher, subscriber, driver = _traces(run_id)
    story = Story(run_id, _NAMES, "total")
    story.begin(0, 1)
    first = story.publish(0)
    story.deliver(0, first)
    never_left = story.publish(0, acknowledged=False)
    story.deliver(0, never_left)
    for record in _said(story, 0):
        publisher.say(record)
    driver.say(_fault("kill", 0, 1))
    publisher.say({"kind": "node_started"})
    story.tell_published(first)
    second = story.publish(0, number=2, parents=[first.cid])
    story.deliver(0, second)
    for record in _said(story, 0):
        publisher.say(record)
    story.deliver(1, first, second)
    for record in _said(story, 1):
        subscriber.say(record)
    return _end(publisher, subscriber, driver)


def _lost_with_the_publishers_disk(run_id: str) -> list[Line]:
    """Only accepted, and the disk is gone: that was never promised to be kept."""
    publisher, subscriber, driver = _traces(run_id)
    story = Story(run_id, _NAMES)
    story.begin(1)
    first = story.publish(0)
    lost = story.publish(0, acknowledged=False)
    story.acknowledge(0, lost, "accepted")
    for record in _said(story, 0):
        publisher.say(record)
    driver.say(_fault("kill", 0, 1))
    driver.say(_fault("restart_empty", 0, 1))
    publisher.say({"kind": "node_started"})
    story.deliver(1, first)
    for record in _said(story, 1):
        subscriber.say(record)
    return _end(publisher, subscriber, driver)


def _forgot_its_subscription_with_its_disk(run_id: str) -> list[Line]:
    publisher, subscriber, driver = _traces(run_id)
    story = Story(run_id, _NAMES, "per-publisher")
    story.begin(0, 1)
    first, second = story.publish(0), story.publish(0)
    story.deliver(0, first, second)
    for record in _said(story, 0):
        publisher.say(record)
    story.deliver(1, first)
    for record in _said(story, 1):
        subscriber.say(record)
    driver.say(_fault("kill", 1, 1))
    driver.say(_fault("restart_empty", 1, 1))
    subscriber.say({"kind": "node_started"})
    story.subscribe(1, second)
    for record in _said(story, 1):
        subscriber.say(record)
    return _end(publisher, subscriber, driver)


def _published_again_without_its_disk(run_id: str) -> list[Line]:
    """A publisher that lost its disk cannot know what it published for an injection."""
    publisher, subscriber, driver = _traces(run_id)
    story = Story(run_id, _NAMES)
    story.begin(1)
    story.inject(0, "asked once")
    first = story.publish(0, injection="asked once")
    for record in _said(story, 0):
        publisher.say(record)
    driver.say(_fault("kill", 0, 1))
    driver.say(_fault("restart_empty", 0, 1))
    publisher.say({"kind": "node_started"})
    second = story.publish(0, injection="asked once", epoch=8)
    for record in _said(story, 0):
        publisher.say(record)
    story.deliver(1, first, second)
    for record in _said(story, 1):
        subscriber.say(record)
    return _end(publisher, subscriber, driver)


def _nobody_drives(run_id: str) -> list[Line]:
    """Without a load driver nobody says what was injected: names of injections are anyone's."""
    story = Story(run_id, _NAMES)
    story.begin(0)
    event: Event = story.publish(0, injection="a name of the caller's own")
    story.deliver(0, event)
    return tell([story], run_id)


TRUE_STORIES: Final[dict[str, Callable[[str], list[Line]]]] = {
    "plain, without order": _plain("none"),
    "plain, per publisher": _plain("per-publisher"),
    "plain, causal": _plain("causal"),
    "plain, total": _plain("total"),
    "any order where none is promised": _any_order_where_none_is_promised,
    "publishers in any order": _publishers_in_any_order_among_themselves,
    "one of two twins each": _one_of_two_twins_each,
    "twins on both sides of a start": _twins_on_both_sides_of_a_start,
    "left and came back": _left_and_came_back,
    "left before it had all": _left_before_it_had_all,
    "let off by retention": _let_off_by_retention,
    "let off by a retention that was lowered": _let_off_by_a_retention_that_was((100, 2)),
    "let off by a retention that was raised": _let_off_by_a_retention_that_was((2, 100)),
    "let off by a flush": _let_off_by_a_flush,
    "causal from a start on": _causal_from_a_start_on,
    "causal and concurrent": _causal_and_concurrent,
    "causal without a subscription": _causal_without_a_subscription,
    "delivered again after a kill": _delivered_again_after_a_kill,
    "taken back": _taken_back,
    "lost with the publisher's disk": _lost_with_the_publishers_disk,
    "forgot its subscription with its disk": _forgot_its_subscription_with_its_disk,
    "published again without its disk": _published_again_without_its_disk,
    "nobody drives": _nobody_drives,
}
