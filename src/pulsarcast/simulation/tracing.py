"""Traces on disk: one NDJSON stream per node, in segments (docs/spec/trace.md).

What a segment is, and how it is closed, `storage.segments` says. A new incarnation of a node begins
a new segment.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from pulsarcast.model.errors import LocalError
from pulsarcast.model.trace import Envelope, Record, encode_line, is_written_at
from pulsarcast.protocol.inputs import Now
from pulsarcast.simulation.clocks import NodeClock
from pulsarcast.simulation.options import Options
from pulsarcast.simulation.results import Result
from pulsarcast.storage.segments import (
    FIRST_SEQ,
    SEGMENT_BYTES,
    close_segment,
    segment_name,
)

RESULT = "result.json"
"""Beside the traces: what the run came to."""
BUFFER_BYTES = 64 * 1024
"""Text kept in memory per node: ten thousand nodes cannot each have an open file."""


class _Stream:
    """What is known of one node's open segment."""

    __slots__ = ("buffer", "buffered", "incarnation", "node_id", "segment", "seq", "written")

    def __init__(self, node_id: str, incarnation: int) -> None:
        self.node_id = node_id
        self.incarnation = incarnation
        self.seq = FIRST_SEQ
        self.segment = 0
        self.buffer: list[bytes] = []
        self.buffered = 0
        self.written = 0

    @property
    def name(self) -> str:
        """The segment's name, which sorts by incarnation and then by time."""
        return segment_name(self.node_id, self.incarnation, self.segment)


class TraceWriter:
    """Writes what nodes, and those who drive them, say they did.

    `name_of` gives the node_id of a node by its index: the text of its peer id.
    """

    def __init__(
        self,
        directory: Path,
        run_id: str,
        *,
        name_of: Callable[[int], str],
        level: str = "delivery",
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.directory = directory
        self.run_id = run_id
        self._name_of = name_of
        self._level = level
        self._segment_bytes = segment_bytes
        self._streams: dict[str, _Stream] = {}
        self._names: dict[int, str] = {}
        self._clock = NodeClock(0.0)
        directory.mkdir(parents=True, exist_ok=True)

    def record(self, time_s: float, index: int, incarnation: int, now: Now, record: Record) -> None:
        """Write one record of one node, as an observer of the world."""
        name = self._names.get(index)
        if name is None:
            name = self._names[index] = self._name_of(index)
        self.write(name, incarnation, now, record)

    def note(self, time_s: float, record: Record) -> None:
        """Write what the driver of the run did, by the world's own clock."""
        self.write("driver", 1, self._clock.read(time_s), record)

    def write(self, node_id: str, incarnation: int, now: Now, record: Record) -> None:
        """Write one record of a node, or of a driver that is no peer."""
        if not is_written_at(self._level, record):
            return
        stream = self._streams.get(node_id)
        if stream is None or stream.incarnation != incarnation:
            if stream is not None:
                self._close(stream)
            stream = self._streams[node_id] = _Stream(node_id, incarnation)
        envelope = Envelope(
            self.run_id,
            node_id,
            incarnation,
            stream.seq,
            now.wall_us * 1000,
            round(now.mono_s * 1e9),
        )
        line = encode_line(envelope, record)
        stream.seq += 1
        stream.buffer.append(line)
        stream.buffered += len(line)
        if stream.buffered >= BUFFER_BYTES:
            self._spill(stream)
            if stream.written >= self._segment_bytes:
                self._close(stream)

    def close(self) -> None:
        """Close every segment that is open."""
        for stream in self._streams.values():
            self._close(stream)
        self._streams.clear()

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _spill(self, stream: _Stream) -> None:
        # What an earlier run left open that was broken off is none of this one's.
        mode = "ab" if stream.written else "wb"
        with (self.directory / f".{stream.name}").open(mode) as file:
            file.write(b"".join(stream.buffer))
        stream.written += stream.buffered
        stream.buffer = []
        stream.buffered = 0

    def _close(self, stream: _Stream) -> None:
        if stream.buffer:
            self._spill(stream)
        if not stream.written:
            return
        close_segment(self.directory / f".{stream.name}")
        stream.segment += 1
        stream.written = 0


def open_trace(options: Options, name_of: Callable[[int], str]) -> TraceWriter | None:
    """The trace that a run's options ask for."""
    if options.trace is None:
        return None
    folder = Path(options.trace)
    _refuse_another(folder, options)
    return TraceWriter(folder, options.name_of_run(), name_of=name_of, level=options.trace_level)


def write_result(options: Options, result: Result) -> None:
    """Put what the run came to beside its traces, if it has any."""
    if options.trace is not None:
        (Path(options.trace) / RESULT).write_text(result.to_json() + "\n")


def _refuse_another(folder: Path, options: Options) -> None:
    """One folder per run: of two, the load driver's trace would be that of the second alone."""
    try:
        there = msgspec.json.decode((folder / RESULT).read_bytes(), type=dict[str, Any])
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return
    if there.get("replay") != options.replay_command():
        raise LocalError(f"{folder} holds the traces of another run: choose another folder")
