"""Ingest as a stream: batches, the end of a run, fewer files, a run read anew."""

import shutil
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from pulsarcast.cli.pipeline.ingest import command
from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.traces import (
    CompactResult,
    IncompatibleTablesError,
    Ingest,
    LandResult,
    compact,
    land,
    read_quarantine,
    read_segments,
    rebuild,
)
from pulsarcast.pipeline.traces.figures import Backlog, Figures
from pulsarcast.pipeline.traces.finishing import close_left_open
from pulsarcast.pipeline.traces.layout import OWN_BATCHES, Layout
from pulsarcast.pipeline.traces.segments import BLOCK_BYTES
from tests.pipeline.trace_files import lines, pack, read_by_duckdb, read_plainly, said, texts_of


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """Four nodes of two runs, two segments each."""
    folder = tmp_path / "traces"
    for run_id in ("one", "two"):
        for node in "ab":
            for number, seqs in enumerate((range(1, 6), range(6, 11))):
                name = f"{node}-0001-{number:06}.ndjson.zst"
                pack(folder / run_id / name, lines(seqs, run_id=run_id, node_id=node))
    return folder


def until(what: Callable[[], object], timeout_s: float = 100) -> None:
    end = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < end, "waited for too long"
        time.sleep(0.05)


def test_a_stream_lands_what_a_batch_lands_and_goes_on_where_it_was(
    spark: SparkSession, traces: Path, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    results: list[LandResult] = []
    size = next(traces.rglob("*.zst")).stat().st_size
    ingest = Ingest(
        spark,
        [traces / "one"],
        tables,
        batch_bytes=2 * size + 20,
        on_batch=lambda result, seconds: results.append(result),
    )
    landed = ingest.available_now()
    assert [(result.batch, result.segments) for result in results] == [(0, 2), (1, 2)]
    assert (landed.batches, landed.segments, landed.lines) == (2, 4, 20)

    # A batch run does not read again what the stream has, and the stream not what it has.
    assert land(spark, [traces / "one", traces / "two/a-0001-000000.ndjson.zst"], tables).lines == 5
    pack(traces / "one" / "c.ndjson", lines([1, 2], run_id="one", node_id="c"))
    landed = Ingest(spark, [traces / "one", traces / "two"], tables).available_now()
    assert (landed.batches, landed.segments, landed.lines, landed.duplicates) == (1, 4, 17, 0)
    assert said(read_by_duckdb(tables)) == read_plainly(traces)

    with pytest.raises(IncompatibleTablesError, match=f"also reads from {traces / 'two'}"):
        Ingest(spark, [traces / "one"], tables).available_now()
    checkpoint = tables / "checkpoint"
    checkpoint.rename(tmp_path / "checkpoint")
    with pytest.raises(IncompatibleTablesError, match="knows nothing"):
        Ingest(spark, [traces / "one", traces / "two"], tables).available_now()
    (tmp_path / "checkpoint").rename(checkpoint)
    shutil.rmtree(tables / "segments" / "batch=000000000002")
    with pytest.raises(IncompatibleTablesError, match="has no batch 2"):
        Ingest(spark, [traces / "one", traces / "two"], tables).available_now()


def test_a_run_is_followed_to_its_end_and_its_figures_with_it(
    spark: SparkSession, traces: Path, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    ingest = Ingest(spark, [traces], tables, interval_s=0.1)
    backlog = Backlog(spark, ingest.layout, ingest.folders)
    figures = Figures(backlog)
    ingest.on_batch = figures.add
    assert backlog.look()[0] == 8
    stop = threading.Event()
    thread = threading.Thread(
        target=lambda: ingest.continuously(stop, finish=True), name="ingest", daemon=True
    )
    with figures.served(0, "127.0.0.1") as port:
        thread.start()
        until(lambda: ingest.landed.segments == 8)
        pack(traces / "late.ndjson", lines([1], node_id="late") + b"broken\n")
        (traces / ".killed-0001-000000.ndjson").write_bytes(lines([1, 2], node_id="k") + b"{")
        until(lambda: ingest.landed.segments == 9)
        assert backlog.look() == (0, 0)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
    stop.set()
    thread.join(100)
    assert not thread.is_alive()
    # The writer that was killed will not come back: its whole lines count.
    assert (ingest.landed.segments, ingest.landed.closed, ingest.landed.lines) == (10, 1, 43)
    assert said(read_by_duckdb(tables)).total() == 43
    reasons = {row.reason for row in read_quarantine(spark, tables).collect()}
    assert reasons == {
        "no JSON: JSON is malformed: invalid character (byte 0)",
        "the last line has no end",
    }
    assert "pulsarcast_ingest_lines_total 41.0" in text
    assert "pulsarcast_ingest_quarantined_total 1.0" in text
    assert "pulsarcast_ingest_backlog_segments 0.0" in text
    assert "pulsarcast_ingest_batch_seconds_count 2.0" in text
    assert "pulsarcast_ingest_lines_per_second " in text


def test_a_batch_that_is_done_again_after_a_rebuild_keeps_the_other_runs_of_a_segment(
    spark: SparkSession, tmp_path: Path
) -> None:
    traces, tables = tmp_path / "traces", tmp_path / "tables"
    pack(traces / "both.ndjson", lines([1, 2], run_id="one") + lines([1, 2, 3], run_id="two"))
    Ingest(spark, [traces], tables).available_now()
    rebuild(spark, [traces], tables, "one")
    for name in ("0", ".0.crc"):
        (tables / "checkpoint/commits" / name).unlink()
    Ingest(spark, [traces], tables).available_now()
    assert said(read_by_duckdb(tables)) == read_plainly(traces)


def test_a_run_is_not_rebuilt_while_a_batch_has_to_be_done_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    traces, tables = tmp_path / "traces", tmp_path / "tables"
    pack(traces / "both.ndjson", lines([1], run_id="one") + b"?\n" + lines([1], run_id="two"))
    Ingest(spark, [traces], tables).available_now()
    for name in ("0", ".0.crc"):
        (tables / "checkpoint/commits" / name).unlink()
    # The batch and the rebuilt run would both have what is no line of their segment.
    with pytest.raises(LocalError, match="was cut short"):
        rebuild(spark, [traces], tables, "one")
    Ingest(spark, [traces], tables).available_now()
    rebuild(spark, [traces], tables, "one")
    assert [row.text for row in read_quarantine(spark, tables).collect()] == ["?"]
    assert read_segments(spark, tables).where("run_id is null").count() == 1


def test_a_batch_that_is_done_again_is_behind_until_then(
    spark: SparkSession, traces: Path, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    Ingest(spark, [traces], tables).available_now()
    for name in ("0", ".0.crc"):
        (tables / "checkpoint/commits" / name).unlink()
    again = Ingest(spark, [traces], tables)
    backlog = Backlog(spark, again.layout, again.folders)
    again.on_batch = Figures(backlog).add
    assert backlog.look()[0] == 8
    again.available_now()
    pack(traces / "late.ndjson", lines([1], node_id="late"))
    assert backlog.look()[0] == 1


def test_a_folder_may_be_named_by_one_above_it(
    spark: SparkSession, traces: Path, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    Ingest(spark, [traces / "one"], tables).available_now()
    landed = Ingest(spark, [traces], tables).available_now()
    assert (landed.segments, landed.lines, landed.duplicates) == (4, 20, 0)
    assert said(read_by_duckdb(tables)) == read_plainly(traces)
    with pytest.raises(IncompatibleTablesError, match=f"also reads from {traces}: name it too"):
        Ingest(spark, [traces / "one", traces / "two"], tables).available_now()


def test_what_killed_writers_left_open_is_closed_once(tmp_path: Path) -> None:
    finished = tmp_path / ".a-0001-000000.ndjson"
    finished.write_bytes(lines([1, 2]) + b'{"ha')
    (tmp_path / "b-0001-000000.ndjson.zst").touch()
    twice = pack(tmp_path / "c-0001-000000.ndjson.zst", lines([3]))
    (tmp_path / ".c-0001-000000.ndjson").write_bytes(lines([3]))
    assert close_left_open([tmp_path]) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a-0001-000000.ndjson.zst",
        "b-0001-000000.ndjson.zst",
        "c-0001-000000.ndjson.zst",
    ]
    assert texts_of(tmp_path / "a-0001-000000.ndjson.zst")[2] == '{"ha'
    (tmp_path / ".c-0001-000000.ndjson").write_bytes(lines([4]))
    with pytest.raises(LocalError, match="differ"):
        close_left_open([tmp_path])
    assert texts_of(twice) == lines([3]).decode().splitlines()


def test_a_full_segment_whose_writer_was_killed_while_closing_it_is_closed(tmp_path: Path) -> None:
    text = 100 * lines(range(1, 1000))
    assert len(text) > 2 * BLOCK_BYTES
    closed = pack(tmp_path / "a-0001-000000.ndjson.zst", text)
    (tmp_path / ".a-0001-000000.ndjson").write_bytes(text)
    assert close_left_open([tmp_path]) == 0
    assert list(tmp_path.iterdir()) == [closed]


def test_a_segment_that_still_grows_is_not_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ".a-0001-000000.ndjson"
    path.write_bytes(lines([1]))
    monkeypatch.setattr(time, "sleep", lambda seconds: path.write_bytes(lines([1, 2])))
    with pytest.raises(LocalError, match="still being written"):
        close_left_open([tmp_path])
    assert path.exists()


# Later changes


def test_compaction_makes_few_files_of_many_and_loses_no_row(
    spark: SparkSession, traces: Path, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    size = next(traces.rglob("*.zst")).stat().st_size
    Ingest(spark, [traces], tables, batch_bytes=3 * size).available_now()
    before = read_by_duckdb(tables)
    index = sorted(read_segments(spark, tables).drop("task").collect(), key=str)
    # Spark may have to do the last batch again: it keeps its folders.
    for name in ("2", ".2.crc"):
        (tables / "checkpoint/commits" / name).unlink()
    result = compact(spark, tables)
    layout = Layout(tables)
    assert layout.batches() == [2, OWN_BATCHES]
    assert result.batches == 2
    assert result.files_after < result.files_before
    assert len(list(layout.table("lines").rglob("*.parquet"))) < result.files_before
    assert said(read_by_duckdb(tables)) == said(before) == read_plainly(traces)
    assert sorted(read_segments(spark, tables).drop("task").collect(), key=str) == index
    landed = Ingest(spark, [traces], tables).available_now()
    assert (landed.batches, landed.segments) == (1, 2)
    assert said(read_by_duckdb(tables)) == read_plainly(traces)
    # Now the last one, too; then there is nothing left to do.
    assert compact(spark, tables).batches == 2
    assert layout.batches() == [OWN_BATCHES + 1]
    assert compact(spark, tables) == CompactResult(0, 2 * 6 + 1, 2 * 6 + 1)
    assert said(read_by_duckdb(tables)) == read_plainly(traces)
    assert Ingest(spark, [traces], tables).available_now().batches == 0


def test_a_rebuilt_run_takes_its_own_place_and_no_other(
    spark: SparkSession, traces: Path, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    repaired = traces / "two" / "b-0001-000001.ndjson.zst"
    good = repaired.read_bytes()
    repaired.write_bytes(good[: len(good) // 2])
    mixed = lines([1], run_id="one", node_id="m") + lines([1], run_id="two", node_id="m") + b"?\n"
    pack(traces / "mixed.ndjson", mixed)
    land(spark, [traces / "one"], tables)
    Ingest(spark, [traces], tables).available_now()
    assert read_quarantine(spark, tables).count() == 2

    repaired.write_bytes(good)
    before = {path.name for path in (tables / ".generations").iterdir()}
    result = rebuild(spark, [traces], tables, "two")
    assert (result.segments, result.lines, result.quarantined) == (5, 21, 1)
    (traces / "mixed.ndjson").write_bytes(mixed[: -len(b"?\n")])
    assert said(read_by_duckdb(tables)) == read_plainly(traces)
    assert [row.text for row in read_quarantine(spark, tables).collect()] == ["?"]
    index = read_segments(spark, tables)
    assert index.where("run_id is null").count() == 9
    assert index.agg({"lines": "sum"}).first() == (41 + 1,)
    # Those who read the generation before can go on.
    assert before < {path.name for path in (tables / ".generations").iterdir()}
    assert Ingest(spark, [traces], tables).available_now().batches == 0

    with pytest.raises(LocalError, match="no run three"):
        rebuild(spark, [traces], tables, "three")
    with pytest.raises(LocalError, match="name its folder too"):
        rebuild(spark, [traces / "one"], tables, "two")
    assert said(read_by_duckdb(tables)) == read_plainly(traces)


# The command


def test_the_command_says_what_it_did(
    spark: SparkSession, traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def session(name: str, *, master: str | None, inputs: Iterable[str]) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("pulsarcast.pipeline.session.session", session)
    tables = str(tmp_path / "tables")
    run = CliRunner().invoke(command, [str(traces), "--out", tables, "--finish", "--compact"])
    assert run.output.splitlines()[:2] == [
        f"{tables}: 40 lines of 8 segments in 1 batches",
        "  quarantined   0",
    ]
    assert run.exit_code == 0
    run = CliRunner().invoke(command, [str(traces / "none"), "--out", tables])
    assert (run.exit_code, run.output) == (1, f"pulsarcast: there is no folder {traces / 'none'}\n")
    run = CliRunner().invoke(
        command, [str(traces), "--out", tables, "--continuous", "--rebuild", "x"]
    )
    assert run.exit_code == 2
