"""The hash tree of a frontier: the same hash for the same leaves, and where two differ."""

from collections.abc import Iterable
from random import Random
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.protocol.limits import PART_DIGEST_BYTES, ROW_BYTES, STEPS_MAX
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.hash_tree import EMPTY, LEAVES_MAX, HashTree, place_of
from tests.support.people import peer


def leaf(number: int) -> bytes:
    return number.to_bytes(PART_DIGEST_BYTES, "big")


def tree(numbers: Iterable[int]) -> HashTree:
    made = HashTree()
    for number in numbers:
        made.put(place_of(b"%d" % number), leaf(number + 1))
    return made


def found(ours: HashTree, theirs: HashTree) -> set[bytes]:
    """The places in small parts that differ, looked for as two members do."""
    places: set[bytes] = set()
    parts = [b""]
    while parts:
        part = parts.pop()
        for each in ours.differing(part, theirs.digests(part)):
            if ours.is_small(each) and theirs.is_small(each):
                places |= {*ours.below(each), *theirs.below(each)}
            else:
                parts.append(each)
    return places


@given(st.sets(st.integers(0, 999)), st.randoms(use_true_random=False))
def test_the_hash_is_that_of_the_leaves_in_any_order(numbers: set[int], rng: Random) -> None:
    mixed = sorted(numbers)
    rng.shuffle(mixed)
    one, other = tree(sorted(numbers)), tree(mixed)
    if numbers:
        one.digest()
        one.put(place_of(b"%d" % mixed[0]), leaf(5000))
        assert one.digest() != other.digest()
        one.put(place_of(b"%d" % mixed[0]), leaf(mixed[0] + 1))
    assert one.digest() == other.digest()


@given(st.sets(st.integers(0, 999)), st.sets(st.integers(0, 999), max_size=30))
def test_every_difference_is_found_whatever_each_side_holds(
    held: set[int], differing: set[int]
) -> None:
    ours, theirs = tree(held), tree(held ^ differing)
    places = found(ours, theirs)
    assert {place_of(b"%d" % number) for number in differing} <= places
    assert len(places) <= 2 * LEAVES_MAX * len(differing)


def test_a_tree_without_leaves() -> None:
    empty = HashTree()
    assert empty.digest() == EMPTY
    assert empty.digests(b"") == bytes(ROW_BYTES)
    assert empty.is_small(b"")
    assert not list(empty.below(b""))


@pytest.mark.parametrize("steps", [b"\x10", b"\xff\x00", bytes(STEPS_MAX), b"\x03" * STEPS_MAX])
def test_a_name_of_no_part_finds_nothing(steps: bytes) -> None:
    made = tree(range(500))
    assert made.is_small(steps)
    assert not list(made.below(steps))
    if len(steps) >= STEPS_MAX:
        assert not made.differing(steps, bytes(ROW_BYTES))


def test_places_that_somebody_chose_make_the_tree_no_deeper_than_they_are_long() -> None:
    made = HashTree()
    for number in range(20):
        made.put(b"\x01" * (STEPS_MAX - 1) + bytes((number % 16,)), leaf(number + 1))
    alike = HashTree()
    for number in range(20):
        alike.put(b"\x02" * STEPS_MAX, leaf(number + 1))
    assert len(list(made.below(b"\x01"))) == 16
    assert len(list(alike.below(b"\x02"))) == 1


def test_one_more_event_costs_a_hash_of_its_way_and_not_of_all() -> None:
    frontier = Frontier()
    for number in range(20_000):
        frontier.add(peer(f"publisher {number}"), 1, 1, None)
    before = frontier.digest()
    began_s = process_time()
    for event in range(2, 102):
        frontier.add(peer("publisher 7"), 1, event, None)
        assert frontier.digest() != before
    # Hashing all of it takes some 50 ms each time.
    assert (process_time() - began_s) / 100 < 0.001
