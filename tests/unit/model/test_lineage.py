"""The order that links give: no event before one that it follows, whatever clocks say."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.lineage import Links, oldest_first


def made(seed: int) -> list[Links]:
    """Events of three publishers, each of which names some that were there before it."""
    rng = Random(seed)
    events: list[Links] = []
    numbers = [0, 0, 0]
    for place in range(rng.randrange(1, 30)):
        who = rng.randrange(3)
        numbers[who] += 1
        parents = [each.id for each in rng.sample(events, min(len(events), rng.randrange(3)))]
        events.append(Links(b"%d" % place, who, numbers[who], parents, rng.randrange(5)))
    return events


@given(st.integers(0, 10_000))
def test_no_event_comes_before_one_that_it_follows(seed: int) -> None:
    events = made(seed)
    shuffled = Random(seed + 1).sample(events, len(events))
    ordered = oldest_first(shuffled, lambda each: each)
    place = {each.id: at for at, each in enumerate(ordered)}
    assert len(place) == len(events)
    for each in events:
        assert all(place[parent] < place[each.id] for parent in each.parents)
        later = [other for other in events if other.numbering == each.numbering]
        assert all(place[each.id] < place[o.id] for o in later if o.number > each.number)
    assert oldest_first(events, lambda each: each) == ordered


def test_of_events_that_do_not_follow_one_another_the_older_comes_first() -> None:
    new, old = Links(b"a", "ann", 1, (), 9), Links(b"b", "bob", 1, (), 3)
    assert oldest_first([new, old], lambda each: each) == [old, new]


def test_a_publisher_that_contradicts_its_numbers_is_ordered_by_parents() -> None:
    second = Links(b"2", "mallory", 2, (), 0)
    first = Links(b"1", "mallory", 1, (b"2",), 0)
    assert oldest_first([first, second], lambda each: each) == [second, first]
