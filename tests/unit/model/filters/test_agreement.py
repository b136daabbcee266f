"""Random filters against random events: matcher, cover, index and text agree with the judge.

`PULSARCAST_FILTER_PAIRS` sets how many pairs of filter and event are tried.
"""

from typing import Any

from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from pulsarcast.model.filters import Filter, FilterError, FilterIndex, parse, point_of
from tests.unit.model.filters.strategies import (
    EVENT_ATTRIBUTES,
    EVENTS,
    FILTERS,
    SCHEMA,
    WANTED,
    Wanted,
    examples,
)

MANY = settings(
    max_examples=examples(),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def parsed(wanted: Wanted) -> Filter:
    """The filter, unless what was drawn is beyond the bounds."""
    try:
        return parse(wanted.text, SCHEMA)
    except FilterError as error:
        if error.beyond_bounds:
            assume(False)
        raise


@MANY
@given(
    st.lists(WANTED, min_size=FILTERS, max_size=FILTERS),
    st.lists(EVENT_ATTRIBUTES, min_size=EVENTS, max_size=EVENTS),
    st.data(),
)
def test_matcher_cover_index_and_canonical_text_agree_with_the_judge(
    wanted: list[Wanted], events: list[dict[str, Any]], data: st.DataObject
) -> None:
    filters = [parsed(each) for each in wanted]
    index: FilterIndex[int] = FilterIndex(SCHEMA)
    for key, each in enumerate(filters):
        index.insert(key, filters[data.draw(st.integers(0, FILTERS - 1))])  # is replaced
        index.insert(key, each)
        again = parse(each.text(), SCHEMA)
        assert again == each
        assert again.text() == each.text()
    for attributes in events:
        expected = {key for key, each in enumerate(wanted) if each.judge(attributes) is True}
        event("matches" if expected else "does not match")
        assert {key for key, each in enumerate(filters) if each.matches(attributes)} == expected
        assert index.matching(attributes) == expected
        point = point_of(SCHEMA, attributes)
        for key in expected:
            assert any(box.contains(point) for box in filters[key].cover())


@settings(MANY, max_examples=max(20, examples() // 20))
@given(
    st.lists(WANTED, min_size=20, max_size=20),
    st.lists(EVENT_ATTRIBUTES, min_size=3, max_size=3),
    st.lists(st.integers(0, 39), max_size=20),
)
def test_an_index_that_grew_and_shrank_finds_what_a_scan_finds(
    wanted: list[Wanted], events: list[dict[str, Any]], removed: list[int]
) -> None:
    index: FilterIndex[int] = FilterIndex(SCHEMA)
    filters = {}
    for key in range(7 * len(wanted)):  # many more than the boundaries were first chosen for
        filters[key] = parsed(wanted[key % len(wanted)])
        index.insert(key, filters[key])
    for key in removed:
        index.remove(key)
        filters.pop(key, None)
    assert len(index) == len(filters)
    for attributes in events:
        scanned = {key for key, each in filters.items() if each.matches(attributes)}
        assert index.matching(attributes) == scanned
