"""Covers: the boxes that a subscription is routed by."""

import pytest

from pulsarcast.model.filters import Box, Range, parse, point_of
from pulsarcast.model.filters.bounds import FILTER_BOXES_MAX
from pulsarcast.model.topic_types import AttributeRule

SCHEMA = (
    AttributeRule("x", "float", 0, 100),
    AttributeRule("y", "int", 0, 1000),
    AttributeRule("name", "str"),
    AttributeRule("hot", "bool"),
    AttributeRule("sensor", "str", "s-0", "s-9"),
)
ALL_TEXTS = Range("", None)


def box(**ranges: Range) -> Box:
    return Box(tuple(sorted(ranges.items())))


@pytest.mark.parametrize(
    ("text", "cover"),
    [
        (
            "x < 10 and y > 50",
            (box(x=Range(0, 10, high_open=True), y=Range(50, 1000, low_open=True)),),
        ),
        ("x <= 10", (box(x=Range(0, 10)),)),
        ("x < 200", (box(x=Range(0, 100)),)),
        ("x > 200", ()),
        ("x < 5 and x > 10", ()),
        ("x < 5 and x is missing", ()),
        ("x in 10..<20", (box(x=Range(10, 20, high_open=True)),)),
        (
            "x < 10 or y < 10",
            (box(x=Range(0, 10, high_open=True)), box(y=Range(0, 10, high_open=True))),
        ),
        ("x < 10 or x >= 10", (box(x=Range(0, 100)),)),
        ("x < 10 or x < 20", (box(x=Range(0, 20, high_open=True)),)),
        ("x < 10 or (x < 5 and y > 5)", (box(x=Range(0, 10, high_open=True)),)),
        (
            "not x = 10",
            (box(x=Range(0, 10, high_open=True)), box(x=Range(10, 100, low_open=True))),
        ),
        ("x in (1, 3)", (box(x=Range(1, 1)), box(x=Range(3, 3)))),
        ("x is present", (box(x=Range(0, 100)),)),
        # Ranges of texts.
        (
            "name = 'a' and x < 5",
            (box(name=Range("a", "a"), x=Range(0, 5, high_open=True)),),
        ),
        (
            "name = 'a' or x < 5",
            (box(name=Range("a", "a")), box(x=Range(0, 5, high_open=True))),
        ),
        ("name starts with 'ab'", (box(name=Range("ab", "ac", high_open=True)),)),
        ("name starts with '\U0010ffff'", (box(name=Range("\U0010ffff", None)),)),
        ("name in 'a'..<'b'", (box(name=Range("a", "b", high_open=True)),)),
        ("name > 'a'", (box(name=Range("a", None, low_open=True)),)),
        (
            "not name starts with 'b'",
            (box(name=Range("", "b", high_open=True)), box(name=Range("c", None))),
        ),
        ("sensor > 's-5'", (box(sensor=Range("s-5", "s-9", low_open=True)),)),
        ("sensor starts with 'q'", ()),
        ("sensor starts with 's'", (box(sensor=Range("s-0", "s-9")),)),
        # What no range can say is left to the matcher.
        ("name ends with 'a' and x < 5", (box(name=ALL_TEXTS, x=Range(0, 5, high_open=True)),)),
        ("name matches 'a'", (box(name=ALL_TEXTS),)),
        ("hot", (box(),)),
        ("hot or name = 'a'", (box(),)),
        ("x is missing", (box(),)),
    ],
)
def test_a_cover_is_as_narrow_as_ranges_can_be(text: str, cover: tuple[Box, ...]) -> None:
    assert parse(text, SCHEMA).cover() == cover


def test_too_many_boxes_become_wider_ones() -> None:
    listed = ",".join(map(str, range(0, 100, 2)))
    found = parse(f"x in ({listed}) and y in ({listed})", SCHEMA).cover()
    assert 0 < len(found) <= FILTER_BOXES_MAX
    for x in range(0, 100, 2):
        assert any(each.contains({"x": x, "y": x}) for each in found)
    assert not any(each.contains({"x": 99.5, "y": 0}) for each in found)


def test_texts_that_are_listed_become_one_range_before_numbers_do() -> None:
    numbers = ",".join(map(str, range(0, 120, 4)))
    wanted = parse(f"y in ({numbers}) and name in ('a', 'b', 'c')", SCHEMA)
    assert {each.range("name") for each in wanted.cover()} == {Range("a", "c")}
    assert len(wanted.cover()) == 30


def test_a_point_has_the_numbers_and_texts_that_the_schema_allows() -> None:
    event = {"x": 5, "y": 7, "name": "a", "hot": True, "sensor": "s-3"}
    assert point_of(SCHEMA, event) == {"x": 5.0, "y": 7, "name": "a", "sensor": "s-3"}
    assert point_of(SCHEMA, {"x": 101, "y": 7.5, "sensor": "t", "other": 3}) == {}


def test_a_box_needs_what_it_names() -> None:
    found = box(x=Range(0, 10, low_open=True))
    assert found.contains({"x": 10, "y": 3})
    assert not found.contains({"x": 0})
    assert not found.contains({"y": 3})
    assert found.range("x") == Range(0, 10, low_open=True)
    assert found.range("y") is None
    assert box().contains({})
