"""Stories with a subscription that has filters, or a start that is loaded in parts.

What it was due nobody can say, or not yet; the rest is judged.

Node 0 made the topic and publishes, node 1 wants everything, node 2 what matches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tests.pipeline.stories import Event, Story, name_of

NAMES: Final = [name_of(node) for node in range(3)]
FILTERS: Final = ("price < 10",)


class Filtered(NamedTuple):
    """A story by its order, and what is found in it."""

    order: str
    plot: Callable[[Story], None]
    found: dict[str, int]
    reason: str | None = "filtered"
    """Why the verdict is unknown, if it is."""

    def story(self, tag: str) -> Story:
        """The story, told."""
        story = Story(tag, NAMES, self.order)
        self.plot(story)
        return story


def _begun(story: Story) -> list[Event]:
    story.begin(0, 1)
    story.subscribe(2, filters=FILTERS)
    events: list[Event] = []
    for _ in range(4):
        events.append(story.publish(0))
        story.deliver(0, events[-1])
        story.deliver(1, events[-1])
    return events


def _some_match(story: Story) -> None:
    events = _begun(story)
    story.deliver(2, events[1], events[3])


def _none_matches(story: Story) -> None:
    _begun(story)


def _filters_change_and_end(story: Story) -> None:
    events = _begun(story)
    story.deliver(2, events[1])
    story.subscribe(2, events[1], filters=(*FILTERS, "price > 90"))
    story.deliver(2, events[2])
    story.unsubscribe(2, events[3])


def _publishes_itself(story: Story) -> None:
    """It cannot name heads that it was never given."""
    _begun(story)
    own = story.publish(2)
    for node in range(3):
        story.deliver(node, own)


def _twice(story: Story) -> None:
    events = _begun(story)
    story.deliver(2, events[1], events[1])


def _late(story: Story) -> None:
    events = _begun(story)
    story.deliver(2, events[3], events[1])


def _forged(story: Story) -> None:
    _begun(story)
    story.deliver(2, Event("bafyreibnoelefnzgwbcacyt4vh52ymxvzbjq7mmqhtcnwarfq4lzegsiqe", 0, 7, 2))


def _after_the_end(story: Story) -> None:
    events = _begun(story)
    story.unsubscribe(2, events[3])
    story.deliver(2, events[1])


def _another_lacks_one(story: Story) -> None:
    story.begin(0, 1)
    story.subscribe(2, filters=FILTERS)
    first, second = story.publish(0), story.publish(0)
    story.deliver(0, first, second)
    story.deliver(1, first)
    story.deliver(2, second)


def _loads_its_start(story: Story) -> tuple[Event, Event, Event]:
    """Node 2 knows where it starts in what node 0 publishes, and not yet in what node 1 does."""
    story.begin(0, 1)
    first, other = story.publish(0), story.publish(1)
    for node in (0, 1):
        story.deliver(node, first, other)
    story.subscribe(2, in_parts=True)
    story.load_start(2, first, whole=False)
    second = story.publish(0)
    for node in (0, 1):
        story.deliver(node, second)
    return first, other, second


def _whole_in_the_end(story: Story) -> None:
    _, other, second = _loads_its_start(story)
    story.deliver(2, second)
    story.load_start(2, other, whole=True)
    third = story.publish(1)
    for node in range(3):
        story.deliver(node, third)


def _lacks_what_is_beyond(story: Story) -> None:
    _, other, _ = _loads_its_start(story)
    story.load_start(2, other, whole=True)


def _gets_what_is_before(story: Story) -> None:
    first, other, second = _loads_its_start(story)
    story.load_start(2, other, whole=True)
    story.deliver(2, first, second, other)


def _never_whole(story: Story) -> None:
    _, _, second = _loads_its_start(story)
    story.deliver(2, second)


FILTERED: Final[dict[str, Filtered]] = {
    "filtered, without order": Filtered("none", _some_match, {}),
    "filtered, per publisher": Filtered("per-publisher", _some_match, {}),
    "filtered, causal": Filtered("causal", _some_match, {}),
    "filtered, total": Filtered("total", _some_match, {}),
    "filtered, none matches": Filtered("total", _none_matches, {}),
    "filtered, changed and ended": Filtered("per-publisher", _filters_change_and_end, {}),
    "filtered, publishes itself": Filtered("causal", _publishes_itself, {}),
    "filtered, twice": Filtered("none", _twice, {"duplicate": 1}),
    "filtered, late": Filtered("per-publisher", _late, {"order": 1}),
    "filtered, late of all": Filtered("total", _late, {"order": 1}),
    "filtered, forged": Filtered("none", _forged, {"forged": 1}),
    "filtered, after the end": Filtered("none", _after_the_end, {"not_subscribed": 1}),
    "filtered, another lacks one": Filtered("none", _another_lacks_one, {"lost": 1}),
    "start in parts": Filtered("none", _whole_in_the_end, {}, None),
    "start in parts, lost": Filtered("none", _lacks_what_is_beyond, {"lost": 1}, None),
    "start in parts, before": Filtered("none", _gets_what_is_before, {"before_start": 2}, None),
    "start in parts, open": Filtered("none", _never_whole, {}, "open_start"),
}
"""By the run's id."""
