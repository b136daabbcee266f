"""The ledger: what was published when, and who got it after how long, in shared memory.

A run has millions of deliveries, and a message for each would cost more than what is measured. So
all processes share one piece of memory, made before the first fork: a row per event, a cell per
node. A node writes only its own cells, the parent only reads, and what a node wrote outlives its
SIGKILL.

Latency is the difference of two readings of CLOCK_MONOTONIC in two processes. That is right because
they run on one machine and so read one clock.
"""

from __future__ import annotations

import math
import mmap
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pulsarcast.testbed.contestants.contestants import Messages

NS_PER_US: Final = 1_000
LATENCY_US_MAX: Final = (1 << 32) - 2
# Per node: deliveries, duplicates, redeliveries, strays; bytes in and out of its present life;
# messages in and out of all of its lives, plus one: 0 is for nodes that do not count them.
_COUNTS: Final = 8
_BYTES: Final = 4
_MESSAGES: Final = 6


class Ledger:
    """A row for each event, a cell for each node: 0, or the latency in microseconds plus one.

    One that is `ordered` has a second cell for each: as which one of its own it came to the node.
    Where several `readers` listen on a node, each has a column of its own, node after node.
    """

    def __init__(self, *, nodes: int, events: int, ordered: bool = False, readers: int = 1) -> None:
        assert readers == 1 or not ordered, "each reader would have an order of its own"
        self.nodes = nodes
        self.events = events
        self.readers = readers
        self.columns = nodes * readers
        times, cells = 8 * events, 4 * events * self.columns
        used = times + cells * (1 + ordered)
        counts = -used % 8 + used  # where they begin: a multiple of 8
        memory = memoryview(mmap.mmap(-1, max(1, counts + 8 * _COUNTS * nodes)))
        self._published_ns = memory[:times].cast("Q")
        self._cells = memory[times : times + cells].cast("I")
        self._places = memory[times + cells : used].cast("I")
        """Empty where nobody asked for the order."""
        self._counts = memory[counts : counts + 8 * _COUNTS * nodes].cast("Q")

    # Written by nodes.

    def publish(self, number: int, now_ns: int) -> None:
        """An event is on its way; a second attempt does not change when it began."""
        if not self._published_ns[number]:
            self._published_ns[number] = now_ns

    def teller(self, node: int, number_of: Callable[[bytes], int]) -> Teller:
        """The pen of one life of one node."""
        return Teller(self, node, number_of)

    # Read by the parent.

    def missing(self, number: int, due: Iterable[int]) -> list[int]:
        """Who of those that an event is due to has not got it: nodes, or columns of readers."""
        row = self._row(number)
        return [column for column in due if not row[column]]

    def got_by(self, number: int) -> list[int]:
        """The columns of all who got an event."""
        return [column for column, cell in enumerate(self._row(number)) if cell]

    def is_complete(self, number: int, *, but: int) -> bool:
        """Whether all nodes, except perhaps this one, have got an event."""
        row = self._row(number)
        return row.count(0) == (0 if row[but] else 1)

    def latencies_us(self, number: int, due: Iterable[int]) -> list[int]:
        """How long an event took to those who got it."""
        row = self._row(number)
        return [row[column] - 1 for column in due if row[column]]

    def _row(self, number: int) -> list[int]:
        first = number * self.columns
        return self._cells[first : first + self.columns].tolist()

    def arrivals_ns(self, node: int, numbers: range | None = None) -> list[tuple[int, int]]:
        """Of all that a node has got: when it first came, in the order of that, and was published.

        To a microsecond: an event that came sooner came when it was published. Of some events,
        where their numbers are given.
        """
        assert self.readers == 1, "each reader has arrivals of its own"
        cells, published_ns = self._cells[node :: self.nodes].tolist(), self._published_ns
        return sorted(
            (published_ns[number] + (cell - 1) * NS_PER_US, published_ns[number])
            for number, cell in enumerate(cells)
            if cell and (numbers is None or number in numbers)
        )

    def last_arrival_ns(self) -> int | None:
        """When anything first came to anyone for the last time; None: nothing ever did."""
        came_ns = [arrivals[-1][0] for node in range(self.nodes)
                   if (arrivals := self.arrivals_ns(node))]  # fmt: skip
        return max(came_ns, default=None)

    def order_at(self, node: int) -> list[int]:
        """The events that a node has got, in the order in which they first came to it."""
        assert self._places, "nobody asked for the order"
        places = self._places[node :: self.nodes].tolist()
        cells = self._cells[node :: self.nodes].tolist()
        return sorted((n for n, cell in enumerate(cells) if cell), key=places.__getitem__)

    @property
    def deliveries(self) -> int:
        """First deliveries of an event to a node or to a reader on it, a node's own included."""
        return sum(self._counts[::_COUNTS].tolist())

    def deliveries_of(self, node: int) -> int:
        """First deliveries to one node."""
        return self._counts[node * _COUNTS]

    def end_life(self, node: int) -> tuple[int, int]:
        """What a life metered last; the next one begins with nothing."""
        said = self.metered(node)
        first = node * _COUNTS + _BYTES
        self._counts[first] = self._counts[first + 1] = 0
        return said

    def metered(self, node: int) -> tuple[int, int]:
        """Bytes in and out of a node's present life, as it last said."""
        first = node * _COUNTS + _BYTES
        return self._counts[first], self._counts[first + 1]

    def messages(self, node: int) -> Messages | None:
        """What all lives of a node received and sent, as it last said; None: it does not count."""
        first = node * _COUNTS + _MESSAGES
        received, sent = self._counts[first], self._counts[first + 1]
        return Messages(received - 1, sent - 1) if received and sent else None

    @property
    def duplicates(self) -> int:
        """Deliveries of what the same life of the node was given before."""
        return sum(self._counts[1::_COUNTS].tolist())

    @property
    def redeliveries(self) -> int:
        """Deliveries of what an earlier life of the node was given."""
        return sum(self._counts[2::_COUNTS].tolist())

    @property
    def strays(self) -> int:
        """Deliveries of what nobody published."""
        return sum(self._counts[3::_COUNTS].tolist())


class Teller:
    """Writes one life of one node into the ledger."""

    def __init__(self, ledger: Ledger, node: int, number_of: Callable[[bytes], int]) -> None:
        self._events = ledger.events
        self._columns = ledger.columns
        self._readers = ledger.readers
        self._node = node
        self._number_of = number_of
        self._published_ns = ledger._published_ns
        self._cells = ledger._cells
        self._places = ledger._places
        self._counts = ledger._counts
        self._told = bytearray(ledger.events * ledger.readers)
        """What this life was given."""
        self._before = ledger.messages(node) or Messages(0, 0)
        """What earlier lives received and sent."""
        self._place = max(self._places[node :: self._columns].tolist(), default=0)
        """How many there were before: of what is given again, the last time counts."""

    def deliver(self, payload: bytes, now_ns: int, reader: int = 0) -> None:
        """The application of our node was handed this, or one of the readers on it."""
        number = self._number_of(payload)
        if not (0 <= number < self._events and self._published_ns[number]):
            self._count(3)
            return
        told = number * self._readers + reader
        if self._told[told]:
            self._count(1)
            return
        self._told[told] = 1
        cell = number * self._columns + self._node * self._readers + reader
        if self._cells[cell]:
            self._count(2)
            return
        if self._places:
            # Before the cell, which makes it count: a kill may come between them.
            self._place += 1
            self._places[cell] = self._place
        latency_us = (now_ns - self._published_ns[number]) // NS_PER_US
        self._cells[cell] = min(max(latency_us, 0), LATENCY_US_MAX) + 1
        self._count(0)

    def meter(
        self,
        bytes_in: int,
        bytes_out: int,
        messages_in: int | None = None,
        messages_out: int | None = None,
    ) -> None:
        """What went through the sockets of this life so far."""
        first, counts = self._node * _COUNTS, self._counts
        counts[first + _BYTES], counts[first + _BYTES + 1] = bytes_in, bytes_out
        if messages_in is not None and messages_out is not None:
            counts[first + _MESSAGES] = self._before.received + messages_in + 1
            counts[first + _MESSAGES + 1] = self._before.sent + messages_out + 1

    def _count(self, which: int) -> None:
        self._counts[self._node * _COUNTS + which] += 1


def percentile_ms(latencies_us: array[int], share: float) -> float:
    """The least latency that this share of all deliveries did not exceed; they must be sorted."""
    if not latencies_us:
        return 0.0
    rank = math.ceil(round(share * len(latencies_us), 6))  # 0.07 * 100 is a little more than 7
    return round(latencies_us[max(0, rank - 1)] / 1000, 3)


def messages_since(
    before: Sequence[Messages] | None, after: Sequence[Messages] | None
) -> list[Messages] | None:
    """What every node received and sent between two readings, where nodes can tell."""
    if before is None or after is None:
        return None
    return [
        Messages(now.received - then.received, now.sent - then.sent)
        for then, now in zip(before, after, strict=True)
    ]


def spread(counts: Sequence[int]) -> dict[str, float] | None:
    """Mean and nearest ranks: is the load on all nodes, or on some?"""
    if not counts:
        return None
    ordered, mean = sorted(counts), sum(counts) / len(counts)
    ranks = {f"p{share}": ordered[-(-share * len(ordered) // 100) - 1] for share in (50, 95, 99)}
    over = ranks["p99"] / mean if mean else 0.0
    return {"mean": round(mean, 1), **ranks, "max": ordered[-1], "p99_over_mean": round(over, 2)}
