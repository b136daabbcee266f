"""The end of a run: segments that killed writers left open are closed (docs/guides/ingest.md).

A node that starts again closes them itself. Where nobody will start again, whoever says that the
run is over (`--finish`) has us do it in the node's place: compress, sync, rename. The half line
that a kill may leave at the end is not touched: ingest takes the whole lines, and quarantines the
rest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

import zstandard

from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.traces.segments import PACKED, Segment

QUIET_S: Final = 2.0
"""A segment that did not change for so long has no writer any more."""


def close_left_open(folders: Sequence[Path]) -> int:
    """Close every open segment below these folders; returns how many there were.

    Raises where one is still being written: its writer would go on writing into nothing.
    """
    hidden = [path for folder in folders for path in sorted(_open_segments(folder))]
    _wait_until_quiet(hidden)
    return sum(_close(path) for path in hidden)


def _open_segments(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in names:
            if name.startswith(".") and name.endswith(".ndjson"):
                yield Path(parent) / name


def _wait_until_quiet(paths: Sequence[Path]) -> None:
    before = {path: path.stat() for path in paths}
    youngest = max((stat.st_mtime for stat in before.values()), default=0.0)
    wait_s = QUIET_S - (time.time() - youngest)
    if wait_s <= 0:
        return
    time.sleep(min(wait_s, QUIET_S))
    for path, stat in before.items():
        if not path.exists() or path.stat().st_size != stat.st_size:
            raise LocalError(f"{path} is still being written: --finish is for runs that are over")


def _close(hidden: Path) -> bool:
    """Give an open segment its visible name; the segment itself is what a kill left of it."""
    visible = hidden.with_name(f"{hidden.name[1:]}{PACKED}")
    if visible.exists():
        # Its writer was killed between the last two steps of closing it.
        if not _is_same(hidden, visible):
            raise LocalError(f"{visible} and {hidden} differ: one segment cannot be both")
        hidden.unlink()
        return False
    packed = hidden.with_name(f"{hidden.name}{PACKED}")
    with hidden.open("rb") as source, packed.open("wb") as target:
        zstandard.ZstdCompressor(level=3, write_checksum=True).copy_stream(source, target)
        target.flush()
        os.fsync(target.fileno())
    packed.rename(visible)
    hidden.unlink()
    return True


def _is_same(hidden: Path, visible: Path) -> bool:
    return _digest(hidden) == _digest(visible)


def _digest(path: Path) -> bytes:
    """Of the text: where it is cut into blocks hangs on how it is packed."""
    segment, digest = Segment(path), sha256()
    for block in segment.blocks():
        digest.update(block)
    digest.update(segment.rest)
    return digest.digest()
