"""Traces into tables: segments of NDJSON in, Parquet out (docs/guides/ingest.md).

Batch and stream share every step: a segment's bytes (`segments`) become rows (`parsing`), each row
gets its place (`sorting`), tasks write files (`writing`), a batch is held against the ones before
(`duplicates`) and becomes visible as a whole (`landing`, `layout`). Later, files are merged
(`compacting`) and runs read anew (`rebuilding`).
"""

from pulsarcast.pipeline.folders import IncompatibleTablesError
from pulsarcast.pipeline.traces.compacting import CompactResult, compact
from pulsarcast.pipeline.traces.landing import LandResult, land
from pulsarcast.pipeline.traces.reading import (
    is_tables,
    open_lines,
    read_lines,
    read_quarantine,
    read_segments,
)
from pulsarcast.pipeline.traces.rebuilding import rebuild
from pulsarcast.pipeline.traces.streaming import Ingest, Landed

__all__ = [
    "CompactResult",
    "IncompatibleTablesError",
    "Ingest",
    "LandResult",
    "Landed",
    "compact",
    "is_tables",
    "land",
    "open_lines",
    "read_lines",
    "read_quarantine",
    "read_segments",
    "rebuild",
]
