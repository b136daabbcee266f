"""How many events a second one node can match against many filters: by index, and one by one.

    python benchmarks/filter_index.py --filters 100000

Every filter asks a range of three numeric attributes and a prefix or a value of a text. Seconds are
of CPU in this one process, so that a busy machine changes little. Both ways must find the same.
Prints one line of JSON.
"""

from __future__ import annotations

import json
import random
import time
from typing import Any

import click

from pulsarcast.model.filters import Filter, FilterIndex, parse
from pulsarcast.model.filters.domains import domains_of, views
from pulsarcast.model.filters.terms import All, Comparison, Question, TextTest
from pulsarcast.model.topic_types import AttributeRule

SCHEMA = (
    AttributeRule("price", "float", 0, 1000),
    AttributeRule("size", "int", 0, 1_000_000),
    AttributeRule("at", "timestamp"),
    AttributeRule("symbol", "str"),
)
DAY_US = 86_400_000_000
SYMBOLS = [f"{first}{second}X" for first in "ABCDEFGHIJ" for second in "ABCDEFGHIJ"]


def a_range(rng: random.Random, name: str, high: float, *, whole: bool) -> list[Question]:
    """Some of an attribute's values, a tenth to a half of them."""
    width = rng.uniform(0.1, 0.5) * high
    low = rng.uniform(0, high - width)
    ends = (int(low), int(low + width)) if whole else (low, low + width)
    return [Comparison(name, ">=", ends[0]), Comparison(name, "<", ends[1])]


def a_filter(rng: random.Random) -> Filter:
    """What somebody may ask for; made without its text, which would take most of the time."""
    questions = a_range(rng, "price", 1000, whole=False)
    questions += a_range(rng, "size", 1_000_000, whole=True)
    questions += a_range(rng, "at", DAY_US, whole=True)
    symbol = rng.choice(SYMBOLS)
    if rng.random() < 0.5:
        questions.append(TextTest("symbol", "starts with", symbol[0]))
    else:
        questions.append(Comparison("symbol", "=", symbol))
    return Filter(All(tuple(questions)), "", SCHEMA, domains_of(SCHEMA))


def an_event(rng: random.Random) -> dict[str, Any]:
    return {
        "price": rng.uniform(0, 1000),
        "size": rng.randint(0, 1_000_000),
        "at": rng.randint(0, DAY_US),
        "symbol": rng.choice(SYMBOLS),
    }


@click.command()
@click.option("--filters", "count", type=int, default=100_000, show_default=True)
@click.option("--events", type=int, default=2000, show_default=True, help="By index.")
@click.option("--scanned", type=int, default=20, show_default=True, help="One by one.")
@click.option("--seed", type=int, default=1, show_default=True)
def main(count: int, events: int, scanned: int, seed: int) -> None:
    """Match random events against random filters."""
    rng = random.Random(seed)
    parsing = time.process_time()
    for number in range(200):
        parse(f"price in {number}..900 and size < 5 and symbol = 'A' and at > 2026-01-01", SCHEMA)
    parsing = time.process_time() - parsing
    domains = domains_of(SCHEMA)
    wanted = [a_filter(rng) for _ in range(count)]
    published = [an_event(rng) for _ in range(events)]
    index: FilterIndex[int] = FilterIndex(SCHEMA)
    building = time.process_time()
    for key, each in enumerate(wanted):
        index.insert(key, each)
    building = time.process_time() - building
    for event in published[: events // 10]:
        index.matching(event)  # the buckets' integers are made on first use
    indexed = time.process_time()
    found = [index.matching(event) for event in published]
    indexed = time.process_time() - indexed
    scanning = time.process_time()
    for at, event in enumerate(published[:scanned]):
        values = views(domains, event)  # once for all filters, as the index does it
        assert {key for key, each in enumerate(wanted) if each.term.holds(values)} == found[at]
    scanning = time.process_time() - scanning
    click.echo(
        json.dumps(
            {
                "filters": count,
                "attributes": len(SCHEMA),
                "matches_per_event": round(sum(map(len, found)) / events, 1),
                "index_events_per_s": round(events / indexed, 1),
                "scan_events_per_s": round(scanned / scanning, 2),
                "times_faster": round(events / indexed / (scanned / scanning), 1),
                "inserts_per_s": round(count / building),
                "parses_per_s": round(200 / parsing),
            }
        )
    )


if __name__ == "__main__":
    main()
