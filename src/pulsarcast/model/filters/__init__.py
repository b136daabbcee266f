"""Filters on an event's attributes: one language for subscriptions, routing and Spark.

`parse` makes a `Filter` of a text and a topic's schema. A filter tells whether an event matches,
and which boxes of the logical space can hold matching events. `FilterIndex` finds the filters that
an event matches without testing all of them. docs/spec/filters.md has the grammar and the rules.
"""

from __future__ import annotations

from pulsarcast.model.filters.cover import Box, Point, Range, point_of
from pulsarcast.model.filters.errors import FilterError
from pulsarcast.model.filters.filter import Filter, parse, parse_received
from pulsarcast.model.filters.index import FilterIndex

__all__ = [
    "Box",
    "Filter",
    "FilterError",
    "FilterIndex",
    "Point",
    "Range",
    "parse",
    "parse_received",
    "point_of",
]
