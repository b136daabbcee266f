"""Archives: a topic's events as Parquet files that any engine reads, and anybody can verify.

A stream reads the node's log and adds to the files (`keeping`, `writing`), whose names alone say
how far an archive has got (`layout`). Small files are merged (`compacting`). Every row has the
event as it was signed, so nobody needs to be trusted: `verifying` holds rows against their events
(`rows`) and each topic's files against each other (`continuity`).
"""

from pulsarcast.pipeline.archive.compacting import CompactResult, compact
from pulsarcast.pipeline.archive.keeping import Archived, Archiving
from pulsarcast.pipeline.archive.layout import ArchiveFolder
from pulsarcast.pipeline.archive.verifying import Finding, Verification, verify

__all__ = [
    "ArchiveFolder",
    "Archived",
    "Archiving",
    "CompactResult",
    "Finding",
    "Verification",
    "compact",
    "verify",
]
