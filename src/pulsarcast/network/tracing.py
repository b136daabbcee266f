"""The trace of one real node (docs/spec/trace.md, Processing).

Lines of a turn are gathered and written at once, so SIGKILL loses none. Closing a full segment
takes the loop some tens of milliseconds, once in 8 MB of text.
"""

from __future__ import annotations

import os
from pathlib import Path

from pulsarcast.model.errors import LocalError
from pulsarcast.model.trace import LEVELS, Envelope, Record, encode_line, is_written_at
from pulsarcast.protocol.inputs import Now
from pulsarcast.storage.segments import (
    FIRST_SEQ,
    SEGMENT_BYTES,
    close_left_open,
    close_segment,
    segment_name,
)


class NodeTrace:
    """What one life of a node says it did."""

    def __init__(
        self,
        folder: Path,
        *,
        run_id: str,
        node_id: str,
        incarnation: int,
        level: str = "delivery",
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        if level not in LEVELS:
            raise LocalError(f"trace_level={level!r}: give {' or '.join(LEVELS)}")
        self.folder = folder
        self.run_id = run_id
        self.node_id = node_id
        self.incarnation = incarnation
        self.level = level
        self._segment_bytes = segment_bytes
        self._seq = FIRST_SEQ
        self._segment = 0
        self._lines: list[bytes] = []
        self._file: int | None = None
        folder.mkdir(parents=True, exist_ok=True)
        close_left_open(folder, node_id)

    def record(self, now: Now, record: Record) -> None:
        """Take one record; `flush` writes it."""
        if not is_written_at(self.level, record):
            return
        envelope = Envelope(
            self.run_id,
            self.node_id,
            self.incarnation,
            self._seq,
            now.wall_us * 1000,
            round(now.mono_s * 1e9),
        )
        self._lines.append(encode_line(envelope, record))
        self._seq += 1

    def flush(self) -> None:
        """Hand everything that was recorded to the kernel; raises OSError where it refuses."""
        if not self._lines:
            return
        text = b"".join(self._lines)
        if self._file is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o644)
        while text:
            text = text[os.write(self._file, text) :]
            self._lines = [text] if text else []
        if os.lseek(self._file, 0, os.SEEK_CUR) >= self._segment_bytes:
            close_segment(self._end_segment())

    def close(self) -> None:
        """Close the segment that is open; raises OSError where the last lines find no room."""
        try:
            self.flush()
        finally:
            if self._file is not None:
                close_segment(self._end_segment())

    @property
    def _path(self) -> Path:
        name = segment_name(self.node_id, self.incarnation, self._segment)
        return self.folder / f".{name}"

    def _end_segment(self) -> Path:
        assert self._file is not None, "no segment is open"
        path = self._path
        os.close(self._file)
        self._file = None
        self._segment += 1
        return path
