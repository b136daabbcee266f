"""The language's grammar, read by lark: from text to its parts, each with its place.

Names and types are not judged here (see `checking`). Lark's parser is LALR: it takes time linear in
the text and does not call itself, however deep the text is; how deep it is has been counted when
its parts are put together, so nothing after it can be surprised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

import lark
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from pulsarcast.model.filters.bounds import (
    FILTER_BYTES_MAX,
    FILTER_DEPTH_MAX,
    FILTER_TERMS_MAX,
)
from pulsarcast.model.filters.errors import FilterError

GRAMMAR: Final = r"""
start: either
either: both (OR both)*
both: single (AND single)*
?single: NOT single           -> opposite
    | "(" either ")"          -> group
    | test
test: NAME COMPARE value      -> compared
    | NAME                    -> bare
    | NAME [NOT] IN value RANGE value            -> ranged
    | NAME [NOT] IN "(" value ("," value)* ")"   -> listed
    | NAME [NOT] STARTS WITH STRING              -> part
    | NAME [NOT] ENDS WITH STRING                -> part
    | NAME [NOT] MATCHES STRING                  -> part
    | NAME IS (MISSING | PRESENT)                -> presence
?value: NUMBER | STRING | TIME | TRUE | FALSE

AND.3: /and(?!\w)/i
OR.3: /or(?!\w)/i
NOT.3: /not(?!\w)/i
IN.3: /in(?!\w)/i
STARTS.3: /starts(?!\w)/i
ENDS.3: /ends(?!\w)/i
WITH.3: /with(?!\w)/i
MATCHES.3: /matches(?!\w)/i
IS.3: /is(?!\w)/i
MISSING.3: /missing(?!\w)/i
PRESENT.3: /present(?!\w)/i
TRUE.3: /true(?!\w)/i
FALSE.3: /false(?!\w)/i
_DAY: /[0-9]{4}-[0-9]{2}-[0-9]{2}/
_CLOCK: /T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?/
_ZONE: /Z|[+-][0-9]{2}:[0-9]{2}/
TIME.2: _DAY (_CLOCK _ZONE?)? /(?!\w)/
NUMBER.1: /-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?(?!\w)/
NAME: /[^\W\d]\w*|`([^`]|``)+`/
STRING: /'([^']|'')*'|"([^"]|"")*"/
COMPARE: /<=|>=|!=|==?|<|>/
RANGE: /\.\.<?/
%ignore /[ \t\r\n]+/
"""

_SAID: Final = {
    "AND": "`and`",
    "OR": "`or`",
    "NOT": "`not`",
    "IN": "`in`",
    "STARTS": "`starts with`",
    "ENDS": "`ends with`",
    "WITH": "`with`",
    "MATCHES": "`matches`",
    "IS": "`is`",
    "MISSING": "`missing`",
    "PRESENT": "`present`",
    "TRUE": "true or false",
    "FALSE": "true or false",
    "TIME": "a timestamp",
    "NUMBER": "a number",
    "NAME": "an attribute's name",
    "STRING": "a text in quotes",
    "COMPARE": "a comparison (= != < <= > >=)",
    "RANGE": "`..` or `..<`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "COMMA": "`,`",
    "$END": "the end",
}


@dataclass(frozen=True, slots=True)
class Test:
    """A question of the text about one attribute."""

    name: lark.Token
    how: str  # a comparison's sign, or: bare, ..  ..<  in, starts with, ends with, matches, is
    values: tuple[lark.Token, ...]
    negated: bool

    @property
    def depth(self) -> int:
        """A range becomes two comparisons, joined, and perhaps in parentheses."""
        return 3 if self.how.startswith("..") else 1


@dataclass(frozen=True, slots=True)
class Joined:
    """Parts joined by `and`, or by `or`; or one part with `not` before it."""

    how: str  # and, or, not
    parts: tuple[Part, ...]
    depth: int


Part: TypeAlias = Test | Joined


class _Builder(lark.Transformer[lark.Token, Part]):
    """Puts the parts together while the text is read."""

    def start(self, found: list[Part]) -> Part:
        return found[0]

    def either(self, found: list[Part | lark.Token]) -> Part:
        return _joined("or", found)

    def both(self, found: list[Part | lark.Token]) -> Part:
        return _joined("and", found)

    def opposite(self, found: list[Part | lark.Token]) -> Part:
        return _nested("not", (found[1],))  # type: ignore[arg-type]

    def group(self, found: list[Part]) -> Part:
        return _nested("and", (found[0],))

    def compared(self, found: list[lark.Token]) -> Part:
        return Test(found[0], "=" if found[1] == "==" else str(found[1]), (found[2],), False)

    def bare(self, found: list[lark.Token]) -> Part:
        return Test(found[0], "bare", (), False)

    def ranged(self, found: list[lark.Token]) -> Part:
        name, negation, _, low, how, high = found
        return Test(name, str(how), (low, high), negation is not None)

    def listed(self, found: list[lark.Token]) -> Part:
        return Test(found[0], "in", tuple(found[3:]), found[1] is not None)

    def part(self, found: list[lark.Token]) -> Part:
        how = " ".join(str(word).lower() for word in found[2:-1])
        return Test(found[0], how, (found[-1],), found[1] is not None)

    def presence(self, found: list[lark.Token]) -> Part:
        return Test(found[0], "is", (found[2],), str(found[2]).lower() == "missing")


class _TooDeepError(Exception):
    """The text is nested too deeply; the caller, which has the text, finds the place."""


def _joined(how: str, found: Iterable[Part | lark.Token]) -> Part:
    parts = tuple(part for part in found if not isinstance(part, lark.Token))
    return parts[0] if len(parts) == 1 else _nested(how, parts)


def _nested(how: str, parts: tuple[Part, ...]) -> Joined:
    depth = 1 + max(part.depth for part in parts)
    if depth > FILTER_DEPTH_MAX:
        raise _TooDeepError
    return Joined(how, parts, depth)


@cache
def _parser() -> lark.Lark:
    return lark.Lark(
        GRAMMAR,
        parser="lalr",
        lexer="basic",
        maybe_placeholders=True,
        transformer=_Builder(),
    )


def read_text(text: str) -> Part:
    """The parts of a filter's text."""
    if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        place = next(at for at, sign in enumerate(text) if "\ud800" <= sign <= "\udfff")
        raise FilterError("half of a surrogate pair, which is no character", text, place)
    if len(text.encode()) > FILTER_BYTES_MAX:
        problem = f"a filter has at most {FILTER_BYTES_MAX} bytes"
        raise FilterError(problem, text, FILTER_BYTES_MAX, beyond_bounds=True)
    try:
        part: Part = _parser().parse(text)  # type: ignore[assignment]
    except UnexpectedInput as error:
        raise _misplaced(error, text) from None
    except _TooDeepError:
        problem = f"more than {FILTER_DEPTH_MAX} parentheses, `and`, `or`, `not` within each other"
        raise FilterError(problem, text, _deepest(text), beyond_bounds=True) from None
    _check_count(part, text)
    return part


def _misplaced(error: UnexpectedInput, text: str) -> FilterError:
    if isinstance(error, UnexpectedCharacters):
        place: int = error.pos_in_stream  # type: ignore[assignment]
        sign = text[place]
        if sign in "'\"`":
            return FilterError(f"a quote ({sign}) that is never closed", text, place)
        return FilterError(f"{_readable(sign)} has no meaning here", text, place)
    if isinstance(error, UnexpectedToken):
        expected = _expected(error.accepts or error.expected)
        if error.token.type == "$END":
            return FilterError(f"the text ends too early: expected {expected}", text, len(text))
        found = _readable(str(error.token))
        place = error.token.start_pos or 0
        return FilterError(f"expected {expected}, not {found}", text, place)
    assert isinstance(error, UnexpectedEOF)
    return FilterError("the text ends too early", text, len(text))


def _expected(terminals: Iterable[str]) -> str:
    """The words that could have stood there, for an error message."""
    said = sorted({_SAID.get(each, each) for each in terminals})
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} or {said[-1]}"


def _readable(text: str) -> str:
    shown = text if len(text) <= 20 else text[:20] + "…"
    return repr(shown) if not shown.isprintable() else f"`{shown}`"


def _deepest(text: str) -> int:
    """The offset at which too many parentheses are open, or else of the last `not` or `(`."""
    opened = 0
    place = 0
    for found in re.finditer(r"'[^']*'|\"[^\"]*\"|`[^`]*`|[()]|(?i:\bnot\b)", text):
        if found[0] == ")":
            opened -= 1
        elif found[0][0] not in "'\"`":
            place = found.start()
            opened += found[0] == "("
            if opened > FILTER_DEPTH_MAX:
                break
    return place


def _check_count(part: Part, text: str) -> None:
    """Refuse more questions than are allowed, where the first one too many stands."""
    count = 0
    waiting: list[Part] = [part]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Joined):
            waiting.extend(reversed(each.parts))
            continue
        count += max(1, len(each.values))
        if count > FILTER_TERMS_MAX:
            problem = f"more than {FILTER_TERMS_MAX} comparisons and values"
            raise FilterError(problem, text, each.name.start_pos or 0, beyond_bounds=True)
