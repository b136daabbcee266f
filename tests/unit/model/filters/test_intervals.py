"""Intervals: the values for which a question is answered with yes, against the question itself."""

from itertools import chain, combinations, pairwise

import pytest

from pulsarcast.model.filters.domains import Domain, Value
from pulsarcast.model.filters.intervals import (
    END,
    Intervals,
    after,
    asked,
    before,
    common,
    complement,
    hull,
    whole,
)
from pulsarcast.model.filters.terms import Comparison, Listed, Presence, Question, TextTest

NUMBER = Domain("at", "int", 0, 9)
TEXT = Domain("at", "str")
FLAG = Domain("at", "bool")
NUMBERS = tuple(range(10))
TEXTS = ("", "a", "ab", "aba", "abb", "abc", "ac", "b", "ab\U0010ffff", "\U0010ffff", "\ue000")
SIGNS = ("=", "!=", "<", "<=", ">", ">=")


def holds(intervals: Intervals, value: Value) -> bool:
    return any(low <= before(value) and after(value) <= high for low, high in intervals)


def is_in_order(intervals: Intervals) -> bool:
    """Ascending, none of them empty, and apart from each other."""
    cuts = list(chain.from_iterable(intervals))
    return all(left < right for left, right in pairwise(cuts))


QUESTIONS: list[tuple[Question, Domain, tuple[Value, ...]]] = [
    *((Comparison("at", sign, value), NUMBER, NUMBERS) for sign in SIGNS for value in (0, 4, 9)),
    *((Comparison("at", sign, "ab"), TEXT, TEXTS) for sign in SIGNS),
    *((Comparison("at", sign, value), FLAG, (False, True)) for sign in SIGNS for value in (0, 1)),
    *((Listed("at", (0, 3, 4, 9), negated), NUMBER, NUMBERS) for negated in (False, True)),
    *((Listed("at", ("a", "abc"), negated), TEXT, TEXTS) for negated in (False, True)),
    *(
        (TextTest("at", "starts with", part, negated), TEXT, TEXTS)
        for part in ("", "a", "ab", "ab\U0010ffff", "\U0010ffff", "\ud7ff")
        for negated in (False, True)
    ),
]


@pytest.mark.parametrize(("question", "domain", "values"), QUESTIONS)
def test_exactly_the_values_with_yes_for_an_answer_are_within(
    question: Question, domain: Domain, values: tuple[Value, ...]
) -> None:
    found, exact = asked(question, domain)
    assert exact
    assert is_in_order(found)
    for value in values:
        assert holds(found, value) is question.holds({"at": value}), value


@pytest.mark.parametrize("how", ["ends with", "matches"])
@pytest.mark.parametrize("negated", [False, True])
def test_what_cannot_be_told_from_the_place_of_a_value_may_be_anywhere(
    how: str, negated: bool
) -> None:
    assert asked(TextTest("at", how, "b", negated), TEXT) == (whole(TEXT), False)


def test_whether_there_is_a_value_is_true_for_all() -> None:
    assert asked(Presence("at", True), NUMBER) == (whole(NUMBER), True)


def test_a_domain_without_values_has_no_intervals() -> None:
    nothing = Domain("at", "int", 5, 4)
    assert whole(nothing) == ()
    assert complement((), nothing) == ()
    for sign in SIGNS:
        assert asked(Comparison("at", sign, 4), nothing) == ((), True)


def test_there_is_no_last_text() -> None:
    ((_, last),) = whole(TEXT)
    assert last is END
    assert after("\U0010ffff" * 100) < END


def sets() -> list[Intervals]:
    """All ways to choose up to three of five pieces of the numbers."""
    pieces = [
        (before(0), after(1)),
        (after(2), before(3)),
        (before(4), after(5)),
        (before(6), after(6)),
        (after(7), after(9)),
    ]
    return [chosen for count in range(4) for chosen in combinations(pieces, count)]


@pytest.mark.parametrize("left", sets())
def test_what_is_common_and_what_is_left_hold_as_they_say(left: Intervals) -> None:
    rest = complement(left, NUMBER)
    assert is_in_order(rest)
    for value in NUMBERS:
        assert holds(rest, value) is not holds(left, value)
    assert complement(rest, NUMBER) == left
    for right in sets():
        both = common(left, right)
        assert is_in_order(both)
        assert both == common(right, left)
        for value in NUMBERS:
            assert holds(both, value) is (holds(left, value) and holds(right, value))


@pytest.mark.parametrize("intervals", sets())
def test_a_hull_is_one_interval_from_the_first_to_the_last(intervals: Intervals) -> None:
    found = hull(intervals)
    assert len(found) == bool(intervals)
    assert common(found, intervals) == intervals
    if found:
        assert found[0][0] == intervals[0][0]
        assert found[-1][1] == intervals[-1][1]
