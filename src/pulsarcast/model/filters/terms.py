"""The terms of a filter: questions about single attributes, joined by `and` and `or`.

There is no `not` among them. It has been moved inwards, where each question has an opposite, and
that is exact: in the three-valued logic of SQL, which filters follow, a question about a missing
attribute is neither true nor false, and neither is its opposite. So all that has to be known of a
part is whether it is true, which it can only be of attributes that are there.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from pulsarcast.model.filters.domains import Value
from pulsarcast.model.filters.regexes import Regex, occurs

Values: TypeAlias = Mapping[str, Value]

_COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPPOSITE: Final = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """How an attribute compares with a value."""

    name: str
    sign: str  # one of = != < <= > >=
    value: Value

    def holds(self, values: Values) -> bool:
        """Whether it is true."""
        found = values.get(self.name)
        return found is not None and _COMPARED[self.sign](found, self.value)

    def opposite(self) -> Term:
        """True exactly where this is false."""
        return Comparison(self.name, _OPPOSITE[self.sign], self.value)


@dataclass(frozen=True, slots=True)
class Listed:
    """Whether an attribute is one of several values, or none of them."""

    name: str
    choices: tuple[Value, ...]  # two or more, ascending
    negated: bool = False

    def holds(self, values: Values) -> bool:
        """Whether it is true."""
        found = values.get(self.name)
        return found is not None and (found in self.choices) is not self.negated

    def opposite(self) -> Term:
        """True exactly where this is false."""
        return Listed(self.name, self.choices, not self.negated)


@dataclass(frozen=True, slots=True)
class TextTest:
    """How a text begins or ends, or whether a pattern is found in it."""

    name: str
    how: str  # one of "starts with", "ends with", "matches"
    part: str
    negated: bool = False
    regex: Regex | None = field(default=None, compare=False, repr=False)  # of "matches"

    def holds(self, values: Values) -> bool:
        """Whether it is true."""
        found = values.get(self.name)
        return isinstance(found, str) and self._occurs(found) is not self.negated

    def _occurs(self, text: str) -> bool:
        if self.regex is not None:
            return occurs(self.regex, text)
        return text.startswith(self.part) if self.how == "starts with" else text.endswith(self.part)

    def opposite(self) -> Term:
        """True exactly where this is false."""
        return TextTest(self.name, self.how, self.part, not self.negated, self.regex)


@dataclass(frozen=True, slots=True)
class Presence:
    """Whether an event has an attribute: the one question that missing ones answer, too."""

    name: str
    present: bool

    def holds(self, values: Values) -> bool:
        """Whether it is true."""
        return (self.name in values) is self.present

    def opposite(self) -> Term:
        """True exactly where this is false."""
        return Presence(self.name, not self.present)


@dataclass(frozen=True, slots=True)
class All:
    """True where all its parts are: `and`."""

    parts: tuple[Term, ...]

    def holds(self, values: Values) -> bool:
        """Whether it is true."""
        return all(part.holds(values) for part in self.parts)

    def opposite(self) -> Term:
        """True exactly where this is false."""
        return Some(tuple(part.opposite() for part in self.parts))


@dataclass(frozen=True, slots=True)
class Some:
    """True where at least one of its parts is: `or`."""

    parts: tuple[Term, ...]

    def holds(self, values: Values) -> bool:
        """Whether it is true."""
        return any(part.holds(values) for part in self.parts)

    def opposite(self) -> Term:
        """True exactly where this is false."""
        return All(tuple(part.opposite() for part in self.parts))


Question: TypeAlias = Comparison | Listed | TextTest | Presence
Term: TypeAlias = Question | All | Some


def questions(term: Term) -> Iterator[Question]:
    """The questions about single attributes in a term."""
    if isinstance(term, (All, Some)):
        for part in term.parts:
            yield from questions(part)
    else:
        yield term


def alternatives(term: Term) -> int:
    """How many conjunctions it is, once `or` has been moved to the outside."""
    if isinstance(term, All):
        count = 1
        for part in term.parts:
            count *= alternatives(part)
        return count
    return sum(map(alternatives, term.parts)) if isinstance(term, Some) else 1


def conjunctions(term: Term) -> list[tuple[Question, ...]]:
    """The term with `or` moved to the outside: true where all questions of one of them are."""
    if isinstance(term, Some):
        return [found for part in term.parts for found in conjunctions(part)]
    if isinstance(term, All):
        joined: list[tuple[Question, ...]] = [()]
        for part in term.parts:
            joined = [(*head, *tail) for head in joined for tail in conjunctions(part)]
        return joined
    return [(term,)]


def joined(kind: type[All] | type[Some], parts: Iterable[Term], key: Callable[[Term], str]) -> Term:
    """Parts joined in canonical form: flat, each once, in the order of the key."""
    found: dict[str, Term] = {}
    for part in parts:
        for each in part.parts if isinstance(part, kind) else (part,):
            found.setdefault(key(each), each)
    if len(found) == 1:
        return next(iter(found.values()))
    return kind(tuple(found[text] for text in sorted(found)))
