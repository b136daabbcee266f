"""The language: what it says of events, and what it says of texts that are not in it."""

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarcast.model.errors import LocalError, RemoteError
from pulsarcast.model.filters import FilterError, FilterIndex, parse, parse_received
from pulsarcast.model.filters.bounds import (
    FILTER_ALTERNATIVES_MAX,
    FILTER_BOXES_MAX,
    FILTER_BYTES_MAX,
    FILTER_DEPTH_MAX,
    FILTER_REGEXES_MAX,
    FILTER_TERMS_MAX,
    REGEX_BYTES_MAX,
    REGEX_INPUT_BYTES_MAX,
    REGEX_PROGRAM_MAX,
)
from pulsarcast.model.filters.grammar import GRAMMAR
from pulsarcast.model.topic_types import AttributeRule

SCHEMA = (
    AttributeRule("price", "float", 0, 100),
    AttributeRule("number", "int", 0, 1000),
    AttributeRule("symbol", "str"),
    AttributeRule("hot", "bool"),
    AttributeRule("at", "timestamp"),
)
LONG_S = 0.5  # what no text of a stranger may take; a good one takes some milliseconds


@pytest.mark.parametrize(
    ("text", "attributes", "expected"),
    [
        ("price < 10 and number > 50", {"price": 9.5, "number": 51}, True),
        ("price < 10 and number > 50", {"price": 10, "number": 51}, False),
        ("price in 10..20", {"price": 20}, True),
        ("price in 10..<20", {"price": 20}, False),
        ("price in 10..<20", {"price": 10}, True),
        ("price not in 10..20", {"price": 21}, True),
        ("symbol in ('IBM', \"SBUX\")", {"symbol": "SBUX"}, True),
        ("symbol = 'ibm'", {"symbol": "IBM"}, False),
        ("symbol starts with 'IB' and not symbol ends with 'X'", {"symbol": "IBM"}, True),
        ("symbol matches '^[A-Z]{3}$'", {"symbol": "IBM"}, True),
        ("symbol matches '^[A-Z]{3}$'", {"symbol": "IBM\n"}, False),
        ("symbol = 'O''Brien'", {"symbol": "O'Brien"}, True),
        ("hot or price > 5", {"hot": True}, True),
        ("not hot", {"hot": False}, True),
        ("at >= 2026-01-31", {"at": 1_769_817_600_000_000}, True),
        ("at < 2026-01-31T01:00:00+01:00", {"at": 1_769_817_600_000_000}, False),
        # What is missing, or not what the schema allows, is neither true nor false.
        ("price < 10", {}, False),
        ("not price < 10", {}, False),
        ("price != 10", {}, False),
        ("price < 10 or not price < 10", {}, False),
        ("price is missing", {}, True),
        ("price is missing or price < 10", {"price": 101}, True),
        ("price is present", {"price": "5"}, False),
        ("number = 1", {"number": True}, False),
        ("number = 1", {"number": 1.0}, False),
        ("price = 1", {"price": float("nan")}, False),
        ("not price = 1", {"price": float("nan")}, False),
        ("price >= 0", {"price": float("inf")}, False),
        ("price = 0", {"price": -0.0}, True),
        ("price in (-0.0, 5)", {"price": 0}, True),
        # Keywords in any case, names as they are.
        ("PRICE < 10", {"price": 5}, None),
        ("price < 10 AND Number > 5", {"price": 5}, None),
        ("price < 10 AND NOT number > 5", {"price": 5, "number": 5}, True),
    ],
)
def test_what_a_filter_says_of_an_event(
    text: str, attributes: dict[str, Any], expected: bool | None
) -> None:
    if expected is None:
        with pytest.raises(FilterError, match="no attribute"):
            parse(text, SCHEMA)
    else:
        assert parse(text, SCHEMA).matches(attributes) is expected


@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ("price <", 1, 8, "ends too early: expected a number, a text in quotes"),
        ("", 1, 1, r"ends too early: expected `\(`, `not` or an attribute's name"),
        ("price < 10 an number > 5", 1, 12, "expected `and`, `or` or the end, not `an`"),
        ("price < 10 and\n  numbr > 5", 2, 3, "no attribute numbr: did you mean number?"),
        ("qqq > 5", 1, 1, "it has at, hot, number, price, symbol"),
        ("(price < 10", 1, 12, r"expected `\)`"),
        ("price < 'ten'", 1, 9, "price is a float: expected a number, not 'ten'"),
        ("number = 1.5", 1, 10, "number is an int: expected a whole number, not 1.5"),
        ("number = 99999999999999999999", 1, 10, "expected a whole number"),
        ("price > 1e999", 1, 9, "expected a number"),
        ("symbol > 5", 1, 10, "symbol is a str: expected a text in quotes"),
        ("price", 1, 1, "price is a float: expected a comparison after it"),
        ("hot < true", 1, 1, "hot is a bool"),
        ("at > 2026-02-31", 1, 6, "at is a timestamp: expected a timestamp such as"),
        ("at > 1969-12-31", 1, 6, "expected a timestamp"),
        ("price starts with 'a'", 1, 1, "`starts with` is for texts"),
        ("symbol starts 'a'", 1, 15, "expected `with`"),
        ("hot " + "x" * 20, 1, 5, f"not `{'x' * 20}`"),
        ("hot " + "x" * 21, 1, 5, f"not `{'x' * 20}…`"),
        ("symbol matches '.{1000}'", 1, 16, f"more than {REGEX_PROGRAM_MAX} instructions"),
        ("symbol matches '('", 1, 16, "not a pattern that RE2 takes: missing"),
        ("symbol matches '(a)\\1'", 1, 16, "not a pattern that RE2 takes"),
        ("price in 20..10", 1, 10, "a range with nothing in it"),
        ("price in 20..<20", 1, 10, "a range with nothing in it"),
        ("symbol = 'IBM", 1, 10, "quote"),
        ("price # 5", 1, 7, "`#` has no meaning here"),
        ("price \x07 5", 1, 7, r"'\\x07' has no meaning here"),
        ("price < 10abc", 1, 9, "no meaning"),
        ("symbol = '\ud800'", 1, 11, "surrogate"),
    ],
)
def test_an_error_points_at_its_place(text: str, line: int, column: int, problem: str) -> None:
    with pytest.raises(FilterError, match=problem) as caught:
        parse(text, SCHEMA)
    error = caught.value
    assert isinstance(error, LocalError)
    assert (error.line, error.column) == (line, column)
    shown, caret = str(error).splitlines()[-2:]
    assert caret == " " * (1 + column) + "^"
    wrong = text.splitlines()[line - 1] if text else ""
    assert len(shown) == 2 + len(wrong)


def test_an_error_in_a_long_line_shows_the_part_that_is_wrong() -> None:
    text = " or ".join(f"price = {value}" for value in range(40)) + " or nothing = 5"
    with pytest.raises(FilterError) as caught:
        parse(text, SCHEMA)
    shown, caret = str(caught.value).splitlines()[-2:]
    assert shown[caret.index("^") :].startswith("nothing = 5")
    assert len(shown) < 110


def test_a_topic_without_a_schema_has_nothing_to_ask_about() -> None:
    with pytest.raises(FilterError, match="no attributes"):
        parse("price < 5", ())


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("price<10 AND number>50", "number > 50 and price < 10"),
        ("not (price < 10 and number > 50)", "number <= 50 or price >= 10"),
        ("number in (3, 1, 2, 1)", "number in (1, 2, 3)"),
        ("number in (1)", "number = 1"),
        ("price in 10..20", "price <= 20 and price >= 10"),
        ("hot != true", "hot = false"),
        ('symbol = "it\'s"', "symbol = 'it''s'"),
        ("((price < 10))", "price < 10"),
        ("hot and (price < 1 or number < 1)", "hot = true and (number < 1 or price < 1)"),
        ("at > 0", "at > 1970-01-01T00:00:00Z"),
        ("price = 1e2 or price = 100 or price = 100.0", "price = 100"),
    ],
)
def test_what_differs_in_spelling_alone_becomes_equal(text: str, canonical: str) -> None:
    found = parse(text, SCHEMA)
    assert found.text() == canonical
    assert found == parse(canonical, SCHEMA)
    assert hash(found) == hash(parse(canonical, SCHEMA))


def test_an_index_takes_filters_of_its_own_schema_only() -> None:
    index: FilterIndex[str] = FilterIndex(SCHEMA)
    with pytest.raises(LocalError, match="another schema"):
        index.insert("a", parse("price < 5", (AttributeRule("price", "float", 0, 50),)))


def test_too_many_alternatives_are_called_so() -> None:
    text = " and ".join(f"(number = {n} or price = {n})" for n in range(7))
    with pytest.raises(FilterError, match=f"more than {FILTER_ALTERNATIVES_MAX} alternatives"):
        parse(text, SCHEMA)


@pytest.mark.parametrize("number", [-(1 << 63), -1, (1 << 63) - 1])
def test_a_whole_number_may_be_any_of_64_bits(number: int) -> None:
    found = parse(f"number = {number}", (AttributeRule("number", "int"),))
    assert found.matches({"number": number})


@pytest.mark.parametrize("number", [-(1 << 63) - 1, 1 << 63])
def test_a_whole_number_of_more_than_64_bits_is_none(number: int) -> None:
    with pytest.raises(FilterError, match="expected a whole number"):
        parse(f"number = {number}", (AttributeRule("number", "int"),))


def test_many_filters_that_begin_behind_a_value_do_not_match_it() -> None:
    """Only an index of many has boundaries, and each filter's is one here."""
    index: FilterIndex[int] = FilterIndex(SCHEMA)
    for number in range(100):
        index.insert(number, parse(f"number > {number}", SCHEMA))
    for number in range(100):
        assert index.matching({"number": number}) == set(range(number))


# Strangers

HOSTILE = {
    "deep parentheses": "(" * 2000 + "price < 1" + ")" * 2000,
    "just too deep": "(" * FILTER_DEPTH_MAX + "price < 1" + ")" * FILTER_DEPTH_MAX,
    "many nots": "not " * 1000 + "hot",
    "parentheses that never close": "(" * 4096,
    "parentheses that never opened": ")" * 4096,
    "too long": "hot or " * 600 + "hot",
    "far too long": "x" * 10_000_000,
    "alternatives": " and ".join(f"(number = {n} or price = {n})" for n in range(100)),
    "just too many alternatives": " and ".join(f"(number = {n} or price = {n})" for n in range(7)),
    "alternatives by negation": "not ("
    + " or ".join(f"number in {n}..{n + 1}" for n in range(60))
    + ")",
    "terms": " or ".join(f"number={n}" for n in range(FILTER_TERMS_MAX + 1)),
    "values": f"number in ({','.join(map(str, range(FILTER_TERMS_MAX + 1)))})",
    "a long pattern": f"symbol matches '{'a' * (REGEX_BYTES_MAX + 1)}'",
    "a pattern that grows": "symbol matches '((a{0,30}){0,30}){0,30}'",
    "a large program": "symbol matches '.{1000}'",
    "a large class": r"symbol matches '(?i)[\pL\pN\pS]{1,60}'",
    "many patterns": " or ".join(f"symbol matches '{n}'" for n in range(FILTER_REGEXES_MAX + 1)),
    "a long number": "price < " + "9" * 4000,
    "a long exponent": "price < 1e" + "9" * 4000,
    "quotes": "symbol = " + "'" * 4001,
    "backticks": "`" * 4001,
    "an unknown name": "n" * 4000 + " = 1",
    "nothing": "",
    "NUL": "\0" * 4096,
    "half a character": "symbol = '\ud800'",
    "blanks": " " * 4096,
    "newlines": "\n" * 4096,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_strangers_hostile_text_is_refused_quickly(text: str) -> None:
    parse("hot", SCHEMA)  # the grammar is built once
    start = time.process_time()
    with pytest.raises(RemoteError) as caught:
        parse_received(text, SCHEMA)
    assert time.process_time() - start < LONG_S
    assert len(str(caught.value)) < 60  # nothing of the text is quoted


@pytest.mark.parametrize("value", [None, 5, b"price < 5", ["price < 5"]])
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(RemoteError, match="not a text"):
        parse_received(value, SCHEMA)


LARGEST = {
    "alternatives": " and ".join(f"(number = {n} or price = {n})" for n in range(6)),
    "ranges": " or ".join(
        f"(number = {n} and price = {n})" for n in range(FILTER_ALTERNATIVES_MAX)
    ),
    "values": f"number in ({','.join(map(str, range(FILTER_TERMS_MAX)))})",
    "values not": f"number not in ({','.join(map(str, range(100)))}) and "
    f"price not in ({','.join(map(str, range(100)))})",
    "depth": "(" * (FILTER_DEPTH_MAX - 1) + "price < 1" + ")" * (FILTER_DEPTH_MAX - 1),
    "patterns": " or ".join(rf"symbol matches '(?i)\pL{{{n}}}'" for n in range(1, 2)),
    "nested groups": f"symbol matches '{'(' * 128}{')' * 128}'",
}


@pytest.mark.parametrize("text", LARGEST.values(), ids=LARGEST.keys())
def test_the_largest_that_is_allowed_is_parsed_covered_and_indexed_quickly(text: str) -> None:
    parse("hot", SCHEMA)
    start = time.process_time()
    found = parse_received(text, SCHEMA)
    assert len(found.cover()) <= FILTER_BOXES_MAX
    index: FilterIndex[int] = FilterIndex(SCHEMA)
    index.insert(1, found)
    found.matches({"number": 5, "price": 5.0, "symbol": "ab" * 20})
    assert time.process_time() - start < LONG_S
    assert parse(found.text(), SCHEMA) == found


def test_a_pattern_takes_linear_time_and_long_texts_are_not_looked_through() -> None:
    found = parse("symbol matches '(a|b)*a(a|b){20}c' or symbol matches '(a?){60}a{60}b'", SCHEMA)
    text = "ab" * (REGEX_INPUT_BYTES_MAX // 2)
    start = time.process_time()
    assert not found.matches({"symbol": text})
    assert time.process_time() - start < LONG_S
    simple = parse("symbol matches '^a'", SCHEMA)
    assert simple.matches({"symbol": text})
    assert not simple.matches({"symbol": text + "a"})
    assert not parse("not symbol matches '^b'", SCHEMA).matches({"symbol": 5})


WORDS = st.sampled_from(
    [
        "price",
        "number",
        "symbol",
        "hot",
        "at",
        "and",
        "or",
        "not",
        "in",
        "(",
        ")",
        "..",
        "..<",
        ",",
        "<",
        "=",
        "!=",
        "5",
        "1e3",
        "-2",
        "'a'",
        "starts",
        "with",
        "matches",
        "is",
        "missing",
        "2026-01-01",
    ]
)


@settings(max_examples=500, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=25).map(" ".join)))
def test_no_text_makes_parsing_raise_anything_else(text: str) -> None:
    try:
        found = parse_received(text, SCHEMA)
    except RemoteError:
        return
    assert len(found.text().encode()) <= FILTER_BYTES_MAX
    assert parse(found.text(), SCHEMA) == found


def test_every_terminal_of_the_grammar_has_a_name_for_errors() -> None:
    from pulsarcast.model.filters import grammar

    parser = grammar._parser()
    names = {each.name for each in parser.terminals} - set(parser.ignore_tokens)
    assert names <= set(grammar._SAID)
    assert "RANGE" in GRAMMAR
