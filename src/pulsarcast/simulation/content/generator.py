"""The 2d-tree thesis' subscriptions and events (4.1.2, tables 4.2 and 4.3).

A domain is divided into sub-ranges, whose popularity is Zipf's: an event's value is drawn from one
of them. A subscription's range begins with such a value; its size is Zipf's too, up to a bound.
The thesis does not say whether the value is an end of the range or its middle, nor into how many
steps sizes are divided: here it is the middle, and a hundred.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from random import Random
from typing import Any, Final, NamedTuple

from pulsarcast.model.topic_types import AttributeRule

SIZE_STEPS: Final = 100


class Column(NamedTuple):
    """One attribute, and how its values and ranges are distributed."""

    name: str
    low: float
    high: float
    present: float
    subrange_skew: float
    subrange_size: float
    size_skew: float
    size_bound: float


THESIS: Final = (
    Column("Attr1", 0.0, 10_000.0, 0.5, 0.6, 100.0, 0.8, 0.5),
    Column("Attr2", -10_000.0, 10_000.0, 0.5, 0.5, 20.0, 0.6, 0.4),
    Column("Attr3", 0.0, 3_000.0, 0.5, 0.4, 10.0, 0.5, 0.3),
    Column("Attr4", 0.0, 200.0, 0.5, 0.3, 1.0, 0.4, 0.2),
)


class Zipf:
    """Ranks 0 to count - 1, by Zipf's law with a skew."""

    def __init__(self, count: int, skew: float) -> None:
        self._sums = list(accumulate((rank + 1) ** -skew for rank in range(count)))

    def draw(self, rng: Random) -> int:
        """One rank."""
        return bisect_left(self._sums, rng.random() * self._sums[-1])


class Generator:
    """Draws subscriptions and events."""

    publishing: float = 1.0
    """Share of the nodes that publish."""

    def __init__(self, rng: Random, columns: tuple[Column, ...] = THESIS) -> None:
        self._rng = rng
        self.columns = columns
        self._subranges: list[Zipf] = []
        self._sizes: list[Zipf] = []
        self._where: list[list[int]] = []
        for column in columns:
            count = round((column.high - column.low) / column.subrange_size)
            self._subranges.append(Zipf(count, column.subrange_skew))
            self._sizes.append(Zipf(SIZE_STEPS, column.size_skew))
            # Which sub-range is the popular one is a matter of chance.
            order = list(range(count))
            rng.shuffle(order)
            self._where.append(order)

    @property
    def schema(self) -> tuple[AttributeRule, ...]:
        """The topic's schema (table 4.2)."""
        return tuple(AttributeRule(c.name, "float", c.low, c.high) for c in self.columns)

    def event(self, within: float = 1.0) -> dict[str, Any]:
        """An event's attributes; `within` leaves it only a share of each range, the first one."""
        return {
            column.name: column.low + (self._value(at) - column.low) * within
            for at, column in enumerate(self.columns)
        }

    def _value(self, at: int) -> float:
        column = self.columns[at]
        subrange = self._where[at][self._subranges[at].draw(self._rng)]
        return column.low + (subrange + self._rng.random()) * column.subrange_size

    def subscription(self) -> str:
        """A filter, on at least one attribute."""
        parts: list[str] = []
        while not parts:
            for at, column in enumerate(self.columns):
                if self._rng.random() >= column.present:
                    continue
                middle = self._value(at)
                share = (self._sizes[at].draw(self._rng) + self._rng.random()) / SIZE_STEPS
                half = share * column.size_bound * (column.high - column.low) / 2
                low, high = max(column.low, middle - half), min(column.high, middle + half)
                parts.append(f"{column.name} >= {low:.3f} and {column.name} <= {high:.3f}")
        return " and ".join(parts)
