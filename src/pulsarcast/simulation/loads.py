"""Loads: how much is asked of members that all publish and listen, and what came of it.

Shared by simulated nodes (`scenario_load`) and real ones (`testbed.loaded`), so that
their figures mean the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

QUIET_S = 3.0
"""So long nothing has to arrive before the rest is taken for lost."""
DRAIN_S_MAX = 20.0
FILLING = 0.25
"""Share of the time in which queues fill, and which goodput leaves out: what is in them at the end
is not counted either."""


class Load(NamedTuple):
    """What is asked of the members.

    A load is open, so many events a second whatever becomes of them, or closed, so many in flight.
    What comes on top of a publisher's `in_flight` is refused, as where a node says it is busy.
    """

    members: int
    publishers: int
    dissemination: str
    payload: int
    seconds: float
    rate: float
    """Events a second of all publishers together; 0: as many as `in_flight` allows."""
    in_flight: int
    """Events of one publisher that are neither accepted nor refused."""


class Heard(NamedTuple):
    """What one member did and saw, in seconds from the beginning of the load."""

    offered: int
    refused: int
    called_s: list[float]
    """By number of the event: when its publisher asked."""
    accepted_s: list[float | None]
    """None: it was refused."""
    arrivals: list[tuple[int, int, float]]
    """Publisher, number, time."""
    cpu_s: float
    """While there was load."""
    counts: Mapping[str, int]
    """The core's own."""


class Outcome(NamedTuple):
    """What all members saw together, of others' events."""

    offered: int
    accepted: int
    refused: int
    due: int
    arrived: int
    goodput_per_s: float
    """Events that came to everybody, a second, while there was load, once queues had filled."""
    p50_s: float | None
    """From the acceptance of an event to its delivery."""
    p99_s: float | None
    accepting_p99_s: float | None
    """From the call to the acceptance."""
    cpu_ms_per_delivery: float
    counts: dict[str, int]


def outcome(load: Load, heard: Sequence[Heard]) -> Outcome:
    """Count what all members did."""
    settled_s = load.seconds * FILLING
    arrived = in_time = steady = 0
    waits_s: list[float] = []
    for index, one in enumerate(heard):
        for publisher, number, at_s in one.arrivals:
            if publisher == index:
                continue
            arrived += 1
            in_time += at_s <= load.seconds
            steady += settled_s <= at_s <= load.seconds
            since_s = heard[publisher].accepted_s[number]
            if since_s is not None:
                waits_s.append(max(0.0, at_s - since_s))
    calls_s = [
        at_s - called_s
        for one in heard
        for called_s, at_s in zip(one.called_s, one.accepted_s, strict=True)
        if at_s is not None
    ]
    others = load.members - 1
    names = sorted({name for one in heard for name in one.counts})
    return Outcome(
        offered=sum(one.offered for one in heard),
        accepted=len(calls_s),
        refused=sum(one.refused for one in heard),
        due=len(calls_s) * others,
        arrived=arrived,
        goodput_per_s=round(steady / others / (load.seconds - settled_s), 1),
        p50_s=_at_share(waits_s, 0.5),
        p99_s=_at_share(waits_s, 0.99),
        accepting_p99_s=_at_share(calls_s, 0.99),
        cpu_ms_per_delivery=round(1000 * sum(one.cpu_s for one in heard) / max(1, in_time), 3),
        counts={name: sum(one.counts.get(name, 0) for one in heard) for name in names},
    )


def _at_share(values: Sequence[float], share: float) -> float | None:
    return round(sorted(values)[int((len(values) - 1) * share)], 4) if values else None
