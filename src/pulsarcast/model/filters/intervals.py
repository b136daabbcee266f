"""Sets of values as intervals, by cuts: a cut lies before a value or after it, never on it.

[a, b] runs from before a to after b, (a, b) from after a to before b. Open and closed ends need no
cases of their own that way, and neither do numbers, texts and bools.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from pulsarcast.model.filters.domains import Domain, Value
from pulsarcast.model.filters.terms import Comparison, Listed, Presence, Question

# (0, value, 0) before a value, (0, value, 1) after it. There is no last text: hence `END`.
Cut: TypeAlias = tuple[Any, ...]
Interval: TypeAlias = tuple[Cut, Cut]  # from, to; never empty
Intervals: TypeAlias = tuple[Interval, ...]  # ascending, apart from each other

END: Final[Cut] = (1,)

_LAST_SIGN: Final = "\U0010ffff"


def before(value: Value) -> Cut:
    """The cut below which all smaller values lie."""
    return (0, value, 0)


def after(value: Value) -> Cut:
    """The cut above which all larger values lie."""
    return (0, value, 1)


def whole(domain: Domain) -> Intervals:
    """All values of a domain."""
    if domain.kind == "str" and domain.high is None:
        return ((before(domain.low), END),)
    if domain.kind == "bool":
        return ((before(False), after(True)),)
    low, high = before(domain.low), after(domain.high)
    return ((low, high),) if low < high else ()


def complement(intervals: Intervals, domain: Domain) -> Intervals:
    """All values of a domain but these."""
    found = []
    for low, high in whole(domain):
        start = low
        for first, last in intervals:
            if start < first:
                found.append((start, min(first, high)))
            start = max(start, last)
        if start < high:
            found.append((start, high))
    return tuple((first, last) for first, last in found if first < last)


def common(left: Intervals, right: Intervals) -> Intervals:
    """The intersection of two sets."""
    found: list[Interval] = []
    at = other = 0
    while at < len(left) and other < len(right):
        low = max(left[at][0], right[other][0])
        high = min(left[at][1], right[other][1])
        if low < high:
            found.append((low, high))
        if left[at][1] < right[other][1]:
            at += 1
        else:
            other += 1
    return tuple(found)


def hull(intervals: Intervals) -> Intervals:
    """One interval with all of these in it."""
    return ((intervals[0][0], intervals[-1][1]),) if intervals else ()


def asked(question: Question, domain: Domain) -> tuple[Intervals, bool]:
    """The values for which the answer is yes, or may be; and whether it is yes for all of them."""
    full = whole(domain)
    if isinstance(question, Presence):
        return full, True
    if isinstance(question, Comparison):
        return common(full, _compared(question, domain)), True
    if isinstance(question, Listed):
        points = tuple((before(value), after(value)) for value in question.choices)
        found = complement(points, domain) if question.negated else points
        return common(full, found), True
    if question.how == "starts with":
        found = ((before(question.part), _behind(question.part)),)
        return common(full, complement(found, domain) if question.negated else found), True
    return full, False


def _compared(question: Comparison, domain: Domain) -> Intervals:
    ((low, high),) = whole(domain) or ((END, END),)
    below, above = before(question.value), after(question.value)
    match question.sign:
        case "=":
            found: Intervals = ((below, above),)
        case "!=":
            return complement(((below, above),), domain)
        case "<":
            found = ((low, below),)
        case "<=":
            found = ((low, above),)
        case ">":
            found = ((above, high),)
        case _:
            found = ((below, high),)
    return tuple((first, last) for first, last in found if first < last)


def _behind(prefix: str) -> Cut:
    """The cut behind all texts that begin so."""
    rest = prefix.rstrip(_LAST_SIGN)
    if not rest:
        return END
    following = ord(rest[-1]) + 1
    if following == 0xD800:  # what follows is no character before 0xE000
        following = 0xE000
    return before(rest[:-1] + chr(following))
