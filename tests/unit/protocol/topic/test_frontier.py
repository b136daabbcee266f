"""Frontiers, against the plainest model there is: a set of numbers for each publisher and epoch."""

import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from random import Random
from typing import NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.protocol.limits import PARTS_MAX
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic import frontier as frontiers
from pulsarcast.protocol.topic import hash_tree
from pulsarcast.protocol.topic.frontier import Frontier, Source
from pulsarcast.protocol.topic.hash_tree import EMPTY, HashTree
from tests.support.people import peer

NUMBER_MAX = 12
PUBLISHERS = (peer("alice"), peer("bob"))
SOURCES: tuple[Source, ...] = tuple((who, epoch) for who in PUBLISHERS for epoch in (1, 2))


class Step(NamedTuple):
    """One thing that happens to a frontier."""

    retires: bool
    source: Source
    number: int


steps = st.lists(
    st.builds(Step, st.booleans(), st.sampled_from(SOURCES), st.integers(1, NUMBER_MAX)),
    max_size=40,
)


class Model:
    """What is behind us, number by number."""

    def __init__(self) -> None:
        self.behind: dict[Source, set[int]] = {source: set() for source in SOURCES}
        self.floor: dict[Source, int] = dict.fromkeys(SOURCES, 0)

    def take(self, step: Step) -> None:
        if step.retires:
            self.behind[step.source].update(range(1, step.number + 1))
            self.floor[step.source] = max(self.floor[step.source], step.number)
        else:
            self.behind[step.source].add(step.number)

    def high(self, source: Source) -> int:
        return next(n for n in range(NUMBER_MAX + 1) if n + 1 not in self.behind[source])


def play(given_steps: Iterable[Step]) -> tuple[Frontier, Model]:
    frontier, model = Frontier(), Model()
    for step in given_steps:
        if step.retires:
            frontier.retire(*step.source, step.number)
        else:
            frontier.add(*step.source, step.number, cid_of(repr(step).encode()))
        model.take(step)
    return frontier, model


def shown(mark: MarkState | None) -> set[int]:
    return set() if mark is None else set(range(1, mark.high + 1)) | set(mark.beyond)


@given(steps)
def test_a_frontier_knows_exactly_the_numbers_that_it_was_given(given_steps: list[Step]) -> None:
    frontier, model = play(given_steps)
    for source in SOURCES:
        held = {n for n in range(1, NUMBER_MAX + 2) if frontier.holds(*source, n)}
        assert held == model.behind[source]
        assert frontier.high(*source) == model.high(source)
        assert frontier.floor(*source) == model.floor[source]
        mark = frontier.mark(*source)
        assert shown(mark) == model.behind[source]
        assert mark is None or mark.floor == model.floor[source]


@given(steps)
def test_every_gap_is_known_and_none_is_invented(given_steps: list[Step]) -> None:
    frontier, model = play(given_steps)
    gaps = {(who, epoch): (first, last) for who, epoch, first, last in frontier.gaps()}
    for source in SOURCES:
        highest = max(model.behind[source], default=0)
        missing = set(range(1, highest)) - model.behind[source]
        if missing:
            first, last = gaps.pop(source)
            assert first == min(missing)
            assert missing <= set(range(first, last + 1))
            assert last < highest
        before = frontier.gap_before(*source, NUMBER_MAX + 1)
        high = model.high(source)
        assert before == (None if high == NUMBER_MAX else (high + 1, NUMBER_MAX))
    assert not gaps


@given(steps)
def test_a_frontier_survives_the_disk(given_steps: list[Step]) -> None:
    frontier, _ = play(given_steps)
    again = Frontier(frontier.marks())
    assert again.marks() == frontier.marks()
    assert again.digest() == frontier.digest()


@given(steps, steps)
def test_two_digests_are_equal_exactly_where_the_numbers_are(
    ours: list[Step], theirs: list[Step]
) -> None:
    one, one_model = play(ours)
    other, other_model = play(theirs)
    assert (one.digest() == other.digest()) == (one_model.behind == other_model.behind)


@given(steps)
def test_the_order_of_arrival_does_not_show(given_steps: list[Step]) -> None:
    frontier, _ = play(given_steps)
    frontier.digest()  # Cached: a change must forget it.
    turned, _ = play(reversed(given_steps))
    assert frontier.digest() == turned.digest()
    frontier.add(PUBLISHERS[0], 3, 1, None)
    assert frontier.digest() != turned.digest()


@given(steps, steps)
def test_what_a_peer_shows_and_we_lack_is_found(ours: list[Step], theirs: list[Step]) -> None:
    mine, my_model = play(ours)
    their, their_model = play(theirs)
    for mark in their.marks():
        source = (mark.publisher, mark.epoch)
        missing = mine.missing_from(mark)
        lacking = their_model.behind[source] - my_model.behind[source]
        if missing is None:
            assert not lacking
            continue
        first, last = missing
        assert lacking <= set(range(first, last + 1))
        assert not {first, last} & my_model.behind[source]
        assert last <= max(their_model.behind[source])


def test_the_cid_of_the_newest_gapless_number_is_remembered() -> None:
    frontier = Frontier()
    alice, epoch = SOURCES[0]
    cids = {number: cid_of(bytes([number])) for number in (1, 2, 3)}
    frontier.add(alice, epoch, 1, cids[1])
    frontier.add(alice, epoch, 3, cids[3])
    assert frontier.cid_at(alice, epoch, 1) == cids[1]
    assert frontier.cid_at(alice, epoch, 3) == cids[3]
    frontier.add(alice, epoch, 2, cids[2])
    assert frontier.cid_at(alice, epoch, 3) == cids[3]
    assert frontier.mark(alice, epoch) == MarkState(alice, epoch, 0, 3, cids[3])


def test_marks_come_in_an_order_that_every_node_agrees_on() -> None:
    one, other = Frontier(), Frontier()
    for who, epoch in SOURCES:
        one.add(who, epoch, 1, None)
    for who, epoch in reversed(SOURCES):
        other.add(who, epoch, 1, None)
    assert one.marks() == other.marks()


def test_a_mark_far_away_costs_no_more_than_a_near_one() -> None:
    frontier = Frontier()
    who: PeerId = PUBLISHERS[0]
    frontier.add(who, 1, 2**63 - 1, None)
    assert frontier.missing_from(MarkState(who, 1, 0, 2**63 - 1, None)) == (1, 2**63 - 2)
    frontier.retire(who, 1, 2**62)
    assert frontier.high(who, 1) == 2**62


# Most marks packed, against marks that are not.

MANY: tuple[Source, ...] = tuple(
    (peer(f"publisher {n}"), epoch) for n in range(8) for epoch in (1, 2)
)


@contextmanager
def almost_all_packed() -> Iterator[None]:
    """Two marks may be objects, and one part of the tree may be open."""
    with (
        patch.multiple(frontiers, HOT_MAX=2, PACKED_AT_ONCE=3),
        patch.multiple(hash_tree, OPEN_MAX=1, BLOCK_MAX=3),
    ):
        yield


class Act(NamedTuple):
    """What is done with one mark, or with the frontier."""

    what: str
    source: Source
    number: int


acts = st.lists(
    st.builds(
        Act,
        st.sampled_from(["add", "add", "retire", "adopt", "begin_at", "digest", "snapshot"]),
        st.sampled_from(MANY),
        st.integers(1, NUMBER_MAX),
    ),
    max_size=60,
)


def name_of(source: Source, number: int) -> Cid:
    return cid_of(repr((source, number)).encode())


def state(source: Source, number: int) -> MarkState:
    beyond = (number + 2, number + 3) if number % 3 == 0 else ()
    return MarkState(*source, number // 2, number, name_of(source, number), beyond, number // 3)


class Plain:
    """A frontier of sets of numbers."""

    def __init__(self) -> None:
        self.marks: dict[Source, MarkState] = {}

    def put(self, source: Source, floor: int, retired: int, behind: set[int]) -> None:
        high = next(n for n in range(len(behind) + 1) if n + 1 not in behind)
        beyond = tuple(sorted(n for n in behind if n > high))
        self.marks[source] = MarkState(*source, floor, high, None, beyond, retired)

    def take(self, act: Act) -> None:
        source, number = act.source, act.number
        ours = self.marks.get(source, MarkState(*source, 0, 0, None))
        if act.what == "add":
            self.put(source, ours.floor, ours.retired, shown(ours) | {number})
        elif act.what == "retire":
            behind = shown(ours) | set(range(1, number + 1))
            self.put(source, max(ours.floor, number), max(ours.retired, number), behind)
        elif act.what == "adopt":
            self.marks[source] = state(source, number)._replace(cid=None)
        elif act.what == "begin_at":
            self.begin_at(state(source, number))

    def begin_at(self, theirs: MarkState) -> None:
        source = (theirs.publisher, theirs.epoch)
        ours = self.marks.get(source)
        if ours is None or ours.high < theirs.high:
            behind = set(range(1, theirs.high + 1)) | shown(ours)
            retired = max(theirs.retired, 0 if ours is None else ours.retired)
            self.put(source, theirs.high, retired, behind)

    def digest(self, list_max: int) -> bytes:
        """As docs/spec/pulsarcast.md has it."""
        leaves = dict(map(plain_leaf, self.marks.values()))
        return plain_hash(leaves, list_max, 0) if leaves else EMPTY


def plain_leaf(mark: MarkState) -> tuple[str, bytes]:
    numbering = mark.publisher + mark.epoch.to_bytes(8, "big")
    held = f"/{mark.high}/{','.join(map(str, mark.beyond))}"
    place = blake2b(numbering, digest_size=16, person=b"place").hexdigest()
    return place, blake2b(numbering + held.encode(), digest_size=16).digest()


def plain_hash(leaves: dict[str, bytes], list_max: int, depth: int) -> bytes:
    if len(leaves) <= list_max:
        row = b"".join(leaves[place] for place in sorted(leaves))
        return blake2b(row, digest_size=16, person=b"leaves").digest()
    row = b""
    for step in "0123456789abcdef":
        below = {place: leaf for place, leaf in leaves.items() if place[depth] == step}
        row += plain_hash(below, list_max, depth + 1) if below else EMPTY
    return blake2b(row, digest_size=16, person=b"parts").digest()


def act_on(frontier: Frontier, act: Act) -> None:
    match act.what:
        case "add":
            frontier.add(*act.source, act.number, name_of(act.source, act.number))
        case "retire":
            frontier.retire(*act.source, act.number)
        case "adopt":
            frontier.adopt(state(act.source, act.number))
        case "begin_at":
            frontier.begin_at(state(act.source, act.number))


def compare(frontier: Frontier, plain: Plain, list_max: int) -> None:
    """The two answer alike, mark by mark and as a whole."""
    assert len(frontier) == len(plain.marks)
    for source in MANY:
        mark = frontier.mark(*source)
        held = shown(plain.marks.get(source))
        assert (mark and mark._replace(cid=None)) == plain.marks.get(source)
        assert mark is None or mark.cid in (None, name_of(source, mark.high))
        assert frontier.high(*source) == (0 if mark is None else mark.high)
        assert {n for n in range(1, 2 * NUMBER_MAX) if frontier.holds(*source, n)} == held
        assert frontier.highest(*source) == max(held, default=0)
    marks = [mark._replace(cid=None) for mark in frontier.marks()]
    assert marks == sorted(plain.marks.values())
    gaps = {(who, epoch) for who, epoch, _, _ in frontier.gaps()}
    assert gaps == {source for source, mark in plain.marks.items() if mark.beyond}
    assert frontier.digest() == plain.digest(list_max)


@given(acts, st.sampled_from([1, 2, 8]))
def test_a_frontier_of_packed_marks_answers_like_one_of_sets(
    given_acts: list[Act], list_max: int
) -> None:
    with almost_all_packed():
        frontier, plain = Frontier(list_max=list_max), Plain()
        snapshots = list[tuple[HashTree, bytes, set[MarkState]]]()
        for act in given_acts:
            act_on(frontier, act)
            plain.take(act)
            if act.what == "digest":
                assert frontier.digest() == plain.digest(list_max)
            if act.what == "snapshot":
                now = frontier.snapshot(), plain.digest(list_max), set(frontier.marks())
                snapshots.append(now)
        compare(frontier, plain, list_max)
        for snapshot, digest, marks in snapshots:
            assert snapshot.digest() == digest
            assert set(snapshot.marks_in(b"")) == marks
        again = Frontier(frontier.marks(), list_max=list_max)
        compare(again, plain, list_max)


@given(acts, acts, st.sampled_from([1, 2, 8]), st.randoms(use_true_random=False))
def test_a_frontier_of_packed_marks_is_loaded_like_one_of_sets(
    theirs: list[Act], ours: list[Act], list_max: int, rng: Random
) -> None:
    with almost_all_packed():
        giver = Frontier(list_max=list_max)
        for act in theirs:
            act_on(giver, act)
        given_tree = giver.snapshot()
        frontier, plain = Frontier(list_max=list_max), Plain()
        for act in ours[:5]:
            act_on(frontier, act)
            plain.take(act)
        frontier.miss(b"", giver.digest())
        more = iter(ours[5:])
        while frontier.missing:
            part = rng.choice(sorted(frontier.missing))
            content = given_tree.content([part], rng.choice([1, 4]), PARTS_MAX)
            for mark in frontier.load(content.rows, content.marks):
                plain.begin_at(mark)
            for act, _ in zip(more, range(3), strict=False):
                act_on(frontier, act)
                plain.take(act)
            frontier.digest()
        compare(frontier, plain, list_max)
        assert given_tree.digest() == giver.digest()
        assert set(given_tree.marks_in(b"")) == set(giver.marks())


def test_a_quiet_mark_keeps_its_cid() -> None:
    with almost_all_packed():
        frontier = Frontier()
        for number in (1, 2):
            for source in MANY:
                frontier.add(*source, number, name_of(source, number))
        assert [frontier.cid_at(*source, 2) for source in MANY] == [
            name_of(source, 2) for source in MANY
        ]


def test_numbers_beyond_a_gap_keep_their_cids_while_few_marks_have_gaps() -> None:
    alice, epoch = SOURCES[0]
    frontier = Frontier()
    with patch.object(frontiers, "HOT_MAX", 8):
        frontier.add(alice, epoch, 3, name_of(SOURCES[0], 3))
        for number in range(200):
            frontier.add(peer(f"publisher {number}"), 1, 1, None)
    assert frontier.cid_at(alice, epoch, 3) == name_of(SOURCES[0], 3)


@pytest.mark.parametrize("number", [2, 4])
def test_marks_that_moved_or_have_a_gap_take_as_little_memory_as_others(number: int) -> None:
    marks = [state((peer(f"publisher {n}"), 2**62), 1) for n in range(3000)]
    with (
        patch.object(frontiers, "HOT_MAX", 32),
        patch.object(hash_tree, "OPEN_MAX", 8),
    ):
        tracemalloc.start()
        frontier = Frontier()
        for mark in marks:
            frontier.adopt(mark)
        for at, mark in enumerate(marks):
            frontier.add(mark.publisher, mark.epoch, number, mark.cid)
            if at % 16 == 0:
                frontier.digest()
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    # As objects they take 700 bytes, and packed with too few others 160.
    assert taken / len(marks) < 135


def test_marks_are_read_while_others_move() -> None:
    with almost_all_packed():
        frontier = Frontier(state(source, 1) for source in MANY)
        seen = list[Source]()
        for mark in frontier:
            seen.append((mark.publisher, mark.epoch))
            for source in MANY[::3]:
                frontier.add(*source, 2, None)
        assert sorted(seen) == sorted(MANY)


def test_marks_whose_part_is_missing_wait_and_do_not_crowd_out_the_others() -> None:
    with almost_all_packed():
        frontier = Frontier(missing={b"": b"\x01" * 16})
        for source in MANY:
            frontier.add(*source, 1, name_of(source, 1))
        assert frontier.digest() == b"\x01" * 16
        frontier.miss(b"", EMPTY)
        plain = Plain()
        for source in MANY:
            plain.take(Act("add", source, 1))
        compare(frontier, plain, 8)
