"""Segments: the files that a trace is made of (docs/architecture.md, A trace line's way).

An open segment has a hidden name, which Spark never lists. Closing it means: compress with zstd,
sync, rename; so whatever has a visible name is whole and never changes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import zstandard

SEGMENT_BYTES: Final = 8 * 1024 * 1024
"""Text of one segment, before compression."""
FIRST_SEQ: Final = 1


def segment_name(node_id: str, incarnation: int, segment: int) -> str:
    """A segment's name, which sorts by node, incarnation and then by time."""
    return f"{node_id}-{incarnation:04}-{segment:06}.ndjson"


def close_segment(hidden: Path) -> Path:
    """Turn an open segment into a closed one: compress, sync, rename."""
    assert hidden.name.startswith("."), f"{hidden} is not an open segment"
    visible = hidden.with_name(f"{hidden.name[1:]}.zst")
    packed = hidden.with_name(f"{hidden.name}.zst")
    with packed.open("wb") as file:
        file.write(zstandard.ZstdCompressor(level=3).compress(hidden.read_bytes()))
        file.flush()
        os.fsync(file.fileno())
    packed.rename(visible)
    hidden.unlink()
    return visible


def close_left_open(folder: Path, node_id: str) -> list[Path]:
    """Close what earlier lives of a node left open when they were killed."""
    return [close_segment(path) for path in sorted(folder.glob(f".{node_id}-*.ndjson"))]
