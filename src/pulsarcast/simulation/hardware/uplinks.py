"""Uplinks: all that a node sends leaves over one, whoever it is for."""

from __future__ import annotations

from pulsarcast.simulation.lines import WRITE_BYTES, Line, TracedLine


class Uplink:
    """The way out of one node: one byte after the other."""

    __slots__ = ("_bandwidth", "_free_s")

    def __init__(self, bandwidth: float) -> None:
        self._bandwidth = bandwidth
        """Bytes a second."""
        self._free_s = 0.0

    def leaves_s(self, now_s: float, size: int) -> float:
        """When the last byte of a message has left that is written now."""
        self._free_s = max(self._free_s, now_s) + size / self._bandwidth
        return self._free_s


class UplinkLine(Line):
    """A line whose bytes wait for those that the node sends to others."""

    __slots__ = ()

    def settle(self) -> None:
        """How long it takes depends on what else the node sends."""

    def _arrival_s(self, size: int) -> float:
        now_s = self.loop.now
        if now_s > self.write_s:
            self.write_s = max(self.free_s, now_s)
            self.traffic.writes += 1
            size += WRITE_BYTES
        self.free_s = self.network.uplink(self.source).leaves_s(now_s, size)
        return self.free_s + self.latency_s()


class TracedUplinkLine(TracedLine, UplinkLine):
    """The same, that says in the trace what its ends send and receive."""

    __slots__ = ()
