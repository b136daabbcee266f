"""A filter's text against the topic's schema: names that it has, and values of their types."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from typing import Final

import lark

from pulsarcast.model.cbor import INT_MAX, INT_MIN
from pulsarcast.model.fields import TIME_US_MAX
from pulsarcast.model.filters.bounds import (
    FILTER_ALTERNATIVES_MAX,
    FILTER_BYTES_MAX,
    FILTER_REGEXES_MAX,
)
from pulsarcast.model.filters.domains import Domain, Domains, Value, time_of
from pulsarcast.model.filters.errors import FilterError
from pulsarcast.model.filters.grammar import Joined, Part, Test, read_text
from pulsarcast.model.filters.regexes import RegexError, compiled
from pulsarcast.model.filters.terms import (
    All,
    Comparison,
    Listed,
    Presence,
    Some,
    Term,
    TextTest,
    alternatives,
    questions,
)
from pulsarcast.model.filters.texts import canonical, name_text, term_text

_KINDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text in quotes",
    "bool": "true or false",
    "timestamp": "a timestamp such as 2026-01-31T12:00:00Z, or microseconds since 1970",
}
_EXACT_MAX: Final = 1 << 53  # up to here every whole number written with a point is exact
_DIGITS_MAX: Final = 400  # of a number: the largest float has 309 before its point
_SHOWN_MAX: Final = 8  # attributes of a schema that an error names


def read_filter(text: str, domains: Domains) -> tuple[Term, str]:
    """The term that a text stands for, in canonical form, and its canonical text."""
    part = read_text(text)
    checking = _Checking(text, domains)
    term = canonical(checking.term(part), domains)
    written = term_text(term, domains)
    if len(written.encode()) > FILTER_BYTES_MAX:
        problem = f"a filter that, written out, has more than {FILTER_BYTES_MAX} bytes"
        raise FilterError(problem, text, 0, beyond_bounds=True)
    # Of equal parts only one is left: what is counted is what will be kept.
    if alternatives(term) > FILTER_ALTERNATIVES_MAX:
        problem = (
            f"`or` within `and` makes more than {FILTER_ALTERNATIVES_MAX} alternatives of this"
        )
        raise FilterError(problem, text, checking.widest(part), beyond_bounds=True)
    regexes = [
        each for each in questions(term) if isinstance(each, TextTest) and each.how == "matches"
    ]
    if len(regexes) > FILTER_REGEXES_MAX:
        problem = f"more than {FILTER_REGEXES_MAX} patterns"
        raise FilterError(problem, text, checking.last_pattern, beyond_bounds=True)
    return term, written


class _Checking:
    """One text, on its way to a term."""

    def __init__(self, text: str, domains: Domains) -> None:
        self._text = text
        self._domains = domains
        self.last_pattern = 0

    def term(self, part: Part) -> Term:
        """The term that a part of the text stands for."""
        if isinstance(part, Test):
            found = self._test(part)
            return found.opposite() if part.negated else found
        if part.how == "not":
            return self.term(part.parts[0]).opposite()
        terms = tuple(map(self.term, part.parts))
        if len(terms) == 1:
            return terms[0]
        return All(terms) if part.how == "and" else Some(terms)

    def widest(self, part: Part) -> int:
        """The offset of the innermost part that alone has too many alternatives."""
        while isinstance(part, Joined):
            for each in part.parts:
                if alternatives(self.term(each)) > FILTER_ALTERNATIVES_MAX:
                    part = each
                    break
            else:
                break
        while isinstance(part, Joined):
            part = part.parts[0]
        return part.name.start_pos or 0

    def _fail(self, problem: str, token: lark.Token) -> FilterError:
        return FilterError(problem, self._text, token.start_pos or 0)

    def _test(self, test: Test) -> Term:
        domain = self._domain(test.name)
        name, how = domain.name, test.how
        if how == "is":
            return Presence(name, True)
        if how == "bare":
            if domain.kind != "bool":
                problem = f"{name_text(name)} is {_a(domain.kind)}: expected a comparison after it"
                raise self._fail(problem, test.name)
            return Comparison(name, "=", True)
        if how in ("starts with", "ends with", "matches"):
            return self._text_test(domain, test)
        values = [self._value(domain, token) for token in test.values]
        if how == "in":
            choices = tuple(sorted(set(values)))
            if len(choices) == 1:
                return Comparison(name, "=", choices[0])
            return Listed(name, choices)
        if domain.kind == "bool" and how not in ("=", "!="):
            problem = f"{name_text(name)} is a bool: it is equal to true or false, or it is not"
            raise self._fail(problem, test.name)
        if how.startswith(".."):
            return self._range(domain, test, values)
        return Comparison(name, how, values[0])

    def _range(self, domain: Domain, test: Test, values: list[Value]) -> Term:
        low, high = values
        below = "<" if test.how == "..<" else "<="
        if not low <= high or (low == high and below == "<"):  # type: ignore[operator]
            raise self._fail("a range with nothing in it", test.values[0])
        if low == high:
            return Comparison(domain.name, "=", low)
        return All((Comparison(domain.name, ">=", low), Comparison(domain.name, below, high)))

    def _text_test(self, domain: Domain, test: Test) -> Term:
        token = test.values[0]
        if domain.kind != "str":
            problem = f"{name_text(domain.name)} is {_a(domain.kind)}: `{test.how}` is for texts"
            raise self._fail(problem, test.name)
        part = unquoted(token)
        if test.how != "matches":
            return TextTest(domain.name, test.how, part)
        self.last_pattern = token.start_pos or 0
        try:
            return TextTest(domain.name, test.how, part, False, compiled(part))
        except RegexError as error:
            raise self._fail(str(error), token) from None

    def _domain(self, token: lark.Token) -> Domain:
        name = unquoted(token)
        found = self._domains.get(name)
        if found is not None:
            return found
        if not self._domains:
            raise self._fail("the topic has no attributes that a filter could ask about", token)
        problem = f"the topic has no attribute {name_text(name[:40])}"
        raise self._fail(f"{problem}: {_meant(name, self._domains)}", token)

    def _value(self, domain: Domain, token: lark.Token) -> Value:
        found = _literal(domain.kind, token)
        if found is None:
            said = str(token) if len(token) <= 30 else str(token)[:30] + "…"
            problem = (
                f"{name_text(domain.name)} is {_a(domain.kind)}: expected {_KINDS[domain.kind]}"
            )
            raise self._fail(f"{problem}, not {said}", token)
        return found


def unquoted(token: lark.Token) -> str:
    """The text that stands in quotes, or a name, in backticks or not."""
    text = str(token)
    quote = text[0]
    if quote in "'\"`":
        return text[1:-1].replace(quote * 2, quote)
    return text


def _literal(kind: str, token: lark.Token) -> Value | None:
    """The value of this type that a token says, if it does."""
    if kind == "str":
        return unquoted(token) if token.type == "STRING" else None
    if kind == "bool":
        return token.type == "TRUE" if token.type in ("TRUE", "FALSE") else None
    if kind == "timestamp" and token.type == "TIME":
        try:
            moment = time_of(str(token))
        except (ValueError, OverflowError):  # a day or an hour that there is not
            return None
        return moment if 0 <= moment <= TIME_US_MAX else None
    if token.type != "NUMBER" or len(token) > _DIGITS_MAX:
        return None
    number = _number(str(token))
    if kind == "float":
        try:
            number = float(number)
        except OverflowError:
            return None
        return number + 0.0 if math.isfinite(number) else None
    if isinstance(number, float):
        if not number.is_integer() or abs(number) > _EXACT_MAX:
            return None
        number = int(number)
    low, high = (0, TIME_US_MAX) if kind == "timestamp" else (INT_MIN, INT_MAX)
    return number if low <= number <= high else None


def _number(text: str) -> int | float:
    digits = text.removeprefix("-")
    return int(text) if digits.isdigit() else float(text)


def _a(kind: str) -> str:
    return f"an {kind}" if kind == "int" else f"a {kind}"


def _meant(name: str, known: Iterable[str]) -> str:
    """The attributes there are, or the one that was meant."""
    names = sorted(known)
    close = difflib.get_close_matches(name[:64], [each[:64] for each in names], n=1)
    if close:
        return f"did you mean {name_text(close[0])}?"
    shown = ", ".join(map(name_text, names[:_SHOWN_MAX]))
    return f"it has {shown}" + (" and others" if len(names) > _SHOWN_MAX else "")
