"""Messages through spanning trees that do not change, with the delay model and without order.

This is all that sections 4.1, 4.2, 4.4 (for the baseline) and 4.6 measure, and it is fast: some
hundred thousand receptions a second. `tests` hold it against `network`, which runs the algorithms
whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from pulsarcast.simulation.vcube.calendar import Calendar
from pulsarcast.simulation.vcube.delays import Delays, Transmitters
from pulsarcast.simulation.vcube.trees import Table

Arrival: TypeAlias = tuple[int, int | None, int]
"""Who gets it, from whom (None: on its way to the root), and which message."""


class Publication(NamedTuple):
    """One message to be published: when, by whom, through which tree."""

    at: int
    publisher: int
    tree: int = 0


class Tree(NamedTuple):
    """A table, and where messages enter it: at a root, or, with none, at their publisher."""

    table: Table
    root: int | None = None
    ways_in: Sequence[int] | None = None
    """Whom a publisher sends to first, by node: a subscriber's broker, which knows the root."""


@dataclass(slots=True)
class Measured:
    """What came of it."""

    received: list[int]
    """Messages that each node got, its own not among them."""
    latency: list[int]
    """All the latencies of what each node got."""
    transmitters: Transmitters
    entered: int = 0
    """Messages that went to a root or broker first; they count as none (see table 1)."""
    finished_at: list[int] = field(default_factory=list)
    """When each message reached the last who got it."""


def broadcast(
    nodes: int,
    trees: Sequence[Tree],
    publications: Sequence[Publication],
    delays: Delays,
    *,
    combine_max: int = 1,
    per_link: bool = False,
) -> Measured:
    """Publish everything, and return once it has arrived everywhere."""
    queues = Transmitters(nodes, delays, combine_max=combine_max, per_link=per_link)
    measured = Measured([0] * nodes, [0] * nodes, queues)
    measured.finished_at = [each.at for each in publications]
    # (node, sender or None where it enters the tree, message); nobody sends to itself.
    calendar: Calendar[Arrival] = Calendar()
    for number, publication in enumerate(publications):
        calendar.add(publication.at, (publication.publisher, publication.publisher, number))
    for now, day in calendar:
        for node, sender, number in day:
            at, publisher, which = publications[number]
            table, root, ways_in = trees[which]
            if sender == node or sender is None:
                to = root
                if sender == node and ways_in is not None:
                    to = ways_in[node] if ways_in[node] != node else root
                if to is not None and to != node:
                    _enter(measured, calendar, number, (node, to, now))
                    continue
                kids = table[node][-1]
            else:
                kids = table[node][(node ^ sender).bit_length() - 1]
            if node != publisher:
                measured.received[node] += 1
                measured.latency[node] += now - at
                measured.finished_at[number] = now
            if not kids:
                continue
            if combine_max == 1 and not per_link:
                _send_all(queues, calendar, kids, (node, number, now))
            else:
                for child in kids:
                    calendar.add(queues.send(node, child, now), (child, node, number))
    return measured


def _send_all(
    queues: Transmitters,
    calendar: Calendar[Arrival],
    kids: tuple[int, ...],
    what: tuple[int, int, int],
) -> None:
    """What `Transmitters.send` does, for all children at once: most of the time is spent here."""
    node, number, now = what
    length = queues.delays.transmission
    start = max(queues.free_at[node], now)
    waited = start - now
    count = len(kids)
    days = calendar.days
    arrival = start + queues.delays.hop
    for child in kids:
        day = days.get(arrival)
        if day is None:
            calendar.add(arrival, (child, node, number))
        else:
            day.append((child, node, number))
        arrival += length
    queues.free_at[node] = start + count * length
    queues.copies[node] += count
    queues.waited[node] += count * waited + length * (count * (count - 1) // 2)
    waiting = waited // length + count
    if waiting > queues.longest[node]:  # noqa: PLR1730 - as fast as it can be
        queues.longest[node] = waiting


def _enter(
    measured: Measured,
    calendar: Calendar[Arrival],
    number: int,
    way: tuple[int, int, int],
) -> None:
    """Send a message towards its tree: it waits as any other does, and is not counted as one."""
    node, to, now = way
    queues = measured.transmitters
    start = max(queues.free_at[node], now)
    queues.free_at[node] = start + queues.delays.transmission
    measured.entered += 1
    calendar.add(start + queues.delays.hop, (to, None, number))
