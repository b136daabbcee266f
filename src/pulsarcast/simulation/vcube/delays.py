"""The paper's delay model: t_pc + t_q + t_t + t_pp for each message between two nodes (section 4).

A node transmits one copy after another, and a message to several destinations is one copy for each.
So a queue needs no list: when the transmitter is free again says how many are waiting. That it is
one queue for all destinations, and that acknowledgements do not stand in it, is what table 1 was
made with: with either changed, its figures do not come out (docs/figures-vcube.md).
"""

from __future__ import annotations

from typing import NamedTuple


class Delays(NamedTuple):
    """What one message costs, in units of time."""

    processing: int = 1
    """t_pc: until the receiver has handled it."""
    transmission: int = 1
    """t_t: how long the sender's transmitter is busy with one copy."""
    propagation: int = 100
    """t_pp: on the link."""

    @property
    def hop(self) -> int:
        """From sending to having been handled, where nothing else is waiting."""
        return self.processing + self.transmission + self.propagation


class Transmitters:
    """The send queues of all nodes."""

    def __init__(
        self, nodes: int, delays: Delays, *, combine_max: int = 1, per_link: bool = False
    ) -> None:
        self.delays = delays
        self.free_at = [0] * nodes
        self.copies = [0] * nodes
        """How many each node has queued."""
        self.waited = [0] * nodes
        """All the time that they waited for, t_q, together."""
        self.longest = [0] * nodes
        """The longest queue, in copies."""
        self.combine_max = combine_max
        """How many messages to one destination may leave as one copy, while they wait."""
        self.per_link = per_link
        """Whether a node has a transmitter for each destination; the paper's has one for all."""
        self._waiting: dict[tuple[int, int], list[int]] = {}
        self._link_free_at: dict[tuple[int, int], int] = {}

    def send(self, node: int, to: int, now: int) -> int:
        """Queue a copy, and return when its receiver will have handled it."""
        if self.combine_max > 1:
            last = self._waiting.get((node, to))
            if last is not None and last[0] > now and last[1] < self.combine_max:
                last[1] += 1
                return last[0] + self.delays.hop
        length = self.delays.transmission
        if self.per_link:
            start = max(self._link_free_at.get((node, to), 0), now)
            self._link_free_at[node, to] = start + length
        else:
            start = max(self.free_at[node], now)
            self.free_at[node] = start + length
        self.copies[node] += 1
        waited = start - now
        self.waited[node] += waited
        if waited >= self.longest[node] * length:
            self.longest[node] = waited // length + 1
        if self.combine_max > 1:
            self._waiting[node, to] = [start, 1]
        return start + self.delays.hop

    def queue_mean(self, node: int) -> float:
        """The mean length of a node's queue, as its copies found it, each counting itself."""
        copies = self.copies[node]
        if not copies:
            return 0.0
        return self.waited[node] / (copies * self.delays.transmission) + 1
