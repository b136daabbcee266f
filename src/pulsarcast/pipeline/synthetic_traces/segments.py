"""Closed segments of one node's trace, as `docs/spec/trace.md` has them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import zstandard

SEGMENT_BYTES: Final = 8 * 1024 * 1024
"""Text of one segment, before compression, as nodes write them."""
BUFFER_BYTES: Final = 64 * 1024
LEVEL: Final = 1


class Segments:
    """One node's trace as closed segments; those of a new life begin anew."""

    def __init__(self, folder: Path, node_id: str) -> None:
        self._bytes = 0
        self._folder = folder
        self._node_id = node_id
        self._incarnation = 1
        self._segment = 0
        self._parts: list[bytes] = []
        self._texts: list[str] = []
        self._waiting = 0
        self._packer: zstandard.ZstdCompressionObj | None = None

    def write(self, text: str) -> None:
        """Add whole lines."""
        self._texts.append(text)
        self._waiting += len(text)
        if self._waiting >= BUFFER_BYTES:
            self._pack()
            if self._bytes >= SEGMENT_BYTES:
                self.close()

    def _pack(self) -> None:
        if self._packer is None:
            self._packer = zstandard.ZstdCompressor(level=LEVEL).compressobj()
        self._parts.append(self._packer.compress("".join(self._texts).encode("ascii")))
        self._bytes += self._waiting
        self._texts, self._waiting = [], 0

    def close(self) -> None:
        """Close the segment that is open, if one is."""
        if self._texts:
            self._pack()
        if self._packer is None:
            return
        self._parts.append(self._packer.flush())
        name = f"{self._node_id}-{self._incarnation:04}-{self._segment:06}.ndjson.zst"
        hidden = self._folder / f".{name}"
        hidden.write_bytes(b"".join(self._parts))
        hidden.rename(self._folder / name)
        self._parts, self._packer = [], None
        self._segment += 1
        self._bytes = 0

    def begin_life(self) -> None:
        """Close what is open: the next lines are from another incarnation."""
        self.close()
        self._incarnation += 1
        self._segment = 0
