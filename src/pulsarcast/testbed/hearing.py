"""Hearing: what the simulator's own checkers say of a run of real nodes.

They want to hear everything in the order in which it happened. All nodes of a testbed are on one
machine and read one monotonic clock; a line has the time at which its turn began, and what a turn
sends leaves afterwards. So the lines of all nodes in the order of their times are what someone who
sees all of them would have heard. (`pulsarcast pipeline check` asks no clock, and comes to the
same.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pulsarcast.model import trace
from pulsarcast.model.ids import Cid, parse_peer
from pulsarcast.protocol.inputs import Now
from pulsarcast.simulation.checkers.causality import settle_causality
from pulsarcast.simulation.checkers.coverage import check_coverage
from pulsarcast.simulation.observer import Observer

NS_PER_S = 1_000_000_000


class Election(NamedTuple):
    """A node said that it leads the sequencers of a topic."""

    at_ns: int
    node_id: str
    topic: Cid
    term: int


class Heard(NamedTuple):
    """What was found wrong, by kind, and who led when."""

    findings: dict[str, int]
    elections: list[Election]
    lines: int


def hear(lines: Iterable[trace.Line], *, drivers: Iterable[str] = ("driver",)) -> Heard:
    """Judge one run; `drivers` are those whose lines are not of a node."""
    ordered = sorted(lines, key=_time)
    ears = _Ears(frozenset(drivers))
    for line in ordered:
        ears.hear(line)
    observer = ears.observer
    settle_causality(observer)
    now_s = ordered[-1].envelope.mono_ns / NS_PER_S if ordered else 0.0
    check_coverage(observer, now_s=now_s)
    return Heard(observer.findings.by_kind(), ears.elections, len(ordered))


def _time(line: trace.Line) -> tuple[int, int, int]:
    envelope = line.envelope
    return envelope.mono_ns, envelope.incarnation, envelope.seq


class _Ears:
    """Lines in, in their order."""

    def __init__(self, drivers: frozenset[str]) -> None:
        self.observer = Observer()
        self.elections: list[Election] = []
        self._drivers = drivers
        self._indices: dict[str, int] = {}

    def hear(self, line: trace.Line) -> None:
        envelope, record = line
        time_s = envelope.mono_ns / NS_PER_S
        if isinstance(record, trace.Fault):
            if record.action == "kill":
                self.observer.killed(self._index(record.target), time_s)
            return
        if envelope.node_id in self._drivers:
            if isinstance(record, trace.Acknowledged):
                self.observer.acknowledged(record.event, record.level)
            return
        index = self._index(envelope.node_id)
        self._look(record)
        self.observer.record(time_s, index, envelope.incarnation, Now(time_s, 0), record)
        if isinstance(record, trace.Subscribed):
            # Whether its caller was told so is in no trace.
            self.observer.confirmed(index, record.topic)
        elif isinstance(record, trace.LeaderChanged) and record.leader == parse_peer(
            envelope.node_id
        ):
            at = (envelope.mono_ns, envelope.node_id, record.topic, record.term)
            self.elections.append(Election(*at))

    def _look(self, record: trace.Record) -> None:
        """What a topic's versions say, before anything is held against them."""
        if isinstance(record, trace.TopicCreated | trace.TopicVersion):
            allowed = None if record.allowed is None else frozenset(record.allowed)
            self.observer.allow(record.version, allowed)
            book = self.observer.book(record.topic)
            book.retention_count = record.retention_count
            book.retention_age_s = record.retention_age_s

    def _index(self, node_id: str) -> int:
        index = self._indices.setdefault(node_id, len(self._indices))
        if index not in self.observer.peers:
            self.observer.peers[index] = parse_peer(node_id)
        return index
