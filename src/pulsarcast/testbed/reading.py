"""Reading traces back, a line at a time, where a few figures are wanted and no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import zstandard

from pulsarcast.model.trace import Line, decode_line


def lines_of(folder: Path, node_id: str = "") -> Iterator[Line]:
    """All lines of the closed segments of one node, or of everyone."""
    name = f"{node_id}-*" if node_id else "*"
    for segment in sorted(folder.glob(f"{name}.ndjson.zst")):
        with segment.open("rb") as raw, zstandard.open(raw, "rt", encoding="utf-8") as text:
            yield from map(decode_line, text)
