import os
from pathlib import Path

import pytest
import zstandard

from pulsarcast.model.ids import Cid
from pulsarcast.model.trace import Line, NodeStarted, RpcSent, decode_line
from pulsarcast.network.tracing import NodeTrace
from pulsarcast.protocol.inputs import Now
from tests.unit.network.test_addresses import peer

NOW = Now(1.5, 2_000_000)


def open_trace(folder: Path, **given: object) -> NodeTrace:
    settings = {"run_id": "r", "node_id": "n", "incarnation": 1, **given}
    return NodeTrace(folder, **settings)  # type: ignore[arg-type]


def read(folder: Path) -> list[Line]:
    text = b""
    for path in sorted(folder.glob("*.zst")):
        text += zstandard.ZstdDecompressor().decompress(path.read_bytes(), 1 << 30)
    return [decode_line(line) for line in text.splitlines()]


def test_lines_are_with_the_kernel_after_a_flush_and_visible_after_a_close(tmp_path: Path) -> None:
    trace = open_trace(tmp_path)
    trace.record(NOW, NodeStarted())
    trace.flush()
    (hidden,) = tmp_path.iterdir()
    assert hidden.name.startswith(".")
    assert hidden.read_bytes().endswith(b"}\n")
    trace.close()
    (line,) = read(tmp_path)
    assert line.envelope.seq == 1
    assert line.envelope.wall_ns == 2_000_000_000


def test_what_a_kill_left_open_the_next_life_closes(tmp_path: Path) -> None:
    killed = open_trace(tmp_path)
    killed.record(NOW, NodeStarted())
    killed.flush()
    later = open_trace(tmp_path, incarnation=2)
    later.record(NOW, NodeStarted())
    later.close()
    assert [line.envelope.incarnation for line in read(tmp_path)] == [1, 2]


def test_full_segments_are_closed_and_numbers_go_on(tmp_path: Path) -> None:
    trace = open_trace(tmp_path, segment_bytes=500)
    for _ in range(20):
        trace.record(NOW, NodeStarted())
        trace.flush()
    trace.close()
    assert len(list(tmp_path.iterdir())) > 3
    assert [line.envelope.seq for line in read(tmp_path)] == list(range(1, 21))


def test_messages_are_written_at_their_level_only(tmp_path: Path) -> None:
    trace = open_trace(tmp_path)
    trace.record(NOW, RpcSent("Join", Cid(bytes(36)), peer(1), 3))
    trace.close()
    assert read(tmp_path) == []


def test_a_disk_that_takes_no_more_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = open_trace(tmp_path)
    trace.record(NOW, NodeStarted())

    def refuse(file: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(OSError, match="No space"):
        trace.flush()
