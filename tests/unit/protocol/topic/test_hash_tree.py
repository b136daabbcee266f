"""The hash tree of a frontier: the same hash for the same leaves, and where two differ."""

from collections.abc import Iterable
from random import Random
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.limits import PARTS_MAX, PARTS_OF_ONE, ROW_BYTES, STEPS_MAX
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic import hash_tree
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.hash_tree import (
    EMPTY,
    HashTree,
)
from pulsarcast.protocol.topic.packed_marks import Row, place_of
from tests.support.people import peer

LEAVES_MAX = Parameters().frontier_list


def mark(number: int, high: int = 1) -> MarkState:
    return MarkState(peer(f"publisher {number}"), 1, 0, high, None)


def place(number: int) -> bytes:
    return place_of(peer(f"publisher {number}"), 1)


def tree(numbers: Iterable[int]) -> HashTree:
    made = HashTree(LEAVES_MAX)
    made.put(map(mark, numbers))
    return made


def found(ours: HashTree, theirs: HashTree) -> set[bytes]:
    """The places in small parts that differ, looked for as two members do."""
    places: set[bytes] = set()
    parts = [b""]
    while parts:
        part = parts.pop()
        for each in ours.differing(part, theirs.digests(part)):
            if ours.is_small(each) and theirs.is_small(each):
                marks = [*ours.marks_in(each), *theirs.marks_in(each)]
                places |= {place_of(mark.publisher, mark.epoch) for mark in marks}
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
        one.put([mark(mixed[0], high=2)])
        assert one.digest() != other.digest()
        one.put([mark(mixed[0])])
    assert one.digest() == other.digest()


@given(st.sets(st.integers(0, 999)), st.sets(st.integers(0, 999), max_size=30))
def test_every_difference_is_found_whatever_each_side_holds(
    held: set[int], differing: set[int]
) -> None:
    ours, theirs = tree(held), tree(held ^ differing)
    places = found(ours, theirs)
    assert {place(number) for number in differing} <= places
    assert len(places) <= 2 * LEAVES_MAX * len(differing)


def test_a_tree_without_leaves() -> None:
    empty = HashTree(LEAVES_MAX)
    assert empty.digest() == EMPTY
    assert empty.digests(b"") == bytes(ROW_BYTES)
    assert empty.is_small(b"")
    assert not list(empty.marks_in(b""))


@pytest.mark.parametrize("steps", [b"\x10", b"\xff\x00", bytes(STEPS_MAX), b"\x03" * STEPS_MAX])
def test_a_name_of_no_part_finds_nothing(steps: bytes) -> None:
    made = tree(range(500))
    assert made.is_small(steps)
    assert not list(made.marks_in(steps))
    if len(steps) >= STEPS_MAX:
        assert not made.differing(steps, bytes(ROW_BYTES))


def test_places_that_somebody_chose_make_the_tree_no_deeper_than_they_are_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def chosen(publisher: PeerId, epoch: int) -> bytes:
        return b"\x01" * (STEPS_MAX - 1) + bytes((epoch % PARTS_OF_ONE,))

    def chosen_row(row: Row) -> bytes:
        return chosen(PeerId(row.publisher), row.epoch)

    monkeypatch.setattr(hash_tree, "place_of", chosen)
    monkeypatch.setattr(hash_tree, "place_of_row", chosen_row)
    marks = [MarkState(peer("publisher"), epoch, 0, 1, None) for epoch in range(PARTS_OF_ONE)]
    for list_max in (1, LEAVES_MAX):
        made = HashTree(list_max)
        for each in marks:
            made.put([each])
        assert len(made.marks_in(b"\x01")) == PARTS_OF_ONE
        assert made.marks_in(b"\x01" * STEPS_MAX) == [marks[1]]
        at_once = HashTree(list_max)
        at_once.put(marks)
        assert at_once.digest() == made.digest() != EMPTY


# Loading a tree of which the hash alone is known.


def load(ours: HashTree, giver: HashTree, parts: list[bytes], room: int = 20) -> int:
    """Load parts from a giver; returns how many marks came."""
    content = giver.content(parts, room, PARTS_MAX)
    return len(ours.load(content.rows, content.marks))


@given(
    st.sets(st.integers(0, 2000)), st.sets(st.integers(0, 3000)), st.randoms(use_true_random=False)
)
def test_a_tree_is_loaded_piece_by_piece_as_it_was_when_its_hash_was_given(
    held: set[int], later: set[int], rng: Random
) -> None:
    giver = tree(held)
    given, root = giver.snapshot(), giver.digest()
    for number in later:
        giver.put([mark(number, high=2)])
    ours = HashTree(LEAVES_MAX)
    ours.miss(b"", root)
    rounds = 0
    while ours.missing:
        assert ours.digest() == root
        parts = rng.sample(sorted(ours.missing), min(4, len(ours.missing)))
        before = dict(ours.missing)
        load(ours, given, parts)
        assert ours.missing != before
        rounds += 1
    assert set(ours.marks_in(b"")) == {mark(number) for number in held}
    assert rounds <= 3 + len(held)


def test_a_giver_gives_marks_in_an_order_that_does_not_tell_how_they_came() -> None:
    numbers = list(range(100))
    one, other = tree(numbers), tree(())
    for number in reversed(numbers):
        other.put([mark(number)])
    for parts in ([b""], [bytes((step,)) for step in range(PARTS_OF_ONE)]):
        assert one.content(parts, 200, PARTS_MAX) == other.content(parts, 200, PARTS_MAX)


def test_a_snapshot_is_filled_by_what_its_tree_loads_and_keeps_its_hash() -> None:
    giver = tree(range(500))
    ours = HashTree(LEAVES_MAX)
    ours.miss(b"", giver.digest())
    load(ours, giver, [b""])
    handed_on = ours.snapshot()
    assert ours.missing
    while ours.missing:
        load(ours, giver, list(ours.missing))
        known = next(iter(ours.marks_in(b"")))
        ours.put([known._replace(high=2)])
    assert handed_on.digest() == giver.digest() != ours.digest()
    assert handed_on.content([b""], 500, PARTS_MAX).is_all
    assert set(handed_on.marks_in(b"")) == {mark(number) for number in range(500)}


def test_a_part_that_is_missed_beside_marks_that_changed_stays_missing() -> None:
    ours = tree(())
    for number in range(20):
        ours.put([mark(number)])
    taken = {place(number)[0] for number in range(20)}
    part = bytes((next(step for step in range(PARTS_OF_ONE) if step not in taken),))
    ours.miss(part, b"\x01" * 16)
    before = ours.digest()
    ours.put([mark(1, high=2)])
    ours.put([mark(1)])
    ours.snapshot()
    assert ours.digest() == before
    assert ours.hash_of(part) == ours.missing[part] == b"\x01" * 16
    assert ours.missing_at(part) == part


def test_marks_that_do_not_belong_to_the_hash_are_not_loaded() -> None:
    giver = tree(range(500))
    lying = tree(range(499))
    ours = HashTree(LEAVES_MAX)
    ours.miss(b"", giver.digest())
    for room in (20, 500):
        with pytest.raises(RemoteError):
            load(ours, lying, [b""], room)
    assert ours.missing == {b"": giver.digest()}
    load(ours, giver, [b""])
    part = next(iter(ours.missing))
    later = HashTree(LEAVES_MAX)
    later.put(mark(number, high=2) for number in range(500))
    with pytest.raises(RemoteError):
        load(ours, later, [part])
    assert part in ours.missing


def test_marks_of_parts_that_are_loaded_change_nothing() -> None:
    ours = tree(range(10))
    before = ours.digest()
    assert load(ours, tree(range(300)), [b""], 500) == 0
    assert ours.digest() == before


def test_a_place_is_in_the_part_that_is_missing() -> None:
    giver = tree(range(500))
    ours = HashTree(LEAVES_MAX)
    assert ours.missing_at(place(1)) is None
    ours.miss(b"", giver.digest())
    assert ours.missing_at(place(1)) == b""
    load(ours, giver, [b""])
    for number in range(500):
        part = ours.missing_at(place(number))
        assert part is None or (place(number).startswith(part) and part in ours.missing)
    for part in list(ours.missing):
        ours.miss(part, EMPTY)
    assert not ours.missing
    assert ours.missing_at(place(1)) is None


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
