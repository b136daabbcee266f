"""Random filters, each with a judge of its own that shares no code with ours.

A judge answers as SQL would: true, false, or None where a missing attribute leaves it open.
"""

from __future__ import annotations

import datetime
import math
import operator
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from pulsarcast.model.topic_types import AttributeRule

Judge = Callable[[Mapping[str, Any]], bool | None]

SCHEMA = (
    AttributeRule("price", "float", 0, 100),
    AttributeRule("number", "int", -10, 1000),
    AttributeRule("any", "float"),
    AttributeRule("long", "int"),
    AttributeRule("symbol", "str"),
    AttributeRule("hot", "bool"),
    AttributeRule("at", "timestamp"),
    AttributeRule("in", "int", 0, 5),  # a keyword, and a space below: names in backticks
    AttributeRule("odd `name", "str"),
    AttributeRule("bound", "str", "IBM", "b"),
)
TYPES = {rule.name: rule.type for rule in SCHEMA}

FILTERS, EVENTS = 5, 20  # of one example: 100 pairs


def examples() -> int:
    """How many examples, by the number of pairs that the environment asks for."""
    pairs = int(os.environ.get("PULSARCAST_FILTER_PAIRS", "3000"))
    return max(1, math.ceil(pairs / (FILTERS * EVENTS)))


FLOATS = st.one_of(
    st.sampled_from(
        (0.0, -0.0, 0.1, 1.5, 10, 10.0, 20, 50, 99.9, 100, 1e-9, 1e300, -1e300, 5e-324)
    ),
    st.sampled_from((2**53, 2**53 + 1, 2.0**53, 2**63 - 1, -(2**63), 2.0**63, 9007199254740993)),
    st.floats(0, 100),
    st.integers(-3, 103),
)
INTS = st.one_of(
    st.integers(-12, 12),
    st.sampled_from((999, 1000, 1001, 2**53, 2**53 + 1, 2**63 - 1, -(2**63))),
)
TEXTS = st.one_of(
    st.sampled_from(("", "a", "A", "ab", "abc", "b", "IBM", "ibm", "é", "z\U0001f600", "\ue000")),
    st.sampled_from(("\U0010ffff", "\ud7ff", "'", '"', "a''b", "a\nb", "\0", "\\", "%", "_", "aß")),
    st.text("abAB é\U0001f600\uffff", max_size=4),
)
TIMES = st.one_of(
    st.sampled_from((0, 1, 253_402_300_799_999_999, 1_700_000_000_000_000, 1_700_000_000_000_001)),
    st.integers(1_700_000_000_000_000, 1_700_000_100_000_000),
)
VALUES = {"float": FLOATS, "int": INTS, "str": TEXTS, "bool": st.booleans(), "timestamp": TIMES}

# What RE2 and Python's `re` read alike, so that the one can be held against the other.
PATTERNS = st.sampled_from(
    ("a", "^a", "b$", "^a.*b", "[ab]+", "A|b", "(ab)+c?", "^$", "é", r"\.", "(?i)ibm", "a{2,3}")
)

EVENT_ATTRIBUTES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        name: st.one_of(VALUES[kind], VALUES[kind], st.one_of(FLOATS, INTS, TEXTS, st.booleans()))
        for name, kind in TYPES.items()
    }
    | {"unknown": INTS},
)


@dataclass(frozen=True)
class Wanted:
    """A filter's text, and what it should say of an event."""

    text: str
    judge: Judge
    is_single: bool = False  # whether `not` can stand before it without parentheses

    def __repr__(self) -> str:
        return self.text


def seen(name: str, attributes: Mapping[str, Any]) -> Any:
    """The attribute as the specification says that filters see it."""
    value = attributes.get(name)
    rule = next(rule for rule in SCHEMA if rule.name == name)
    kind = rule.type
    if kind == "str":
        low, high = str(rule.min or ""), rule.max
        allowed = isinstance(value, str) and low <= value and (high is None or value <= str(high))
        return value if allowed else None
    if kind == "bool":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if kind == "float":
        value = float(value)
        if math.isnan(value) or math.isinf(value):
            return None
    elif not isinstance(value, int):
        return None
    least: Any = rule.min
    most: Any = rule.max
    if kind == "timestamp":
        least, most = 0, 253_402_300_799_999_999
    if (least is not None and value < least) or (most is not None and value > most):
        return None
    return value


def spelled(draw: st.DrawFn, word: str) -> str:
    return draw(st.sampled_from((word, word, word.upper(), word.title())))


def name_of(draw: st.DrawFn, name: str) -> str:
    if name in ("in", "odd `name") or draw(st.integers(0, 9)) == 0:
        return "`" + name.replace("`", "``") + "`"
    return name


def literal(draw: st.DrawFn, kind: str) -> tuple[str, Any]:
    """A value, and one way to write it."""
    value: Any = draw(VALUES[kind])
    if kind == "str":
        quote = draw(st.sampled_from("'\""))
        return quote + value.replace(quote, quote * 2) + quote, value
    if kind == "bool":
        return spelled(draw, "true" if value else "false"), value
    if kind == "timestamp" and draw(st.booleans()):
        moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        moment += datetime.timedelta(microseconds=value)
        return moment.isoformat().replace("+00:00", draw(st.sampled_from(("Z", "+00:00")))), value
    if kind == "float":
        return repr(value), float(value)
    return str(value), value


SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def on(name: str, test: Callable[[Any], bool], negated: bool) -> Judge:
    def judge(attributes: Mapping[str, Any]) -> bool | None:
        value = seen(name, attributes)
        return None if value is None else test(value) is not negated

    return judge


@st.composite
def tests(draw: st.DrawFn) -> Wanted:
    name = draw(st.sampled_from(sorted(TYPES)))
    kind = TYPES[name]
    said = name_of(draw, name)
    hows = ["compare", "compare", "in", "is"]
    hows += {"str": ["starts", "ends", "matches", "range"], "bool": ["bare"]}.get(kind, ["range"])
    how = draw(st.sampled_from(hows))
    negated = draw(st.booleans())
    negation = spelled(draw, "not") + " " if negated else ""
    if how == "compare":
        sign = draw(st.sampled_from(("=", "!=") if kind == "bool" else tuple(SIGNS)))
        text, value = literal(draw, kind)
        space = draw(st.sampled_from((" ", "", "  \n")))
        return Wanted(
            f"{said}{space}{sign}{space}{text}",
            on(name, lambda found: SIGNS[sign](found, value), False),
            True,
        )
    if how == "in":
        chosen = [literal(draw, kind) for _ in range(draw(st.integers(1, 4)))]
        values = [value for _, value in chosen]
        listed = ", ".join(text for text, _ in chosen)
        text = f"{said} {negation}{spelled(draw, 'in')} ({listed})"
        return Wanted(text, on(name, lambda found: found in values, negated), True)
    if how == "range":
        pair = sorted((literal(draw, kind), literal(draw, kind)), key=lambda each: each[1])
        (low_text, low), (high_text, high) = pair
        half = low < high and draw(st.booleans())
        text = f"{said} {negation}in {low_text}{'..<' if half else '..'}{high_text}"
        return Wanted(
            text,
            on(
                name,
                lambda found: low <= found and (found < high or (found == high and not half)),
                negated,
            ),
            True,
        )
    if how == "is":
        word = "missing" if negated else "present"
        return Wanted(
            f"{said} is {word}", lambda given: (seen(name, given) is None) is negated, True
        )
    if how == "bare":
        return Wanted(said, on(name, bool, False), True)
    part = draw(PATTERNS if how == "matches" else TEXTS)
    quoted = "'" + part.replace("'", "''") + "'"
    if how == "matches":
        found = re.compile(part.replace("$", r"\Z"))
        text = f"{said} {negation}{spelled(draw, 'matches')} {quoted}"
        return Wanted(text, on(name, lambda value: bool(found.search(value)), negated), True)
    text = f"{said} {negation}{spelled(draw, how)} with {quoted}"
    if how == "starts":
        return Wanted(text, on(name, lambda value: value.startswith(part), negated), True)
    return Wanted(text, on(name, lambda value: value.endswith(part), negated), True)


def _and(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


@st.composite
def _nested(draw: st.DrawFn, inner: st.SearchStrategy[Wanted]) -> Wanted:
    how = draw(st.sampled_from(("and", "or", "not")))
    if how == "not":
        one = draw(inner)
        text = one.text if one.is_single and draw(st.booleans()) else f"({one.text})"
        return Wanted(f"{spelled(draw, 'not')} {text}", lambda given: _not(one.judge(given)), True)
    parts = draw(st.lists(inner, min_size=2, max_size=3))
    texts = [part.text if part.is_single else f"({part.text})" for part in parts]

    def judge(given: Mapping[str, Any]) -> bool | None:
        if how == "and":
            found: bool | None = True
            for part in parts:
                found = _and(found, part.judge(given))
            return found
        found = False
        for part in parts:
            found = _not(_and(_not(found), _not(part.judge(given))))
        return found

    return Wanted(f" {spelled(draw, how)} ".join(texts), judge)


WANTED: st.SearchStrategy[Wanted] = st.recursive(tests(), _nested, max_leaves=6)
