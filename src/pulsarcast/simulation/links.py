"""Links: how long a message takes between two nodes.

Latencies are one way. A `Links` is asked by the numbers of the two nodes and draws from the
random stream it is given, so that the same seed gives the same network.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Protocol


class Links(Protocol):
    """What the network asks about every pair of nodes."""

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second of each direction of a connection; None where it does not matter."""

    def latency_s(self, a: int, b: int, rng: Random) -> float:
        """How long one message takes from a to b."""

    def steady_s(self, a: int, b: int) -> float | None:
        """The latency from a to b where it is always the same, so that it is asked only once."""


class Constant:
    """Every message takes equally long."""

    def __init__(self, latency_s: float, *, bandwidth: float | None = None) -> None:
        self._latency_s = latency_s
        self.bandwidth = bandwidth

    def latency_s(self, a: int, b: int, rng: Random) -> float:
        """How long one message takes from a to b."""
        return self._latency_s

    def steady_s(self, a: int, b: int) -> float | None:
        """The latency from a to b."""
        return self._latency_s


class Jittered:
    """Every message takes mean ± jitter, uniformly, and never less than nothing."""

    bandwidth = None

    def __init__(self, mean_s: float, jitter_s: float) -> None:
        self._low_s = max(mean_s - jitter_s, 0.0)
        self._spread_s = mean_s + jitter_s - self._low_s

    def latency_s(self, a: int, b: int, rng: Random) -> float:
        """How long one message takes from a to b."""
        return self._low_s + self._spread_s * rng.random()

    def steady_s(self, a: int, b: int) -> float | None:
        """The latency from a to b, where there is no jitter."""
        return None if self._spread_s else self._low_s


class Matrix:
    """Half of the round trips measured between real hosts; nodes are mapped to hosts by seed.

    Where there are more nodes than hosts, several nodes share a host, and are `local_s` apart.
    """

    bandwidth = None

    def __init__(
        self,
        rtt_s: Sequence[Sequence[float]],
        *,
        seed: int,
        jitter: float = 0.0,
        local_s: float = 0.000_5,
    ) -> None:
        self._rtt_s = rtt_s
        self._jitter = jitter
        self._local_s = local_s
        self._hosts = list(range(len(rtt_s)))
        Random(seed).shuffle(self._hosts)

    @classmethod
    def read(cls, path: Path, *, seed: int) -> Matrix:
        """Read a matrix file (gzip; .tsv in milliseconds or .csv in microseconds)."""
        return cls(read_rtt_s(path), seed=seed)

    def latency_s(self, a: int, b: int, rng: Random) -> float:
        """How long one message takes from a to b; `jitter` is a share of it, either way."""
        base_s = self._base_s(a, b)
        return base_s * (1.0 + self._jitter * (2.0 * rng.random() - 1.0))

    def steady_s(self, a: int, b: int) -> float | None:
        """The latency from a to b, where there is no jitter."""
        return None if self._jitter else self._base_s(a, b)

    def host(self, node: int) -> int:
        """The host that a node stands for."""
        return self._hosts[node % len(self._hosts)]

    def _base_s(self, a: int, b: int) -> float:
        # Hosts measured as 0 away are on one site; nothing travels in no time.
        return max(self._rtt_s[self.host(a)][self.host(b)] / 2, self._local_s)


def read_rtt_s(path: Path) -> list[list[float]]:
    """Round trips in seconds from a gzipped matrix file: .tsv in ms, .csv in µs."""
    separator, unit_s = ("\t", 1e-3) if ".tsv" in path.name else (",", 1e-6)
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [
            [float(cell) * unit_s for cell in line.rstrip("\n").split(separator)]
            for line in lines
            if line.strip()
        ]
    assert all(len(row) == len(rows) for row in rows), f"{path} is not a square matrix"
    return rows
