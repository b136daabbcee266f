"""A segment: one closed file of a trace, as blocks of whole lines (docs/guides/ingest.md).

A segment may be cut off or damaged: then every whole line before the damage counts, and one fault
says what is wrong and what was left over. Memory is bounded, whatever the file holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import zstandard

GLOB: Final = "*.{ndjson,ndjson.zst}"
"""Names of closed segments. A leading dot marks an open one, which Spark never lists."""
SUFFIXES: Final = (".ndjson", ".ndjson.zst")
PACKED: Final = ".zst"
BLOCK_BYTES: Final = 4 * 1024 * 1024
"""Text that is parsed at once."""
PIECE_BYTES: Final = 16 * 1024
"""Packed bytes that are unpacked at once: even the densest of them make no more than 512 MiB."""
SMALL_PIECE_BYTES: Final = 64
"""The same where a segment is damaged: what is in one piece with the damage is lost."""
LINE_BYTES_MAX: Final = 16 * 1024 * 1024


def is_closed(name: str) -> bool:
    """Whether a file of this name is a closed segment, as Spark sees it."""
    return name.endswith(SUFFIXES) and not name.startswith((".", "_"))


class Segment:
    """One closed segment, read once from its beginning to its end.

    After the last block, `fault` says what was wrong, if anything, and `rest` holds the text after
    the last whole line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        self.fault: str | None = None
        self.rest = b""

    def blocks(self) -> Iterator[bytes]:
        """Its text in blocks that end with the end of a line."""
        rest: list[bytes] = []
        size = 0
        for text in self._texts():
            rest.append(text)
            size += len(text)
            if size < BLOCK_BYTES:
                continue
            block = b"".join(rest)
            end = block.rfind(b"\n") + 1
            if end:
                yield block[:end]
            rest = [block[end:]]
            size = len(block) - end
            if size > LINE_BYTES_MAX:
                self.fault = f"a line is longer than {LINE_BYTES_MAX} bytes; left here"
                break
        block = b"".join(rest)
        end = block.rfind(b"\n") + 1
        if end:
            yield block[:end]
        self.rest = block[end:]
        if self.rest and self.fault is None:
            self.fault = "the last line has no end"

    def _texts(self) -> Iterator[bytes]:
        if self.path.suffix != PACKED:
            with self.path.open("rb") as file:
                while data := file.read(BLOCK_BYTES):
                    self.bytes += len(data)
                    yield data
            return
        given = 0
        piece_bytes = PIECE_BYTES
        while True:
            try:
                for text in self._unpack(piece_bytes, skip=given):
                    given += len(text)
                    yield text
                return
            except zstandard.ZstdError as error:
                if piece_bytes == SMALL_PIECE_BYTES:
                    self.fault = f"damaged: {error}"
                    return
                piece_bytes = SMALL_PIECE_BYTES

    def _unpack(self, piece_bytes: int, *, skip: int) -> Iterator[bytes]:
        """Unpack frame after frame; of the text, leave out the first bytes."""
        unpacker = zstandard.ZstdDecompressor()
        frame = unpacker.decompressobj()
        self.bytes = 0
        with self.path.open("rb") as file:
            while piece := file.read(piece_bytes):
                self.bytes += len(piece)
                while piece:
                    text = frame.decompress(piece)
                    piece = b""
                    if frame.eof:
                        piece = frame.unused_data
                        frame = unpacker.decompressobj()
                        whole = True
                    else:
                        whole = False
                    yield text[skip:]
                    skip = max(0, skip - len(text))
        if self.bytes == 0:
            self.fault = "the segment is empty"
        elif not whole:
            self.fault = "the segment is cut off"
