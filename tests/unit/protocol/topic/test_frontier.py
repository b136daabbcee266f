"""Frontiers, against the plainest model there is: a set of numbers for each publisher and epoch."""

from collections.abc import Iterable
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.ids import PeerId, cid_of
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.frontier import Frontier, Source
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
