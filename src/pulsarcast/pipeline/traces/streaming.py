"""Ingest as a stream: segments as they are closed, in batches that no crash can tear.

Spark keeps account, in the checkpoint, of which segments belong to which batch; each batch is
landed by the very function that a batch run uses. A batch whose offset is logged and whose commit
is not was cut short somewhere: Spark gives us the same segments under the same number again, and
`layout` says why that is enough.

Traps of the file source that are closed here: `maxFileAge` passes over files that are much older
than the newest, and `latestFirst` would turn that on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pulsarcast.pipeline.folders import IncompatibleTablesError
from pulsarcast.pipeline.streams import committed_batch, planned_batch, run_until
from pulsarcast.pipeline.traces.finishing import close_left_open
from pulsarcast.pipeline.traces.landing import (
    FILES,
    OPTIONS,
    LandResult,
    glob_of,
    land_batch,
    trace_folders,
)
from pulsarcast.pipeline.traces.layout import OWN_BATCHES, Layout

BATCH_BYTES: Final = 256 * 1024 * 1024
"""Packed bytes of one batch at most: some gigabytes of text."""
INTERVAL_S: Final = 5.0
"""How often a continuous ingest looks for segments: a batch costs about a second."""


@dataclass
class Landed:
    """What an ingest has landed so far."""

    batches: int = 0
    segments: int = 0
    bytes: int = 0
    lines: int = 0
    unknown: int = 0
    quarantined: int = 0
    duplicates: int = 0
    closed: int = 0  # segments that killed writers had left open

    def add(self, result: LandResult) -> None:
        """Count one more batch."""
        self.batches += 1
        for name in ("segments", "bytes", "lines", "unknown", "quarantined", "duplicates"):
            setattr(self, name, getattr(self, name) + getattr(result, name))


@dataclass
class Ingest:
    """One ingest into one folder, until all is read or somebody says stop."""

    spark: SparkSession
    traces: Sequence[str | Path]
    out: str | Path
    interval_s: float = INTERVAL_S
    batch_bytes: int = BATCH_BYTES
    on_batch: Callable[[LandResult, float], None] = lambda result, seconds: None
    landed: Landed = field(default_factory=Landed)

    def __post_init__(self) -> None:
        self.layout = Layout(self.out)
        self.folders = trace_folders(self.traces)
        self._running: int | None = None

    def available_now(self, *, finish: bool = False) -> Landed:
        """Read what is there, and end.

        `finish`: no writer lives any more, so what killed ones left open is closed and read too.
        """
        with self._writing():
            self._drain(finish=finish)
        return self.landed

    def continuously(self, stop: threading.Event, *, finish: bool = False) -> Landed:
        """Read what comes, until `stop`; the batch that is under way is ended first.

        `finish`: then close what killed writers left open, and read all that is left.
        """
        with self._writing():
            query = self._start(self._sink().trigger(processingTime=f"{self.interval_s} seconds"))
            run_until(stop, query, self.layout.checkpoint, lambda: self._running)
            if finish:
                self._drain(finish=True)
        return self.landed

    def _drain(self, *, finish: bool) -> None:
        if finish:
            self.landed.closed += close_left_open(self.folders)
        self._start(self._sink().trigger(availableNow=True)).awaitTermination()

    def _sink(self) -> DataStreamWriter:
        source = (
            self.spark.readStream.format("binaryFile")
            .schema(FILES)
            .options(**OPTIONS, maxFileAge="36500d", latestFirst="false")
            .option("maxBytesPerTrigger", str(self.batch_bytes))
            .load(glob_of(self.folders))
        )
        return (
            source.select("path", "length")
            .writeStream.foreachBatch(self._land)
            .option("checkpointLocation", str(self.layout.checkpoint))
            .queryName("pulsarcast ingest")
        )

    def _start(self, sink: DataStreamWriter) -> StreamingQuery:
        query: StreamingQuery = sink.start()
        return query

    def _land(self, files: DataFrame, batch: int) -> None:
        start = time.monotonic()
        self._running = batch
        result = land_batch(self.spark, self.layout, files, batch)
        self.landed.add(result)
        self.on_batch(result, time.monotonic() - start)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self.layout.writing():
            self.layout.note_traces(self.folders)
            self._check_checkpoint()
            yield

    def _check_checkpoint(self) -> None:
        """Raise where checkpoint and tables do not belong together."""
        advice = "remove the whole folder and ingest again"
        batches = self.layout.batches()
        streamed = max((batch for batch in batches if batch < OWN_BATCHES), default=-1)
        if streamed > planned_batch(self.layout.checkpoint):
            raise IncompatibleTablesError(
                f"{self.layout.folder} has batch {streamed}, of which its checkpoint knows "
                f"nothing: the next ones would take its place; {advice}"
            )
        committed = committed_batch(self.layout.checkpoint)
        if committed > self.layout.notes()["compacted"] and committed not in batches:
            raise IncompatibleTablesError(
                f"{self.layout.folder} has no batch {committed}, which its checkpoint says is "
                f"there: it would never be read again; {advice}"
            )
