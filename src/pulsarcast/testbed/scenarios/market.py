"""Quotes of a stock exchange, and filters that ask for some of them: the load of `quotes`.

A quote says at which exchange somebody bids, how much, for how many, and what is asked: the columns
of NYSE's TAQ files (EX, BID, BIDSIZ, OFR, OFRSIZ, SYMBOL). They are read from such a file, or made
up as a walk of the price. Filters are drawn where quotes are: people ask for what there is.
"""

from __future__ import annotations

import csv
import gzip
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final, TypeAlias

from pulsarcast.model.errors import LocalError
from pulsarcast.model.filters import parse
from pulsarcast.model.filters.domains import domains_of, views
from pulsarcast.model.topic_types import AttributeRule

Quote: TypeAlias = Mapping[str, int | float | str]

PRICES: Final = ("BID", "OFR")
SIZES: Final = ("BIDSIZ", "OFRSIZ")
EXCHANGE: Final = "EX"
SYMBOL: Final = "SYMBOL"
SHARES: Final = (0.0003, 0.004)
"""Between which shares of all quotes a filter's range is drawn, by their logarithm."""
ROWS_MADE_UP: Final = 2000
_EXCHANGES: Final = ("N", "N", "N", "N", "N", "N", "T", "P", "B", "Y")
_STEPS: Final = (1, 2, 5, 10)


def read_quotes(path: Path) -> list[Quote]:
    """All rows of a file of quotes: CSV with a header, compressed by gzip."""
    try:
        with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
            quotes = [_quote(row) for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise LocalError(f"{path} is no file of quotes: {error!r}") from error
    if not quotes:
        raise LocalError(f"{path} has no quotes")
    return quotes


def _quote(row: Mapping[str, str]) -> Quote:
    quote: dict[str, int | float | str] = {EXCHANGE: row[EXCHANGE], SYMBOL: row[SYMBOL]}
    quote |= {name: float(row[name]) for name in PRICES}
    quote |= {name: int(float(row[name])) for name in SIZES}
    return quote


def make_up_quotes(seed: int, count: int = ROWS_MADE_UP) -> list[Quote]:
    """Quotes of a price that walks, in cents."""
    rng = Random(f"quotes/{seed}")
    cents, quotes = 15_000, list[Quote]()
    for _ in range(count):
        cents = max(100, cents + rng.choice((-2, -1, 0, 0, 1, 2)))
        quotes.append(
            {
                EXCHANGE: rng.choice(_EXCHANGES),
                SYMBOL: "XYZ",
                "BID": cents / 100,
                "OFR": (cents + rng.randint(1, 8)) / 100,
                "BIDSIZ": 1 + min(98, int(rng.expovariate(0.4))),
                "OFRSIZ": 1 + min(98, int(rng.expovariate(0.4))),
            }
        )
    return quotes


def some_of(quotes: Sequence[Quote], count: int | None) -> list[Quote]:
    """So many of them, in their order and evenly spread: the first ones would be one morning."""
    if count is None or count >= len(quotes):
        return list(quotes)
    return [quotes[at * len(quotes) // count] for at in range(count)]


def schema_for(quotes: Sequence[Quote]) -> tuple[AttributeRule, ...]:
    """A topic's schema that takes all of them: from 0 to 1, 2 or 5 times a power of ten."""
    rules = [AttributeRule(EXCHANGE, "str"), AttributeRule(SYMBOL, "str")]
    for names, kind in ((PRICES, "float"), (SIZES, "int")):
        for name in names:
            values = [_number(quote, name) for quote in quotes]
            if min(values) < 0:
                raise LocalError(f"a quote whose {name} is below 0")
            rules.append(AttributeRule(name, kind, 0, _round_up(max(values))))
    return tuple(rules)


def _round_up(value: float) -> int:
    power: int = 10 ** math.floor(math.log10(max(1.0, value)))
    return next(step * power for step in _STEPS if step * power >= value)


def _number(quote: Quote, name: str) -> float:
    value = quote[name]
    assert not isinstance(value, str)
    return value


class Filters:
    """Draws filters, each of which matches a small share of the quotes."""

    def __init__(self, quotes: Sequence[Quote], rng: Random) -> None:
        self._quotes = quotes
        self._rng = rng
        self._sorted = {
            name: sorted(_number(quote, name) for quote in quotes) for name in (*PRICES, *SIZES)
        }

    def draw(self, count: int) -> list[str]:
        """So many, of five kinds in turn."""
        kinds = (self._price, self._at_exchange, self._both_prices, self._size, self._alarm)
        return [kinds[number % len(kinds)]() for number in range(count)]

    def _share(self) -> float:
        least, most = map(math.log, SHARES)
        return math.exp(self._rng.uniform(least, most))

    def _range(self, name: str, share: float) -> str:
        """Some prices next to each other; as they come in cents, more may have the last one."""
        values = self._sorted[name]
        width = max(1, round(share * len(values)))
        first = self._rng.randrange(max(1, len(values) - width))
        low, high = values[first], values[min(len(values), first + width) - 1]
        return f"{name} in {low:g}..{high:g}"

    def _price(self) -> str:
        return self._range(self._rng.choice(PRICES), self._share())

    def _at_exchange(self) -> str:
        exchange = self._rng.choice(self._quotes)[EXCHANGE]
        price = self._range(self._rng.choice(PRICES), 2 * self._share())
        return f"{EXCHANGE} = '{exchange}' and {price}"

    def _both_prices(self) -> str:
        """What lies close to some quote."""
        quote = self._rng.choice(self._quotes)
        parts = list[str]()
        for name in PRICES:
            cents, around = round(100 * _number(quote, name)), self._rng.randint(0, 2)
            low, high = max(0, cents - around) / 100, (cents + around) / 100
            parts.append(f"{name} in {low:g}..{high:g}")
        return " and ".join(parts)

    def _size(self) -> str:
        """The largest ones, within some prices."""
        name = self._rng.choice(SIZES)
        values = self._sorted[name]
        least = values[-max(1, round(4 * self._share() * len(values)))]
        if bisect_left(values, least) < len(values) // 2:
            least += 1  # sizes are small numbers: half of all quotes may have the same
        price = self._range(self._rng.choice(PRICES), 0.25)
        return f"{name} >= {least:g} and {price}"

    def _alarm(self) -> str:
        """A bid so low, or an offer so high, as there are few."""
        share = self._share()
        bids, offers = (self._sorted[name] for name in PRICES)
        low = bids[int(share * len(bids))]
        high = offers[-1 - int(share * len(offers))]
        return f"BID < {low:g} or OFR > {high:g}"


def due_to(
    quotes: Sequence[Quote], filters: Sequence[str], schema: Sequence[AttributeRule]
) -> list[list[int]]:
    """Of each quote, which filters match it: asked one by one, by no index that nodes use."""
    wanted = [parse(text, tuple(schema)) for text in filters]
    domains = domains_of(schema)
    known: dict[tuple[int | float | str, ...], list[int]] = {}
    due: list[list[int]] = []
    for quote in quotes:
        key = tuple(quote.values())
        if key not in known:
            seen = views(domains, quote)
            known[key] = [at for at, each in enumerate(wanted) if each.term.holds(seen)]
        due.append(known[key])
    return due
