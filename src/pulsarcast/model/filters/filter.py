"""A filter: a subscriber's predicate on events' attributes, parsed once for all uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.filters.checking import read_filter
from pulsarcast.model.filters.cover import Box, cover_of
from pulsarcast.model.filters.domains import Domain, domains_of, views
from pulsarcast.model.filters.errors import FilterError
from pulsarcast.model.filters.terms import Question, Term, conjunctions, questions
from pulsarcast.model.topic_types import AttributeRule


class Filter:
    """A predicate on the attributes that a topic's schema names.

    Two filters are equal if they ask the same of the same attributes in the same canonical words.
    """

    def __init__(
        self,
        term: Term,
        text: str,
        schema: tuple[AttributeRule, ...],
        domains: Mapping[str, Domain],
    ) -> None:
        self.term = term
        self.schema = schema
        names = {question.name for question in questions(term)}
        self.domains: dict[str, Domain] = {
            name: each for name, each in domains.items() if name in names
        }
        self._text = text

    def text(self) -> str:
        """The canonical text, which parses to an equal filter."""
        return self._text

    def matches(self, attributes: Mapping[str, object]) -> bool:
        """Whether an event with these attributes is one that was asked for."""
        return self.term.holds(views(self.domains, attributes))

    def cover(self) -> tuple[Box, ...]:
        """Boxes of the logical space that hold every event that matches; none if none can."""
        return self._cover

    @cached_property
    def _cover(self) -> tuple[Box, ...]:
        return cover_of(self.conjunctions(), self.domains)

    def conjunctions(self) -> list[tuple[Question, ...]]:
        """The filter with `or` outside: it is true where all questions of one of these are."""
        return conjunctions(self.term)

    def __eq__(self, other: object) -> bool:
        """Equal filters match the same events."""
        if not isinstance(other, Filter):
            return NotImplemented
        return (self._text, self.domains) == (other._text, other.domains)

    def __hash__(self) -> int:
        """Hash by the canonical text."""
        return hash(self._text)

    def __repr__(self) -> str:
        """Show the canonical text."""
        return f"Filter({self._text!r})"


def parse(text: str, schema: Iterable[AttributeRule]) -> Filter:
    """The filter that a text says, on a topic with this schema; a FilterError if it says none."""
    rules = tuple(schema)
    domains = domains_of(rules)
    term, canonical = read_filter(text, domains)
    return Filter(term, canonical, rules, domains)


def parse_received(text: object, schema: Iterable[AttributeRule]) -> Filter:
    """The filter that a stranger sent: what is wrong is counted, and nothing of it is quoted."""
    if not isinstance(text, str):
        raise RemoteError("a filter is not a text")
    try:
        return parse(text, schema)
    except FilterError as error:
        if error.beyond_bounds:
            raise RemoteError("a filter larger than is allowed", code=Rejection.OVERSIZE) from error
        raise RemoteError(
            "a text that is no filter on the topic's attributes", code=Rejection.INVALID_FILTER
        ) from error
