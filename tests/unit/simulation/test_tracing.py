"""Traces reach the disk in segments that are hidden while open, and whole once they are seen."""

from pathlib import Path

import pytest
import zstandard

from pulsarcast.model import trace
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import cid_of
from pulsarcast.model.trace import decode_line
from pulsarcast.protocol.inputs import Now
from pulsarcast.simulation import tracing
from pulsarcast.simulation.tracing import TraceWriter

TOPIC = cid_of(b"topic")


def writer(directory: Path, **options: object) -> TraceWriter:
    return TraceWriter(directory, "run", name_of=lambda index: f"node-{index}", **options)  # type: ignore[arg-type]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def lines(path: Path) -> list[bytes]:
    return zstandard.ZstdDecompressor().decompress(path.read_bytes()).splitlines()


def test_a_line_says_who_which_life_which_place_and_when(tmp_path: Path) -> None:
    with writer(tmp_path) as traces:
        traces.record(9.0, 3, 2, Now(1.5, 1_000_001), trace.Unsubscribed(TOPIC))
    (line,) = lines(tmp_path / "node-3-0002-000000.ndjson.zst")
    envelope, record = decode_line(line)
    assert envelope == trace.Envelope("run", "node-3", 2, 1, 1_000_001_000, 1_500_000_000)
    assert record == trace.Unsubscribed(TOPIC)


def test_places_are_gapless_per_life_and_a_new_life_begins_a_new_segment(tmp_path: Path) -> None:
    with writer(tmp_path) as traces:
        for incarnation in (1, 1, 1, 2, 2):
            traces.record(0.0, 0, incarnation, Now(0.0, 0), trace.NodeStarted())
    found = {
        path.name: [decode_line(line).envelope.seq for line in lines(path)]
        for path in sorted(tmp_path.iterdir())
    }
    assert found == {
        "node-0-0001-000000.ndjson.zst": [1, 2, 3],
        "node-0-0002-000000.ndjson.zst": [1, 2],
    }


def test_an_open_segment_has_a_hidden_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "BUFFER_BYTES", 1)
    traces = writer(tmp_path)
    traces.record(0.0, 0, 1, Now(0.0, 0), trace.NodeStarted())
    assert names(tmp_path) == [".node-0-0001-000000.ndjson"]
    traces.close()
    assert names(tmp_path) == ["node-0-0001-000000.ndjson.zst"]


def test_a_long_trace_comes_in_several_segments_and_no_line_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "BUFFER_BYTES", 500)
    with writer(tmp_path, segment_bytes=2_000) as traces:
        for _ in range(100):
            traces.record(0.0, 0, 1, Now(0.0, 0), trace.Unsubscribed(TOPIC))
    segments = sorted(tmp_path.iterdir())
    assert len(segments) > 3
    seqs = [decode_line(line).envelope.seq for path in segments for line in lines(path)]
    assert seqs == list(range(1, 101))


def test_a_driver_that_is_no_peer_writes_its_own_trace(tmp_path: Path) -> None:
    with writer(tmp_path) as traces:
        traces.write("driver", 1, Now(0.0, 0), trace.Fault("kill", "node-1"))
    assert names(tmp_path) == ["driver-0001-000000.ndjson.zst"]


def test_messages_are_left_out_below_level_rpc(tmp_path: Path) -> None:
    record = trace.RpcSent("Join", TOPIC, Identity.from_seed(bytes(32)).peer_id, 1)
    with writer(tmp_path / "less") as traces:
        traces.record(0.0, 0, 1, Now(0.0, 0), record)
    assert names(tmp_path / "less") == []
    with writer(tmp_path / "all", level="rpc") as traces:
        traces.record(0.0, 0, 1, Now(0.0, 0), record)
    assert len(names(tmp_path / "all")) == 1


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with writer(tmp_path / name) as traces:
            for number in range(100):
                traces.record(0.0, number % 3, 1, Now(0.1 * number, 0), trace.NodeStarted())
    assert names(tmp_path / "a") == names(tmp_path / "b")
    for name in names(tmp_path / "a"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_what_a_run_left_that_was_broken_off_is_not_taken_into_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "BUFFER_BYTES", 1)
    broken_off = writer(tmp_path)
    for _ in range(3):
        broken_off.record(0.0, 0, 1, Now(0.0, 0), trace.NodeStarted())
    with writer(tmp_path) as traces:
        for _ in range(2):
            traces.record(0.0, 0, 1, Now(0.0, 0), trace.NodeStarted())
    assert len(lines(tmp_path / "node-0-0001-000000.ndjson.zst")) == 2
