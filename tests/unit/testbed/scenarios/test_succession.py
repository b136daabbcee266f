from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pulsarcast.model import trace
from pulsarcast.model.errors import LocalError
from pulsarcast.testbed.contestants.ours import OurNode
from pulsarcast.testbed.hearing import hear
from pulsarcast.testbed.ledger import Ledger
from pulsarcast.testbed.options import RunOptions
from pulsarcast.testbed.reading import lines_of
from pulsarcast.testbed.scenarios.compare import NUMBER_BYTES, number_of
from pulsarcast.testbed.scenarios.succession import (
    count_orders,
    longest_gap_s,
    resumed_s,
    run_succession,
)

S = 1_000_000_000


def options_in(folder: Path) -> RunOptions:
    return RunOptions(
        scenario="succession",
        nodes=5,
        rate_per_s=10.0,
        duration_s=20.0,
        every_s=7.0,
        down_s=1.5,
        election_timeout_s=1.0,
        out=folder / "out",
        timeout_s=200,
    )


def deliver(ledger: Ledger, node: int, *numbers: int) -> None:
    """One life of a node, in which it is given some events."""
    teller = ledger.teller(node, number_of)
    for number in numbers:
        ledger.publish(number, 1)
        teller.deliver(number.to_bytes(NUMBER_BYTES, "big"), 1)


def test_the_order_of_first_deliveries_outlives_a_nodes_lives() -> None:
    ledger = Ledger(nodes=2, events=6, ordered=True)
    deliver(ledger, 0, 2, 4)
    deliver(ledger, 0, 4, 1)  # 4 again
    deliver(ledger, 1, 2, 4, 1)
    assert ledger.order_at(0) == ledger.order_at(1) == [2, 4, 1]
    assert count_orders(ledger, [0, 1]) == 1


def test_orders_that_differ_are_two() -> None:
    ledger = Ledger(nodes=3, events=6, ordered=True)
    deliver(ledger, 0, 2, 4, 1)
    deliver(ledger, 1, 2, 1, 4)
    deliver(ledger, 2, 2, 4)
    assert count_orders(ledger, [0, 1]) == 2
    assert count_orders(ledger, [0, 2]) == 2
    assert ledger.duplicates == ledger.redeliveries == 0


def test_a_pause_is_the_longest_time_without_an_event_between_two_kills() -> None:
    times = [1 * S, 2 * S, 5 * S, 6 * S, 20 * S]
    assert longest_gap_s(times, 2 * S, 7 * S) == 3.0
    assert longest_gap_s(times, 3 * S, 7 * S) == 2.0
    assert longest_gap_s(times, 6 * S, 10 * S) == 4.0  # until the end: nothing came any more
    assert longest_gap_s([], 0, 2 * S) == 2.0


def test_it_goes_on_with_the_first_event_that_was_asked_for_afterwards() -> None:
    arrivals = [(2 * S, 1 * S), (6 * S, 2 * S), (7 * S, 4 * S), (8 * S, 3 * S)]
    assert resumed_s(arrivals, 3 * S) == 4.0  # not 6, which was asked for before
    assert resumed_s(arrivals, 5 * S) is None


def test_what_would_show_nothing_is_refused(tmp_path: Path) -> None:
    options = options_in(tmp_path)
    for change in (
        {"order": "causal"},
        {"trace_level": None},
        {"nodes": 3},
        {"duration_s": 10.0},
    ):
        changed: dict[str, Any] = change
        with pytest.raises(LocalError):
            run_succession(replace(options, **changed))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_order_outlives_two_acting_sequencers(tmp_path: Path) -> None:
    options = options_in(tmp_path)
    outcome = run_succession(options)
    assert outcome.ok, outcome.to_text()
    assert outcome.due == outcome.delivered == outcome.events * 5
    assert outcome.acknowledged == outcome.events >= 150
    assert outcome.orders == 1
    assert outcome.findings == {}
    assert outcome.kills == outcome.faults["kill"] == outcome.faults["restart"] == 2
    # Whoever was killed led, and another term began: they were not killed by guess.
    terms = [kill.term for kill in outcome.each_kill]
    assert terms == sorted(set(terms))
    assert outcome.terms >= 3
    assert all(kill.node < 3 and kill.elected_s is not None for kill in outcome.each_kill)
    assert outcome.pauses == 2 * 2
    assert 0.5 < outcome.pause_s_p50 <= outcome.pause_s_max < 13
    assert outcome.resumed_s_max >= outcome.resumed_s_p50 > 0
    assert '"pause_s_max":' in (options.out / "summary.json").read_text()
    # The checker that found nothing would have: the same lines, two of them the wrong way round.
    lines = list(lines_of(options.out / "traces"))
    assert hear(lines).findings == {}
    assert hear(exchange_two_deliveries(lines)).findings == {"order": 1}


def exchange_two_deliveries(lines: list[trace.Line]) -> Iterator[trace.Line]:
    """The same with two deliveries of one life exchanged, both of which were out by then."""
    out_ns = {
        record.event: envelope.mono_ns
        for envelope, record in lines
        if isinstance(record, trace.Published)
    }
    last: dict[tuple[str, int], int] = {}
    pairs: list[tuple[int, int]] = []
    for at, (envelope, record) in enumerate(lines):
        if isinstance(record, trace.Delivered) and not record.redelivery:
            before = last.get((envelope.node_id, envelope.incarnation))
            if before is not None and out_ns[record.event] < lines[before].envelope.mono_ns:
                pairs.append((before, at))
            last[envelope.node_id, envelope.incarnation] = at
    one, other = pairs[len(pairs) // 2]  # there are many after every kill
    for at, line in enumerate(lines):
        instead = {one: other, other: one}.get(at, at)
        yield trace.Line(line.envelope, lines[instead].record)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_node_that_gives_two_events_the_wrong_way_round_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OurNode, "_consume", _consume_wrongly)
    outcome = run_succession(replace(options_in(tmp_path), duration_s=11.0))
    assert not outcome.ok
    assert outcome.orders == 2
    assert (outcome.lost, outcome.duplicates, outcome.died) == (0, 0, [])


async def _consume_wrongly(self: OurNode, subscription: Any) -> None:
    """Node 4's application is given its third event before its second."""
    held = []
    count = 0
    async for event in subscription:
        count += 1
        if self._seat.index == 4 and count == 2:
            held.append(event)
            continue
        for payload in (event.payload, *(each.payload for each in held)):
            self._seat.deliver(payload)
        held.clear()
