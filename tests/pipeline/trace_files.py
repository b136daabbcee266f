"""Traces for tests of ingest: lines of chosen nodes, packed as segments, and a plain reading.

The reading shares no code with the pipeline: files, zstandard, one `json.loads` per line.
"""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import zstandard
from pyspark.sql import DataFrame

from pulsarcast.model.errors import Verdict
from pulsarcast.model.ids import PeerId, parse_peer
from pulsarcast.model.topic_types import Mark
from pulsarcast.model.trace import (
    SCHEMA_VERSION,
    Envelope,
    Fault,
    NodeStarted,
    NodeStopped,
    Record,
    Rejected,
    Resources,
    Unknown,
    encode_line,
)

PEER: PeerId = parse_peer("12D3KooWA4KqicBME8sQbmkKFBnAiwJvWaTp8EF3a6UcgECfDDhb")
MARK = Mark(PEER, 7, 3)


def line(
    seq: int,
    record: Record | None = None,
    *,
    run_id: str = "run",
    node_id: str = "node",
    incarnation: int = 1,
    version: int = SCHEMA_VERSION,
) -> bytes:
    """One line of a trace; a record of some sort for each seq, unless one is given."""
    envelope = Envelope(run_id, node_id, incarnation, seq, 10**18 + seq, seq, version)
    return encode_line(envelope, record or record_of(seq))


def record_of(seq: int) -> Record:
    """A record of some sort for each number."""
    if seq == 1:
        return NodeStarted()
    some: list[Record] = [
        Resources(seq / 4, seq, 2 * seq, 3 * seq),
        Rejected(Verdict.IGNORE, f'"{seq}" is späť', PEER),
        Fault("kill", "somebody", target_incarnation=seq),
        NodeStopped(f"after {seq}"),
        Unknown("dreamt", {"of": [seq, {"sheep": True}]}),
    ]
    return some[seq % len(some)]


def lines(seqs: Iterable[int], **life: Any) -> bytes:
    """Lines of one life of a node."""
    return b"".join(line(seq, **life) for seq in seqs)


def pack(path: Path, text: bytes) -> Path:
    """Write a closed segment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zstandard.ZstdCompressor().compress(text) if path.suffix == ".zst" else text)
    return path


def texts_of(path: Path) -> list[str]:
    """The lines of one closed segment."""
    data = path.read_bytes()
    if path.suffix == ".zst":
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return data.decode().splitlines()


def spoil(segment: Path) -> None:
    """Let a node deliver its last event once more, on a new line: something to find."""
    texts = texts_of(segment)
    again = json.loads([text for text in texts if json.loads(text)["kind"] == "delivered"][-1])
    again["seq"] = json.loads(texts[-1])["seq"] + 1
    pack(segment, "".join(f"{text}\n" for text in (*texts, json.dumps(again))).encode())


def read_plainly(*folders: Path) -> Counter[str]:
    """Every line of every closed segment below some folders, and how often it is there."""
    found: Counter[str] = Counter()
    for folder in folders:
        for path in folder.rglob("[!.]*.ndjson*"):
            found.update(plain(json.loads(text)) for text in texts_of(path))
    return found


def plain(fields: dict[str, Any]) -> str:
    """A line as text that is the same for lines that say the same; null is as good as absent."""
    return json.dumps({k: v for k, v in fields.items() if v is not None}, sort_keys=True)


def read_by_duckdb(tables: Path) -> list[dict[str, Any]]:
    """The table `lines` as seen by an engine that knows nothing but where the files are."""
    files = f"'{tables}/lines/*/*/*/*.parquet', hive_partitioning=true, hive_types_autocast=0"
    with duckdb.connect() as database:
        rows = database.sql(f"from read_parquet({files})").arrow().read_all()
    return list(rows.to_pylist())


def rows_of(lines: DataFrame) -> list[dict[str, Any]]:
    """A small table's rows."""
    return [row.asDict(recursive=True) for row in lines.collect()]


def said(rows: Iterable[dict[str, Any]]) -> Counter[str]:
    """What rows of the table say, in the words of `read_plainly`."""
    place = ("batch", "segment", "line_number", "unknown")
    found: Counter[str] = Counter()
    for row in rows:
        fields = {name: value for name, value in row.items() if name not in place}
        found[plain(json.loads(row["unknown"]) if row["unknown"] else fields)] += 1
    return found
