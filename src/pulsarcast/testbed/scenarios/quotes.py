"""The quotes scenario: one topic routed by content, many filters, and a replay of quotes.

Every node has some filters, each with a reader of its own. The first nodes are members of the
topic, with whom the others compare, and filter for themselves; the others have what matches routed
to them. The quotes of an exchange are published by one node. Each reader must get every quote that
its filter matches, once, and no other: what is due is worked out beforehand, filter by filter.

With a file of names instead of quotes, events carry names, and filters ask for prefixes and ranges.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from pulsarcast.model import trace
from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import Cid
from pulsarcast.model.topic_types import AttributeRule
from pulsarcast.simulation.content.names import Names, names_in
from pulsarcast.testbed.callers import DRIVER
from pulsarcast.testbed.contestants.contestants import LOGGED, Volume
from pulsarcast.testbed.hearing import hear
from pulsarcast.testbed.ledger import messages_since, percentile_ms, spread
from pulsarcast.testbed.messages import (
    AskCounts,
    Counts,
    Created,
    CreateRouted,
    Follow,
    Subscribed,
    SubscribeWhere,
)
from pulsarcast.testbed.options import Outcome, RunOptions
from pulsarcast.testbed.reading import lines_of
from pulsarcast.testbed.scenarios.compare import (
    NUMBER_BYTES,
    SETTLE_S,
    Progress,
    no_progress,
    number_of,
)
from pulsarcast.testbed.scenarios.market import (
    EXCHANGE,
    ROWS_MADE_UP,
    Filters,
    Quote,
    due_to,
    make_up_quotes,
    read_quotes,
    schema_for,
    some_of,
)
from pulsarcast.testbed.sessions import Session, Stalled, finish, open_session

NODES: Final = 10
MEMBERS: Final = 3
"""The topic's author, and two others: a subscriber compares with two members at a time."""
IN_FLIGHT_MAX: Final = 200
"""More unanswered quotes than this, and the replay waits: the nodes cannot keep up."""
HELD_S: Final = 0.005
QUIET_S_MIN: Final = 2.0
SUBSCRIBING_AT_ONCE: Final = 10
STALLED_S: Final = 90.0
"""What routing missed comes with a comparison: longer than two of those take."""
ROUTED: Final = "content_routed"
COMPARED: Final = "content_by_comparison"


class QuotesOutcome(Outcome, kw_only=True):
    """What it came to; due and delivered are counted by reader, so by filter."""

    false: int
    """Deliveries to readers whose filter does not match."""
    ack: str
    trace_level: str | None
    filters: int
    filters_routed: int
    """Those whose node is no member: what matches is routed to it."""
    members: int
    publishers: int
    events: int
    acknowledged: int
    matches_per_event: float
    unmatched: int
    """Events that no filter matches."""
    rate_per_s: float
    events_per_s: float
    """What the rate came to, from the first event to the last answer."""
    held_back_s: float
    """How long the replay waited for answers, instead of keeping to the rate."""
    wall_s: float
    latency_ms_p50: float
    """To readers on nodes that are no members, and not the publisher's own."""
    latency_ms_p99: float
    latency_ms_max: float
    at_members_ms_p50: float
    """To readers on members other than the publisher: by the topic's tree."""
    at_members_ms_p99: float
    answered_ms_p50: float
    answered_ms_p99: float
    by_routing: int
    """Matching events that came to a node by routing, its own included,"""
    by_comparison: int
    """and those that it had first, or only, from a member."""
    bytes_per_event: float
    """That left sockets, upkeep and replication included."""
    bytes_out_per_node: dict[str, float] | None
    messages_per_event: float | None
    """All of the protocol's, as the bytes."""
    routing_per_event: dict[str, float] | None
    """Messages and bytes of routing alone, where every message was traced."""
    flooding_per_event: int
    """Messages that a tree of everyone would take at least."""
    sent_per_node: dict[str, float] | None
    cpu_s: float
    cpu_ms_per_event: float
    setup_s: float
    setup_cpu_s: float
    pss_mib: float
    trace_bytes: int = 0
    refused: dict[str, int]
    died: list[str]
    findings: dict[str, int] | None = None
    """What the simulator's checkers object to in the traces; None: there are none."""


@dataclass(frozen=True)
class _Load:
    """What is published, what is asked for, and what that makes due."""

    schema: tuple[AttributeRule, ...]
    quotes: Sequence[Quote]
    filters: Sequence[str]
    """By column of the ledger: node after node."""
    due: Sequence[Sequence[int]]
    """Of each quote, the columns whose filters match."""
    publishers: Sequence[int]
    """Of each quote, the node."""


def run_quotes(options: RunOptions, *, progress: Progress = no_progress) -> QuotesOutcome:
    """Filters first, then quotes at a rate, as far as the nodes keep up with it."""
    size = options.nodes or NODES
    if options.order != "none" or options.contestant != "ours":
        raise LocalError("quotes are replayed on nodes of ours, in no order")
    if size <= MEMBERS:
        raise LocalError(f"{size} nodes: {MEMBERS} are members, others have quotes routed to them")
    progress("due", 0, 1)
    load = _load(options, size)
    with open_session(
        options,
        size=size,
        events=len(load.quotes),
        number_of=number_of,
        readers=options.filters,
    ) as session:
        play = _Play(session, load, progress)
        play.set_up()
        play.replay()
        outcome = play.outcome()
    outcome.trace_bytes = session.trace_bytes()
    if options.trace_level is not None:
        outcome.findings = hear(lines_of(session.traces)).findings
        outcome.ok = outcome.ok and not outcome.findings
    if options.trace_level == "rpc":
        outcome.routing_per_event = _routing(session, play.window_ns, len(load.quotes))
    finish(options, outcome)
    return outcome


def _load(options: RunOptions, size: int) -> _Load:
    names = {} if options.workload is None else names_in(options.workload)
    return _load_names(options, size, names) if names else _load_quotes(options, size)


def _load_names(options: RunOptions, size: int, counts: dict[str, int]) -> _Load:
    """Events that carry names, of a few publishers, and filters on prefixes and ranges of names."""
    rng = Random(f"names/{options.seed}")
    names = Names(rng, counts)
    filters = [names.subscription() for _ in range(size * options.filters)]
    nodes = rng.sample(range(size), max(1, round(size * names.publishing)))
    events: list[Quote] = [names.event() for _ in range(options.events or ROWS_MADE_UP)]
    publishers = [rng.choice(nodes) for _ in events]
    return _Load(names.schema, events, filters, due_to(events, filters, names.schema), publishers)


def _load_quotes(options: RunOptions, size: int) -> _Load:
    everything = (
        make_up_quotes(options.seed) if options.workload is None else read_quotes(options.workload)
    )
    schema = schema_for(everything)
    quotes = some_of(everything, options.events)
    rng = Random(f"filters/{options.seed}")
    # Drawn among all quotes: the same filters, however many of them are published.
    filters = Filters(everything, rng).draw(size * options.filters)
    nodes = rng.sample(range(size), size)
    exchanges = sorted({str(quote[EXCHANGE]) for quote in everything})
    seats = {exchange: nodes[at % size] for at, exchange in enumerate(exchanges)}
    publishers = [seats[str(quote[EXCHANGE])] for quote in quotes]
    return _Load(schema, quotes, filters, due_to(quotes, filters, schema), publishers)


class _Play:
    """One run."""

    def __init__(self, session: Session, load: _Load, progress: Progress) -> None:
        self._session = session
        self._fleet = session.fleet
        self._load = load
        self._progress = progress
        self._topic: Cid
        self._routed = 0
        self._next = self._unanswered = 0
        self._held_back_s = 0.0
        self._began_s = time.monotonic()
        self._setup_s = self._setup_cpu_s = 0.0
        self.window_ns = (0, 0)
        """From the first event until a little after the last delivery."""

    # Before.

    def set_up(self) -> None:
        """Nodes, the topic, its members, then filters."""
        fleet, load, size = self._fleet, self._load, self._session.size
        fleet.assemble(progress=lambda done: self._progress("nodes", done, size))
        fleet.wait_until_quiet(s_min=QUIET_S_MIN)
        rules = list(load.schema)
        answers = fleet.each([0], lambda index: lambda call: CreateRouted(call, "quotes", rules))
        fleet.expect(answers)
        created = answers[0]
        assert isinstance(created, Created)
        self._topic = Cid(created.topic)
        others = range(1, MEMBERS)
        fleet.expect(fleet.each(others, lambda index: lambda call: Follow(call, self._topic)))
        fleet.wait_until_quiet(s_min=QUIET_S_MIN)
        for reader in range(self._session.options.filters):
            self._subscribe(reader)
        fleet.wait_until_quiet(s_min=QUIET_S_MIN)
        self._setup_s = time.monotonic() - self._began_s
        self._setup_cpu_s = fleet.cpu_s()

    def _subscribe(self, reader: int) -> None:
        """One more filter on every node."""
        fleet, topic, readers = self._fleet, self._topic, self._session.options.filters
        everyone = range(self._session.size)
        texts = [self._load.filters[index * readers + reader] for index in everyone]
        answers = fleet.each(
            everyone,
            lambda index: lambda call: SubscribeWhere(call, topic, texts[index], reader),
            at_once=SUBSCRIBING_AT_ONCE,
        )
        fleet.expect(answers)
        self._routed += sum(
            isinstance(answer, Subscribed) and answer.routed for answer in answers.values()
        )
        self._progress("filters", (reader + 1) * len(texts), readers * len(texts))

    # The replay.

    def replay(self) -> None:
        """All quotes at their rate; then until everything has come, or nothing more does."""
        fleet, ledger, load = self._fleet, self._session.ledger, self._load
        before, messages, counts = fleet.traffic(), fleet.messages(), self._counts()
        sent = self._sent()
        cpu_s, began_s = fleet.cpu_s(), time.monotonic()
        self._tick(began_s)
        total = len(load.quotes)

        def is_answered() -> bool:
            self._progress("publish", self._next, total)
            return self._next == total and not self._unanswered

        fleet.run_until(is_answered, s_max=float("inf"), poll_s=0.2)
        self._answered_s = time.monotonic() - began_s
        due, stalled = sum(map(len, load.due)), Stalled(STALLED_S)

        def is_over() -> bool:
            delivered = ledger.deliveries
            self._progress("deliver", delivered, due)
            return delivered >= due or stalled.is_so(delivered)

        fleet.run_until(is_over, s_max=float("inf"), poll_s=0.1)
        self._wall_s = time.monotonic() - began_s
        fleet.wait(SETTLE_S)
        self._cpu_s = fleet.cpu_s() - cpu_s
        self.window_ns = (round(began_s * 1e9), time.monotonic_ns())
        after = fleet.traffic()
        self._volume = Volume(after.bytes_in - before.bytes_in, after.bytes_out - before.bytes_out)
        self._messages = messages_since(messages, fleet.messages())
        self._bytes_out = [now - then for then, now in zip(sent, self._sent(), strict=True)]
        now_counts = self._counts()
        self._ways = {name: now_counts[name] - counts[name] for name in counts}
        self._pss_bytes = fleet.pss_bytes()
        self._wait_for_members()

    def _wait_for_members(self) -> None:
        """Until members hold all quotes, or get no more: filters have theirs by routing, sooner."""
        stalled = Stalled(STALLED_S)
        while not stalled.is_so(held := self._held_by_members()) and held < len(self._load.quotes):
            self._fleet.wait(0.2)

    def _held_by_members(self) -> int:
        """How many events the member with the fewest has."""
        answers = self._fleet.each(range(MEMBERS), lambda index: AskCounts).values()
        held = [each.counts.get(LOGGED, 0) for each in answers if isinstance(each, Counts)]
        return min(held, default=0)

    def _tick(self, began_s: float) -> None:
        """Publish what is due by now, and come back for the next."""
        rate, total = self._session.options.rate_per_s, len(self._load.quotes)
        now_s = time.monotonic()
        while self._next < total and began_s + self._next / rate <= now_s:
            if self._unanswered >= IN_FLIGHT_MAX:
                # Whatever is late by then is not made up for: the rate goes on from here.
                self._held_back_s += HELD_S
                self._fleet.after(HELD_S, lambda: self._tick(began_s + HELD_S))
                return
            self._publish(self._next)
            self._next += 1
        if self._next < total:
            wait_s = max(0.0, began_s + self._next / rate - time.monotonic())
            self._fleet.after(wait_s, lambda: self._tick(began_s))

    def _publish(self, number: int) -> None:
        self._unanswered += 1

        def answered(event: Cid | None) -> None:
            self._unanswered -= 1

        self._session.callers.publish(
            self._load.publishers[number],
            self._topic,
            number.to_bytes(NUMBER_BYTES, "big"),
            injection=str(number),
            then=answered,
            replicated=self._session.options.ack == "replicated",
            attributes=self._load.quotes[number],
        )

    def _counts(self) -> dict[str, int]:
        total = {ROUTED: 0, COMPARED: 0}
        for answer in self._fleet.each(self._fleet.living(), lambda index: AskCounts).values():
            if isinstance(answer, Counts):
                for name in total:
                    total[name] += answer.counts.get(name, 0)
        return total

    def _sent(self) -> list[int]:
        """Bytes that left each node, as it last said: a fifth of a second ago at most."""
        return [self._session.ledger.metered(index)[1] for index in range(self._session.size)]

    # What it came to.

    def outcome(self) -> QuotesOutcome:
        """All figures: every reader is held against what its filter matches."""
        session, load, options = self._session, self._load, self._session.options
        ledger, callers = session.ledger, session.callers
        events = len(load.quotes)
        due = delivered = false = 0
        routed, by_tree = array("Q"), array("Q")
        for number, columns in enumerate(load.due):
            wanted = list(columns) if number in callers.promised else []
            got = ledger.got_by(number)
            due += len(wanted)
            delivered += len(wanted) - len(ledger.missing(number, wanted))
            false += len(set(got) - set(columns))
            own = load.publishers[number]
            for column in columns:
                node = column // ledger.readers
                if node != own:
                    came = by_tree if node < MEMBERS else routed
                    came.extend(ledger.latencies_us(number, [column]))
        routed, by_tree = array("Q", sorted(routed)), array("Q", sorted(by_tree))
        answered = array("Q", sorted(callers.answered_us))
        lost, duplicates, strays = due - delivered, ledger.duplicates, ledger.strays
        refused = dict(sorted(callers.refused.items()))
        died = session.died()
        sent = None if self._messages is None else [each.sent for each in self._messages]
        return QuotesOutcome(
            scenario=options.scenario,
            nodes=session.size,
            due=due,
            delivered=delivered,
            lost=lost,
            duplicates=duplicates,
            strays=strays,
            ok=not (lost or duplicates or false or strays or refused or died),
            false=false,
            ack=options.ack,
            trace_level=options.trace_level,
            filters=len(load.filters),
            filters_routed=self._routed,
            members=MEMBERS,
            publishers=len(set(load.publishers)),
            events=events,
            acknowledged=callers.acknowledged,
            matches_per_event=round(sum(map(len, load.due)) / events, 3),
            unmatched=sum(not columns for columns in load.due),
            rate_per_s=options.rate_per_s,
            events_per_s=round(events / self._answered_s, 1),
            held_back_s=round(self._held_back_s, 1),
            wall_s=round(self._wall_s, 1),
            latency_ms_p50=percentile_ms(routed, 0.5),
            latency_ms_p99=percentile_ms(routed, 0.99),
            latency_ms_max=percentile_ms(routed, 1.0),
            at_members_ms_p50=percentile_ms(by_tree, 0.5),
            at_members_ms_p99=percentile_ms(by_tree, 0.99),
            answered_ms_p50=percentile_ms(answered, 0.5),
            answered_ms_p99=percentile_ms(answered, 0.99),
            by_routing=self._ways[ROUTED],
            by_comparison=self._ways[COMPARED],
            bytes_per_event=round(self._volume.bytes_out / events, 1),
            bytes_out_per_node=spread(self._bytes_out),
            messages_per_event=None if sent is None else round(sum(sent) / events, 2),
            routing_per_event=None,
            flooding_per_event=session.size - 1,
            sent_per_node=None if sent is None else spread(sent),
            cpu_s=round(self._cpu_s, 2),
            cpu_ms_per_event=round(self._cpu_s * 1000 / events, 3),
            setup_s=round(self._setup_s, 1),
            setup_cpu_s=round(self._setup_cpu_s, 1),
            pss_mib=round(self._pss_bytes / 2**20, 1),
            refused=refused,
            died=died,
        )


def _routing(session: Session, window_ns: tuple[int, int], events: int) -> dict[str, float]:
    """Messages and bytes of each operation that were sent while quotes came, per event."""
    messages: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for line in lines_of(session.traces):
        envelope, record = line
        if envelope.node_id == DRIVER or not isinstance(record, trace.RpcSent):
            continue
        if window_ns[0] <= envelope.mono_ns <= window_ns[1]:
            messages[record.operation] = messages.get(record.operation, 0) + 1
            sizes[record.operation] = sizes.get(record.operation, 0) + record.bytes
    found: dict[str, float] = {}
    for operation in sorted(sizes, key=sizes.__getitem__, reverse=True):
        found[f"{operation} messages"] = round(messages[operation] / events, 2)
        found[f"{operation} bytes"] = round(sizes[operation] / events, 1)
    return found
