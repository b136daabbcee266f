import os
from pathlib import Path

import pytest
import trio
import zstandard

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import Cid
from pulsarcast.model.trace import Line, NodeStarted, Resources, RpcSent, decode_line
from pulsarcast.network import driver
from pulsarcast.network.node import Node
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


@pytest.mark.parametrize("crashes", [False, True])
def test_a_node_that_is_cancelled_or_crashes_closes_its_trace(
    tmp_path: Path, crashes: bool
) -> None:
    async def crash() -> None:
        raise RuntimeError("a crash")

    async def scene() -> None:
        with trio.fail_after(20), trio.CancelScope() as scope:
            async with Node.open(tmp_path / "ann", trace_level="delivery") as ann:
                nursery = ann._running.neighbours._nursery
                assert nursery is not None
                if crashes:
                    nursery.start_soon(crash)
                else:
                    scope.cancel()
                await trio.sleep_forever()

    if crashes:
        with pytest.raises(ExceptionGroup) as raised:
            trio.run(scene)
        assert raised.group_contains(RuntimeError, match="a crash")
    else:
        trio.run(scene)
    traces = tmp_path / "ann" / "traces"
    assert {path.suffix for path in traces.iterdir()} == {".zst"}
    assert isinstance(read(traces)[0].record, NodeStarted)


def test_a_node_whose_trace_finds_no_room_says_so_and_ends_in_good_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(file: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    async def scene() -> None:
        async with Node.open(tmp_path / "ann", trace_level="delivery") as ann:
            monkeypatch.setattr(os, "write", refuse)
            with pytest.raises(LocalError, match=r"the trace: .*No space"):
                await ann.create_topic("weather")
            assert ann.halted is not None

    trio.run(scene)
    assert "No space left on device" in caplog.text
    monkeypatch.undo()
    traces = tmp_path / "ann" / "traces"
    assert isinstance(read(traces)[0].record, NodeStarted), "what was written is kept"
    assert {path.suffix for path in traces.iterdir()} == {".zst"}


@pytest.mark.parametrize("trace_level", [None, "delivery"])
@pytest.mark.parametrize("has_proc", [True, False])
def test_where_nothing_says_what_a_process_uses_a_node_lives_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trace_level: str | None, has_proc: bool
) -> None:
    asked: list[str] = []

    def look(path: str, encoding: str) -> object:
        asked.append(path)
        if not has_proc:
            raise FileNotFoundError(path)
        return open(path, encoding=encoding)  # noqa: PTH123 (as it is called there)

    monkeypatch.setattr(driver, "open", look, raising=False)
    monkeypatch.setattr(driver, "SAMPLE_S", 0.01)

    async def scene() -> None:
        async with Node.open(tmp_path / "ann", trace_level=trace_level) as ann:
            await trio.sleep(0.2)
            await ann.create_topic("weather")

    trio.run(scene)
    if trace_level is None:
        assert not asked
        return
    samples = [
        line.record
        for line in read(tmp_path / "ann" / "traces")
        if isinstance(line.record, Resources)
    ]
    assert bool(samples) == has_proc
    assert all(sample.rss_bytes > 0 for sample in samples)
