"""Dumps: every codec, files that are cut off, lines that are no comments, windows of 2 GiB."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import re
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from pyspark.sql import SparkSession

from pulsarcast.pipeline.workloads import comments, dumps
from pulsarcast.pipeline.workloads.comments import parse_file, read_dumps
from pulsarcast.pipeline.workloads.dumps import BrokenDumpError, read_chunks


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def xz(data: bytes) -> bytes:
    return lzma.compress(data, preset=0)


def pieces(compress: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """As parallel compressors do: many streams, one after the other."""
    return lambda data: b"".join(
        compress(data[at : at + 50_000]) for at in range(0, len(data) or 1, 50_000)
    )


SKIPPABLE = struct.pack("<II", 0x184D2A53, 5) + b"hello"

CODECS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": xz,
    "zstd": zstd,
    "gzip, in pieces, padded": lambda data: pieces(gzip.compress)(data) + b"\0" * 512,
    "bz2, in pieces": pieces(bz2.compress),
    "xz, in pieces": pieces(xz),
    "zstd, in pieces": lambda data: SKIPPABLE + pieces(zstd)(data) + SKIPPABLE + zstd(b""),
}


@pytest.fixture
def lines() -> list[bytes]:
    rng = random.Random(4)
    return [f"{number} {rng.randbytes(20).hex()}".encode() for number in range(10_000)]


def read_whole(path: Path) -> list[bytes]:
    found: list[bytes] = []
    for chunk in read_chunks(path):
        assert chunk.first_number == len(found) + 1
        found += chunk.lines
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_a_file_is_read_whatever_it_is_compressed_with_and_called(
    tmp_path: Path, lines: list[bytes], codec: str
) -> None:
    path = tmp_path / "dump"
    path.write_bytes(CODECS[codec](b"\n".join(lines) + b"\n"))
    assert read_whole(path) == lines
    path.write_bytes(CODECS[codec](b"\n".join(lines)))  # the last line without its end
    assert read_whole(path) == lines
    path.write_bytes(CODECS[codec](b""))
    assert read_whole(path) == []


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "plain"])
def test_a_file_that_is_cut_off_yields_its_whole_lines_and_says_so(
    tmp_path: Path, lines: list[bytes], codec: str
) -> None:
    whole = CODECS[codec](b"\n".join(lines) + b"\n")
    path = tmp_path / "dump"
    path.write_bytes(whole[: len(whole) * 3 // 4 + 1])
    found: list[bytes] = []
    with pytest.raises(BrokenDumpError, match="cut off") as raised:
        found.extend(line for chunk in read_chunks(path) for line in chunk.lines)
    # bz2 decodes in blocks of 900 kB: all of this but its pieces is one.
    assert len(found) >= (0 if codec == "bz2" else 5_000)
    assert found == lines[: len(found)]
    assert raised.value.line_number == len(found) + 1
    assert lines[len(found)].startswith(raised.value.rest)


@pytest.mark.parametrize("codec", ["gzip", "bz2", "xz", "zstd"])
@pytest.mark.parametrize("damage", ["garbage behind", "a byte changed"])
def test_damage_is_told(tmp_path: Path, lines: list[bytes], codec: str, damage: str) -> None:
    whole = bytearray(CODECS[codec](b"\n".join(lines) + b"\n"))
    if damage == "garbage behind":
        whole += b"garbage, which is no stream"
    else:
        whole[len(whole) // 2] ^= 0x55
    path = tmp_path / "dump"
    path.write_bytes(whole)
    with pytest.raises(BrokenDumpError):
        read_whole(path)


def test_a_line_without_end_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dumps, "LINE_BYTES_MAX", 1 << 20)
    path = tmp_path / "dump"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"a\n")
        for _ in range(64):
            file.write(b"x" * (1 << 20))
        file.write(b"\nb")
    tracemalloc.start()
    try:
        assert [len(line) for line in read_whole(path)] == [1, (1 << 20) + 1, 1]
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


GOOD = b'{"id":"c0","author":"a","subreddit":"s","created_utc":12,"body":"b","ups":3}'

BROKEN: list[tuple[bytes, str, str]] = [
    (b"", comments.EMPTY, ""),
    (b"  \r", comments.EMPTY, ""),
    (GOOD[:-1], comments.NOT_JSON, "truncated"),
    (GOOD + b"}", comments.NOT_JSON, "trailing"),
    (GOOD.replace(b'"b"', b'"\\ud800"'), comments.NOT_JSON, ""),
    (GOOD.replace(b'"b"', b'"\xff"'), comments.NOT_UTF8, "0xff"),
    (b"[1]", comments.NOT_A_COMMENT, "Expected `object`"),
    (GOOD.replace(b'"author"', b'"writer"'), comments.NOT_A_COMMENT, "missing.*author"),
    (GOOD.replace(b'"a"', b"null"), comments.NOT_A_COMMENT, "author"),
    (GOOD.replace(b'"a"', b'""'), comments.NOT_A_COMMENT, "empty"),
    (GOOD.replace(b'"s"', b'""'), comments.NOT_A_COMMENT, "empty"),
    (GOOD.replace(b"c0", b"c_0"), comments.NOT_A_COMMENT, "base 36"),
    (GOOD.replace(b"c0", b"C0"), comments.NOT_A_COMMENT, "base 36"),
    (GOOD.replace(b"c0", b"z" * 13), comments.NOT_A_COMMENT, "base 36"),
    (GOOD.replace(b"12", b'"noon"'), comments.NOT_A_COMMENT, "seconds"),
    (GOOD.replace(b"12", b'"1e9"'), comments.NOT_A_COMMENT, "seconds"),
    (GOOD.replace(b"12", b"-1"), comments.NOT_A_COMMENT, "seconds"),
    (GOOD.replace(b"12", b"1.5"), comments.NOT_A_COMMENT, "seconds"),
    (GOOD.replace(b"12", b"1e300"), comments.NOT_A_COMMENT, "seconds"),
    (GOOD.replace(b"12", b"true"), comments.NOT_A_COMMENT, "created_utc"),
    (GOOD.replace(b":3", b":99999999999"), comments.NOT_A_COMMENT, "ups"),
]

ACCEPTED: list[tuple[bytes, dict[str, Any]]] = [
    (GOOD, {"created_utc": 12, "ups": 3, "downs": 0, "body_bytes": 1, "body": "b"}),
    (GOOD + b"\r", {"created_utc": 12}),
    (GOOD.replace(b"12", b'"12"'), {"created_utc": 12}),
    (GOOD.replace(b"12", b"12.0"), {"created_utc": 12}),
    (GOOD.replace(b"c0", b"z" * 12), {"id_number": 36**12 - 1}),
    (GOOD.replace(b'"ups"', b'"score"'), {"ups": 3}),
    (GOOD.replace(b'"ups"', b'"score":9,"ups"'), {"ups": 3}),
    (GOOD.replace(b":3", b":null"), {"ups": 0}),
    (GOOD.replace(b'"b"', '"ü\\n"'.encode()), {"body_bytes": 3, "body": "ü\n"}),
    (GOOD.replace(b'"body":"b",', b""), {"body_bytes": 0, "body": ""}),
]


def parse_lines(tmp_path: Path, lines: list[bytes]) -> list[dict[str, Any]]:
    path = tmp_path / "dump"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return [row for batch in parse_file(3, path, bodies=True) for row in batch.to_pylist()]


def test_a_broken_line_is_kept_with_its_reason(tmp_path: Path) -> None:
    found = parse_lines(tmp_path, [line for line, _, _ in BROKEN])
    assert [row["reason"] for row in found] == [reason for _, reason, _ in BROKEN]
    assert [row["text"] for row in found] == [
        line.decode(errors="replace") for line, _, _ in BROKEN
    ]
    assert [row["line_number"] for row in found] == list(range(1, len(BROKEN) + 1))
    for row, (line, _, detail) in zip(found, BROKEN, strict=True):
        assert re.search(detail, row["detail"]), (line, row)
        assert row["created_utc"] is row["id_number"] is row["author"] is row["topic"] is None


def test_every_way_to_write_a_comment_is_understood(tmp_path: Path) -> None:
    found = parse_lines(tmp_path, [line for line, _ in ACCEPTED])
    for row, (line, wanted) in zip(found, ACCEPTED, strict=True):
        assert row["reason"] is None, (line, row)
        assert {name: row[name] for name in wanted} == wanted, line


def test_a_line_that_is_too_long_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (dumps, comments):
        monkeypatch.setattr(module, "LINE_BYTES_MAX", 100)
    long = GOOD.replace(b'"b"', b'"' + b"b" * 100 + b'"')
    found = parse_lines(tmp_path, [GOOD, long, GOOD])
    assert [row["reason"] for row in found] == [None, comments.TOO_LONG, None]


def test_a_window_of_two_gibibytes_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """A repetition 144 MiB back: farther than a decoder looks that was not told."""
    rng = random.Random(9)

    def line(number: int, body: str) -> bytes:
        record = {"id": f"c{number:03x}", "author": "a", "subreddit": "s", "body": body}
        return msgspec.json.encode({**record, "created_utc": number}) + b"\n"

    far = [rng.randbytes(1 << 19).hex() for _ in range(2)]
    spaces = " " * (1 << 20)
    parameters = zstandard.ZstdCompressionParameters(
        window_log=31, hash_log=17, chain_log=17, enable_ldm=True, ldm_hash_log=20
    )
    path = tmp_path / "RC_2031-01.zst"
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    numbers = iter(range(1_000))
    with path.open("wb") as raw, compressor.stream_writer(raw) as plain:
        for body in (*far, *[spaces] * 144, *far):
            plain.write(line(next(numbers), body))
    # Half of the digits are noise and stand in the file once: the second time is a match.
    assert path.stat().st_size < 1.2 * len(far) * (1 << 19)
    with path.open("rb") as file:
        unprepared = zstandard.ZstdDecompressor().stream_reader(file)
        with pytest.raises(zstandard.ZstdError, match="too much memory"):
            unprepared.read(1)

    found = [msgspec.json.decode(line)["body"] for chunk in read_chunks(path) for line in chunk[1]]
    assert found == [*far, *[spaces] * 144, *far]
    rows = read_dumps(spark, [str(path)]).select("reason", "created_utc", "body_bytes").collect()
    assert [tuple(row) for row in rows] == [(None, number, 1 << 20) for number in range(148)]
