"""A node's own clocks: they start apart and drift apart, as real ones do."""

from __future__ import annotations

from pulsarcast.protocol.inputs import Now

EPOCH_US = 1_767_225_600_000_000
"""Simulated second 0 is 2026-01-01T00:00:00Z on a clock that is right."""


class NodeClock:
    """Turns simulated time into what one node reads.

    A change of offset or drift bends the clock from that moment on: monotonic time neither
    jumps nor runs backwards, wall time jumps as a real one does when someone sets it.
    """

    __slots__ = ("_bent_s", "_mono_s", "_rate", "_wall_us", "drift_ppm", "offset_s")

    def __init__(self, time_s: float, *, offset_s: float = 0.0, drift_ppm: float = 0.0) -> None:
        self._mono_s = 0.0
        self._wall_us = 0.0
        self._bent_s = time_s
        self._rate = 1.0
        self.offset_s = self.drift_ppm = 0.0
        self.bend(time_s, offset_s=offset_s, drift_ppm=drift_ppm)

    def bend(self, time_s: float, *, offset_s: float, drift_ppm: float) -> None:
        """Set the offset of wall time, and the speed of both clocks, from now on."""
        self._mono_s += (time_s - self._bent_s) * self._rate
        self._wall_us = EPOCH_US + (time_s + offset_s) * 1e6
        self._bent_s = time_s
        self._rate = 1.0 + drift_ppm * 1e-6
        self.offset_s = offset_s
        self.drift_ppm = drift_ppm

    def read(self, time_s: float) -> Now:
        """What both clocks show at a simulated time."""
        elapsed_s = (time_s - self._bent_s) * self._rate
        return Now(self._mono_s + elapsed_s, int(self._wall_us + elapsed_s * 1e6))

    def lasts_s(self, delay_s: float) -> float:
        """How much simulated time passes while this clock counts `delay_s`."""
        return delay_s / self._rate
