"""Domains: the values that an attribute can have, by its rule in the topic's schema.

Everything that judges a filter, here and in Spark, first looks at an attribute through its domain.
A value that the rule does not allow (published under another version's schema) counts as missing.
All other values are of one type, whose order is the same everywhere:

- int and timestamp: integers of 64 bits; a timestamp is microseconds since 1970, never negative;
- float: finite numbers of 64 bits; integers become the nearest of them, and -0.0 is 0.0;
- str: by code point, which is the order of its UTF-8 bytes too; upper and lower case differ. With
  bounds, the texts from the first to the last in that order;
- bool: false before true.
"""

from __future__ import annotations

import datetime
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pulsarcast.model.cbor import INT_MAX, INT_MIN
from pulsarcast.model.fields import TIME_US_MAX
from pulsarcast.model.topic_types import AttributeRule

Value: TypeAlias = int | float | str | bool

NUMERIC: Final = frozenset(("int", "float", "timestamp"))

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Domain:
    """The values of one attribute."""

    name: str
    kind: str  # one of ATTRIBUTE_TYPES
    low: Any = ""  # both ends belong to it; those of numbers are finite
    high: Any = None  # of texts None where there is no last one

    @property
    def is_ordered(self) -> bool:
        """Whether its values have an order to route by: numbers and texts."""
        return self.kind in NUMERIC or self.kind == "str"

    def view(self, value: object) -> Value | None:
        """A value as filters see it; None if the schema does not allow it."""
        kind = type(value)
        if self.kind == "str":
            return value if isinstance(value, str) and self._has(value) else None
        if self.kind == "bool":
            return value if isinstance(value, bool) else None
        if self.kind == "float":
            if kind is int or kind is float:
                return self._float(value)  # type: ignore[arg-type]
            return None
        if kind is int and self.low <= value <= self.high:
            return value  # type: ignore[return-value]
        return None

    def _has(self, text: str) -> bool:
        return bool(self.low <= text and (self.high is None or text <= self.high))

    def _float(self, value: int | float) -> float | None:
        try:
            number = float(value) + 0.0  # of -0.0 this makes 0.0
        except OverflowError:
            return None
        return number if self.low <= number <= self.high else None  # NaN is not


Domains: TypeAlias = Mapping[str, Domain]


def domain_of(rule: AttributeRule) -> Domain:
    """The domain that a rule describes."""
    first: Any = rule.min  # of the rule's type, as the descriptor was checked
    last: Any = rule.max
    if rule.type == "float":
        low = -sys.float_info.max if first is None else _finite(first)
        high = sys.float_info.max if last is None else _finite(last)
        return Domain(rule.name, rule.type, low, high)
    if rule.type in NUMERIC:
        least, most = (0, TIME_US_MAX) if rule.type == "timestamp" else (INT_MIN, INT_MAX)
        low = least if first is None else max(least, math.ceil(first))
        high = most if last is None else min(most, math.floor(last))
        return Domain(rule.name, rule.type, low, high)
    if rule.type == "str":
        return Domain(rule.name, rule.type, first or "", last)
    return Domain(rule.name, rule.type)


def domains_of(schema: Iterable[AttributeRule]) -> dict[str, Domain]:
    """The domains of a topic's attributes, by name."""
    return {rule.name: domain_of(rule) for rule in schema}


def views(domains: Domains, attributes: Mapping[str, object]) -> dict[str, Value]:
    """An event's attributes as filters see them; what the schema does not allow is left out."""
    found: dict[str, Value] = {}
    for name, value in attributes.items():
        domain = domains.get(name)
        if domain is not None and (seen := domain.view(value)) is not None:
            found[name] = seen
    return found


def _finite(bound: int | float) -> float:
    most = sys.float_info.max
    return min(most, max(-most, bound)) + 0.0


def time_text(microseconds: int) -> str:
    """A timestamp as a filter says it: ISO 8601, in UTC."""
    moment = _EPOCH + microseconds * _MICROSECOND
    return moment.replace(tzinfo=None).isoformat() + "Z"


def time_of(text: str) -> int:
    """The microseconds that ISO 8601 says; a day alone is its first moment, in UTC."""
    moment = datetime.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - _EPOCH) // _MICROSECOND
