"""Filters on an event's attributes: one language for nodes, for routing, for Spark (design, 8).

`parse` makes a `Filter` of a text and a topic's schema. It says whether an event matches, and which
boxes of the logical space can hold events that do. `FilterIndex` finds the filters that an event
matches without looking at all of them. docs/spec/filters.md has the grammar and the rules.
"""

from __future__ import annotations

from pulsarcast.model.filters.cover import Box, Number, Point, Range, point_of
from pulsarcast.model.filters.errors import FilterError
from pulsarcast.model.filters.filter import Filter, parse, parse_received
from pulsarcast.model.filters.index import FilterIndex

__all__ = [
    "Box",
    "Filter",
    "FilterError",
    "FilterIndex",
    "Number",
    "Point",
    "Range",
    "parse",
    "parse_received",
    "point_of",
]
