"""Dumps: files of one record a line, whatever they are compressed with, read in bounded memory.

Spark's own reader fails where a file is cut off, knows no line numbers, and cannot read zstd with
a window beyond 128 MiB (`--long=31`, which the later dumps of comments need). So files are decoded
here, in Python's libraries, by the task that also parses the lines: one task a file.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple, Protocol

import zstandard

READ_BYTES: Final = 1 << 16
"""How much of a file is decoded at a time."""
BLOCK_BYTES: Final = 1 << 20
"""How much text a decoder may return at a time, if it lets us choose."""
ZSTD_READ_BYTES: Final = 1 << 14
"""Less for zstd, whose decoder returns all that its input holds."""
WINDOW_BYTES: Final = 1 << 31
"""The largest window that zstd has; a file that uses it takes that much memory to decode."""
LINE_BYTES_MAX: Final = 1 << 24
"""No comment is this long. What is longer is cut there, so that memory stays bounded."""


class Chunk(NamedTuple):
    """Some whole lines of a file, in order, without their line ends."""

    first_number: int
    lines: list[bytes]


class BrokenDumpError(Exception):
    """A file ends before its end, or is not what it seemed; `rest` began a line."""

    def __init__(self, reason: str, line_number: int = 0, rest: bytes = b"") -> None:
        super().__init__(reason)
        self.reason = reason
        self.line_number = line_number
        self.rest = rest


def read_chunks(path: str | Path) -> Iterator[Chunk]:
    """All whole lines of a file; then, if it is broken, BrokenDumpError.

    The last line needs no line end. A line longer than LINE_BYTES_MAX comes as its first
    LINE_BYTES_MAX + 1 bytes.
    """
    number = 1
    rest = b""
    with Path(path).open("rb") as raw:
        try:
            for block in _decode(raw):
                *lines, tail = block.split(b"\n")
                if lines:
                    lines[0] = (rest + lines[0])[: LINE_BYTES_MAX + 1]
                    yield Chunk(number, lines)
                    number += len(lines)
                    rest = b""
                if len(rest) <= LINE_BYTES_MAX:
                    rest += tail[: LINE_BYTES_MAX + 1 - len(rest)]
        except BrokenDumpError as error:
            raise BrokenDumpError(error.reason, number, rest) from error
    if rest:
        yield Chunk(number, [rest])


# Decoders: each yields blocks of text, and raises BrokenDumpError where it cannot go on.


def _decode(raw: IO[bytes]) -> Iterator[bytes]:
    head = raw.read(6)
    raw.seek(0)
    for magic, decoder in _DECODERS:
        if head.startswith(magic):
            return decoder(raw)
    if head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50:  # a skippable frame of zstd
        return _decode_zstd(raw)
    return _read_plain(raw)


def _read_plain(raw: IO[bytes]) -> Iterator[bytes]:
    while block := raw.read(BLOCK_BYTES):
        yield block


class _Decompressor(Protocol):
    """What Python's bz2 and lzma have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def _decode_streams(
    raw: IO[bytes], begin: Callable[[], _Decompressor], name: str
) -> Iterator[bytes]:
    """Decode one compressed stream after the other, as parallel compressors write them."""
    data = raw.read(READ_BYTES)
    while data:
        stream = begin()
        while not stream.eof:
            with _Blaming(name):
                block = stream.decompress(data, BLOCK_BYTES)
            yield block
            data = b""
            if stream.needs_input and not stream.eof:
                data = raw.read(READ_BYTES)
                if not data:
                    raise BrokenDumpError(f"{name}: the file is cut off")
        data = stream.unused_data or raw.read(READ_BYTES)


def _decode_bz2(raw: IO[bytes]) -> Iterator[bytes]:
    return _decode_streams(raw, bz2.BZ2Decompressor, "bz2")


def _decode_xz(raw: IO[bytes]) -> Iterator[bytes]:
    return _decode_streams(raw, lzma.LZMADecompressor, "xz")


def _decode_gzip(raw: IO[bytes]) -> Iterator[bytes]:
    data = raw.read(READ_BYTES)
    while data:
        member = zlib.decompressobj(wbits=31)
        while True:
            with _Blaming("gzip"):
                block = member.decompress(data, BLOCK_BYTES)
            yield block
            if member.eof:
                break
            data = member.unconsumed_tail
            if not data and len(block) < BLOCK_BYTES:
                data = raw.read(READ_BYTES)
                if not data:
                    raise BrokenDumpError("gzip: the file is cut off")
        data = member.unused_data or raw.read(READ_BYTES)
        while data and not data.strip(b"\0"):  # padding, as tapes have it
            data = raw.read(READ_BYTES)


def _decode_zstd(raw: IO[bytes]) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES)
    data = raw.read(ZSTD_READ_BYTES)
    while data:
        frame = decompressor.decompressobj()
        while True:
            with _Blaming("zstd"):
                block = frame.decompress(data)
            yield block
            if frame.eof:
                break
            data = raw.read(ZSTD_READ_BYTES)
            if not data:
                raise BrokenDumpError("zstd: the file is cut off")
        data = frame.unused_data or raw.read(ZSTD_READ_BYTES)


class _Blaming:
    """Turns what a decoder says of bad data into our error; the disk's errors stay."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        known = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, zstandard.ZstdError)
        if isinstance(error, known):
            raise BrokenDumpError(f"{self._name}: {error}") from error


_DECODERS: Final = (
    (b"BZh", _decode_bz2),
    (b"\x1f\x8b", _decode_gzip),
    (b"\x28\xb5\x2f\xfd", _decode_zstd),
    (b"\xfd7zXZ\x00", _decode_xz),
)
"""By what a file begins with: names lie."""
