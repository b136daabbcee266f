"""Streaming queries that keep tables current: how far one has got, and how it ends.

A query that is stopped in the middle of a batch does that batch again when it is started the next
time. That is right, and a waste: so it is stopped between two batches where that can be had.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

POLL_S: Final = 0.2


def planned_batch(checkpoint: Path) -> int:
    """The last batch that Spark has planned; -1 is none."""
    return _last(checkpoint / "offsets")


def committed_batch(checkpoint: Path) -> int:
    """The last batch that Spark knows to be done; -1 is none."""
    return _last(checkpoint / "commits")


def run_until(
    stop: threading.Event,
    query: StreamingQuery,
    checkpoint: Path,
    begun: Callable[[], int | None],
) -> None:
    """Let a query run until `stop`, and end it; `begun` is the last batch that it has begun."""
    while query.isActive and not stop.wait(POLL_S):
        pass
    running = begun()
    while query.isActive and running is not None and running > committed_batch(checkpoint):
        time.sleep(POLL_S)
    query.stop()
    query.awaitTermination()


def forget_planned(checkpoint: Path) -> None:
    """Take back a batch that was planned and refused: Spark would do it first, for ever."""
    planned = planned_batch(checkpoint)
    if planned > committed_batch(checkpoint):
        for name in (f"{planned}", f".{planned}.crc"):
            (checkpoint / "offsets" / name).unlink(missing_ok=True)


def _last(log: Path) -> int:
    names = (entry.name for entry in log.iterdir()) if log.is_dir() else ()
    return max((int(name) for name in names if name.isdigit()), default=-1)
