"""Figures of a running ingest for Prometheus: how fast, how far behind, how much was no line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pulsarcast.pipeline.streams import committed_batch, planned_batch
from pulsarcast.pipeline.traces.landing import LandResult, read_table
from pulsarcast.pipeline.traces.layout import Layout
from pulsarcast.pipeline.traces.segments import is_closed

BATCH_S_BUCKETS: Final = (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)


class Figures:
    """What an ingest tells Prometheus: counts since its start, the last batch, the backlog."""

    def __init__(self, backlog: Backlog) -> None:
        self.registry = CollectorRegistry()
        self._backlog = backlog
        self._counts = {
            name: Counter(f"pulsarcast_ingest_{name}", text, registry=self.registry)
            for name, text in {
                "segments": "Segments landed.",
                "bytes": "Bytes of segments landed, packed as they are.",
                "lines": "Lines landed.",
                "unknown": "Lines landed whose kind or version is not known.",
                "quarantined": "Lines that are none.",
                "duplicates": "Lines that were there already.",
            }.items()
        }
        self._batch_s = Histogram(
            "pulsarcast_ingest_batch_seconds",
            "Time that a batch took.",
            buckets=BATCH_S_BUCKETS,
            registry=self.registry,
        )
        self._lines_per_s = Gauge(
            "pulsarcast_ingest_lines_per_second",
            "Lines of the last batch by the time it took.",
            registry=self.registry,
        )
        # Both are looked up when they are asked for.
        Gauge(
            "pulsarcast_ingest_backlog_segments",
            "Segments closed and not landed yet.",
            registry=self.registry,
        ).set_function(lambda: backlog.look()[0])
        Gauge(
            "pulsarcast_ingest_backlog_bytes",
            "Bytes of segments closed and not landed yet.",
            registry=self.registry,
        ).set_function(lambda: backlog.look()[1])

    def add(self, result: LandResult, seconds: float) -> None:
        """Count one more batch."""
        for name, counter in self._counts.items():
            counter.inc(getattr(result, name))
        self._batch_s.observe(seconds)
        self._lines_per_s.set(result.lines / seconds)
        self._backlog.landed(result)

    @contextmanager
    def served(self, port: int, host: str) -> Iterator[int]:
        """Answer Prometheus as long as the ingest runs; port 0 is any that is free."""
        server, thread = start_http_server(port, addr=host, registry=self.registry)
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class Backlog:
    """How many closed segments, and bytes of them, have not been landed yet.

    What is behind at the start is asked of the index; from then on, segments that appear are added
    and batches that land are taken off, so it stays right when landed segments are cleared away.
    """

    def __init__(self, spark: SparkSession, layout: Layout, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._seen: set[str] = set()
        self._segments, self._bytes = 0, 0
        found = list(self._new())
        if layout.exists and found:
            files = spark.createDataFrame(found, "segment string, length bigint")
            planned = planned_batch(layout.checkpoint)
            # What Spark does again is landed again.
            again = planned if planned > committed_batch(layout.checkpoint) else None
            landed = read_table(spark, layout, "segments", apart_from=again).select("segment")
            waiting = files.join(landed, on="segment", how="left_anti")
            row = waiting.agg(F.count(F.lit(1)), F.coalesce(F.sum("length"), F.lit(0))).first()
            assert row is not None
            self._segments, self._bytes = row
        else:
            self._take(found)

    def look(self) -> tuple[int, int]:
        """Segments and bytes, as it is now."""
        self._take(self._new())
        return max(0, self._segments), max(0, self._bytes)

    def landed(self, result: LandResult) -> None:
        """Take a batch off."""
        self._segments -= result.segments
        self._bytes -= result.bytes

    def _take(self, found: Iterable[tuple[str, int]]) -> None:
        for _, size in found:
            self._segments += 1
            self._bytes += size

    def _new(self) -> Iterator[tuple[str, int]]:
        """Closed segments that were not there the last time, with their sizes."""
        for top in self._folders:
            for parent, folders, names in os.walk(top):
                folders[:] = [name for name in folders if not name.startswith((".", "_"))]
                for name in filter(is_closed, names):
                    path = Path(parent) / name
                    if str(path) not in self._seen:
                        self._seen.add(str(path))
                        yield str(path), path.stat().st_size
