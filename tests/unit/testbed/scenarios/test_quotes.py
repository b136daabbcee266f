"""Quotes replayed on real nodes: every reader gets what its filter matches, once, and no more."""

import gzip
from pathlib import Path
from random import Random

import pytest

from pulsarcast.model.errors import LocalError
from pulsarcast.model.filters import parse
from pulsarcast.testbed.options import RunOptions
from pulsarcast.testbed.scenarios.market import (
    Filters,
    Quote,
    due_to,
    make_up_quotes,
    read_quotes,
    schema_for,
    some_of,
)
from pulsarcast.testbed.scenarios.quotes import MEMBERS, run_quotes

HEADER = "DT,EX,BID,BIDSIZ,OFR,OFRSIZ,SYMBOL\n"


def test_every_filter_gets_exactly_what_it_matches(tmp_path: Path) -> None:
    options = RunOptions(
        scenario="quotes",
        nodes=6,
        events=60,
        filters=8,
        rate_per_s=40,
        trace_level="rpc",
        out=tmp_path / "out",
        timeout_s=100,
    )
    outcome = run_quotes(options)
    assert outcome.ok, outcome.to_text()
    assert outcome.events == outcome.acknowledged == 60
    assert outcome.due == outcome.delivered > 20
    assert (outcome.false, outcome.duplicates, outcome.strays) == (0, 0, 0)
    assert outcome.findings == {}
    assert outcome.filters == 48
    assert outcome.filters_routed == 8 * (6 - MEMBERS)
    assert outcome.by_routing > 0
    assert outcome.routing_per_event is not None
    assert outcome.routing_per_event["ProbeEvent messages"] > 0
    assert '"scenario":"quotes"' in (options.out / "summary.json").read_text()


@pytest.mark.parametrize(
    ("changed", "why"),
    [({"order": "total"}, "in no order"), ({"nodes": 3}, "others have quotes routed to them")],
)
def test_what_cannot_be_replayed_is_refused(
    tmp_path: Path, changed: dict[str, object], why: str
) -> None:
    options = RunOptions(scenario="quotes", out=tmp_path / "out", **changed)  # type: ignore[arg-type]
    with pytest.raises(LocalError, match=why):
        run_quotes(options)


def test_quotes_are_read_as_a_file_has_them(tmp_path: Path) -> None:
    path = tmp_path / "quotes.csv.gz"
    path.write_bytes(gzip.compress(f"{HEADER}1.5,N,156.57,1,158.85,2,XXX\n".encode()))
    quote: Quote = {
        "EX": "N",
        "SYMBOL": "XXX",
        "BID": 156.57,
        "BIDSIZ": 1,
        "OFR": 158.85,
        "OFRSIZ": 2,
    }
    assert read_quotes(path) == [quote]
    assert [rule.max for rule in schema_for([quote])] == [None, None, 200, 200, 1, 2]


@pytest.mark.parametrize("text", ["", HEADER, f"{HEADER}1,N,many,1,2,3,XXX\n", "a,b\n1,2\n"])
def test_what_is_no_file_of_quotes_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "quotes.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(LocalError, match="quotes"):
        read_quotes(path)


def test_fewer_quotes_are_spread_over_all_of_them_and_filters_stay_the_same() -> None:
    quotes = make_up_quotes(1)
    some = some_of(quotes, 100)
    assert len(some) == 100
    assert some[0] is quotes[0]
    assert some[-1] is quotes[-20]
    assert some_of(quotes, None) == quotes
    assert Filters(quotes, Random(5)).draw(50) == Filters(quotes, Random(5)).draw(50)


def test_filters_are_few_matches_each_and_all_can_be_routed() -> None:
    quotes = make_up_quotes(1)
    schema = schema_for(quotes)
    filters = Filters(quotes, Random(5)).draw(100)
    due = due_to(quotes, filters, schema)
    assert 0.2 < sum(map(len, due)) / len(quotes) < 5
    for text in filters:
        assert all(box.ranges for box in parse(text, schema).cover()), text
    at = next(at for at, columns in enumerate(due) if columns)
    assert due[at] == [
        n for n, text in enumerate(filters) if parse(text, schema).matches(quotes[at])
    ]
