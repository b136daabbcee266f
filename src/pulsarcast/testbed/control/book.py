"""The book: who created, subscribed and published what in a testbed that is asked by hand.

An event is due to all whose subscription stood when it was asked for. What a node that is down or
paused lacks is undecided: it may yet get it.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import msgspec

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import Cid
from pulsarcast.testbed.callers import Callers
from pulsarcast.testbed.ledger import Ledger, percentile_ms
from pulsarcast.testbed.sessions import Account

ROOM_MIN: Final = 100_000
"""Events that there is room for at least: rows that nobody writes to take no memory."""


class Standing(NamedTuple):
    """What was due to whom, and who got it."""

    due: int
    delivered: int
    undecided: int
    """What those lack who are away."""

    @property
    def lost(self) -> int:
        """What those lack who are there."""
        return self.due - self.delivered - self.undecided

    def facts(self) -> dict[str, int]:
        """As a report says it."""
        return {
            "due": self.due,
            "delivered": self.delivered,
            "undecided": self.undecided,
            "missing": self.lost,
        }


class _Entry(NamedTuple):
    author: int
    subscribers: tuple[int, ...]


class Book:
    """Topics, subscriptions and events by their names and numbers."""

    def __init__(self, ledger: Ledger, callers: Callers) -> None:
        self.topics: dict[str, Cid] = {}
        self._subscribers: dict[str, tuple[int, ...]] = {}
        self._entries: list[_Entry] = []
        self._ledger = ledger
        self._callers = callers

    @property
    def events(self) -> int:
        """How many there are: the number of the next one."""
        return len(self._entries)

    def topic(self, name: str) -> Cid:
        """A topic by its name."""
        if name not in self.topics:
            known = ", ".join(self.topics) or "none: create one, or play a load"
            raise LocalError(f"no topic {name!r}; there are: {known}")
        return self.topics[name]

    def is_subscribed(self, index: int, topic: str) -> bool:
        """Whether a node's subscription stands."""
        return index in self._subscribers.get(topic, ())

    def subscribe(self, index: int, topic: str) -> None:
        """A node's subscription stands from now on."""
        if not self.is_subscribed(index, topic):
            self._subscribers[topic] = (*self._subscribers.get(topic, ()), index)

    @property
    def subscriptions(self) -> int:
        """How many stand."""
        return sum(map(len, self._subscribers.values()))

    def enter(self, author: int, topic: str) -> int:
        """An event is to be published; returns its number."""
        if self.events >= self._ledger.events:
            raise LocalError(f"there is room for {self._ledger.events} events: start another one")
        self._entries.append(_Entry(author, self._subscribers.get(topic, ())))
        return self.events - 1

    def standing(self, absent: Collection[int], numbers: Sequence[int] | None = None) -> Standing:
        """What became of some events, or of all."""
        everyone = Account(self._ledger, self._callers.promised)
        for number in range(self.events) if numbers is None else numbers:
            author, subscribers = self._entries[number]
            everyone.enter(number, author=author, subscribers=list(subscribers))
        undecided = sum(node in absent for nodes in everyone.missing.values() for node in nodes)
        return Standing(everyone.due, everyone.delivered, undecided)

    def latencies_ms(self, numbers: Sequence[int]) -> dict[str, float]:
        """How long events took to others than their authors."""
        latencies = array("Q")
        for number in numbers:
            author, subscribers = self._entries[number]
            others = [node for node in subscribers if node != author]
            latencies.extend(self._ledger.latencies_us(number, others))
        ordered = array("Q", sorted(latencies))
        return {
            "latency_ms_p50": percentile_ms(ordered, 0.5),
            "latency_ms_p99": percentile_ms(ordered, 0.99),
        }


def payload_of(number: int, text: str) -> bytes:
    """What is published by hand: like a load's, it says its number, which the ledger needs."""
    return msgspec.json.encode({"internalId": number, "text": text})


def parse_nodes(text: str, size: int) -> list[int]:
    """Nodes as a command names them: `3`, `0,2,5-8`, or `all`."""
    if text == "all":
        return list(range(size))
    chosen: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise LocalError(f"nodes look like 3, or 0,2,5-8, or all; not {text!r}")
        chosen |= dict.fromkeys(range(int(first), int(last or first) + 1))
    if not chosen or max(chosen) >= size:
        raise LocalError(f"nodes are 0 to {size - 1}; not {text!r}")
    return list(chosen)
