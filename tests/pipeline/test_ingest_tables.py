"""Traces into tables in one batch: every line once, whatever engine reads them."""

import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pulsarcast.model.errors import LocalError
from pulsarcast.model.trace import SCHEMA_VERSION, NodeStopped
from pulsarcast.pipeline import schema
from pulsarcast.pipeline.traces import (
    IncompatibleTablesError,
    LandResult,
    arrow,
    is_tables,
    land,
    open_lines,
    read_lines,
    read_quarantine,
    read_segments,
)
from pulsarcast.pipeline.traces.layout import FORMAT, OWN_BATCHES, Layout
from pulsarcast.pipeline.traces.writing import INDEX, SEGMENTS
from pulsarcast.simulation.options import load
from pulsarcast.simulation.scenario import run_scenario
from tests.pipeline.trace_files import (
    line,
    lines,
    pack,
    plain,
    read_by_duckdb,
    read_plainly,
    rows_of,
    said,
    texts_of,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces of a run with churn and faults."""
    folder = tmp_path_factory.mktemp("traces") / "random"
    run_scenario(msgspec.structs.replace(load("random"), seed=1, trace=str(folder)))
    return folder


def test_arrow_and_spark_mean_the_same_columns(spark: SparkSession) -> None:
    for ddl, ours in (
        (schema.LINES, arrow.LINES),
        (schema.QUARANTINE, arrow.QUARANTINE),
        (SEGMENTS, INDEX),
    ):
        columns = StructType.fromDDL(ddl)
        assert isinstance(columns, StructType)
        assert to_arrow_schema(columns).equals(ours)


def test_every_line_of_a_run_is_there_once_for_every_engine(
    spark: SparkSession, run: Path, tmp_path: Path
) -> None:
    (run / ".open-0001-000000.ndjson").write_bytes(lines([1], node_id="open"))
    result = land(spark, [run], tmp_path / "tables")
    expected = read_plainly(run)
    packed = list(run.glob("[!.]*.zst"))
    assert result == LandResult(
        OWN_BATCHES,
        segments=len(packed),
        bytes=sum(path.stat().st_size for path in packed),
        lines=expected.total(),
    )
    rows = read_by_duckdb(tmp_path / "tables")
    assert said(rows) == expected
    table = read_lines(spark, tmp_path / "tables")
    assert table.schema == StructType.fromDDL(schema.LINES)
    assert said(rows_of(table)) == expected
    # Where a line came from is right, too.
    for row in rows[::100]:
        fields = json.loads(texts_of(Path(row["segment"]))[row["line_number"] - 1])
        assert (row["node_id"], row["seq"]) == (fields["node_id"], fields["seq"])


def test_raw_traces_are_read_as_if_they_were_tables(
    spark: SparkSession, run: Path, tmp_path: Path
) -> None:
    assert not is_tables(run)
    with open_lines(spark, run) as raw:
        expected = said(rows_of(raw))
    assert expected == read_plainly(run)
    land(spark, [run], tmp_path)
    assert is_tables(tmp_path)
    with open_lines(spark, tmp_path) as landed:
        assert said(rows_of(landed)) == expected


def test_what_is_no_line_is_counted_and_two_versions_land_together(
    spark: SparkSession, tmp_path: Path
) -> None:
    traces = tmp_path / "traces"
    cut = pack(traces / "deep" / "er" / "cut.ndjson.zst", lines(range(1, 5), node_id="cut"))
    cut.write_bytes(cut.read_bytes()[:-3])
    pack(traces / "half.ndjson", lines([1, 2], node_id="half") + b'{"schema_ver')
    pack(traces / "broken.ndjson.zst", b"\n[]\n" + lines([1], node_id="broken") + b"{}\n")
    old = line(1, NodeStopped("old"), node_id="mixed", version=1)
    new = line(3, NodeStopped("new"), node_id="mixed", version=SCHEMA_VERSION + 1)
    pack(traces / "mixed.ndjson", old + line(2, NodeStopped("now"), node_id="mixed") + new)
    pack(traces / "run_id=x/a b%2F.ndjson", lines([1], node_id="odd", run_id="7/a=b %"))
    pack(traces / "result.json", b"{}")

    result = land(spark, [traces], tmp_path / "tables")
    assert (result.segments, result.lines, result.unknown, result.quarantined) == (5, 7, 1, 5)
    quarantined = {
        (Path(row.segment).name, row.line_number): (row.reason, row.text)
        for row in read_quarantine(spark, tmp_path / "tables").collect()
    }
    assert quarantined.pop(("cut.ndjson.zst", 1)) == ("the segment is cut off", "")
    assert quarantined.pop(("half.ndjson", 3)) == ("the last line has no end", '{"schema_ver')
    assert {key: reason for key, (reason, _) in quarantined.items()} == {
        ("broken.ndjson.zst", 1): "no JSON: Input data was truncated",
        ("broken.ndjson.zst", 2): "no JSON object",
        ("broken.ndjson.zst", 4): "wrong or missing: run_id",
    }
    rows = {(row["node_id"], row["seq"]): row for row in read_by_duckdb(tmp_path / "tables")}
    assert [rows["mixed", n]["schema_version"] for n in (1, 2, 3)] == [
        1,
        SCHEMA_VERSION,
        SCHEMA_VERSION + 1,
    ]
    assert [rows["mixed", n]["reason"] for n in (1, 2, 3)] == ["old", "now", None]
    assert rows["mixed", 3]["unknown"] == new.decode().rstrip()
    # A name that needs escaping is the same for every engine.
    assert rows["odd", 1]["run_id"] == "7/a=b %"
    (row,) = read_lines(spark, tmp_path / "tables").where("node_id = 'odd'").collect()
    assert row.run_id == "7/a=b %"
    assert row.segment == str(traces / "run_id=x/a b%2F.ndjson")


# Duplicates


def test_a_line_that_is_there_twice_lands_once_and_a_contradiction_is_shown(
    spark: SparkSession, tmp_path: Path
) -> None:
    first, second, tables = tmp_path / "first", tmp_path / "second", tmp_path / "tables"
    pack(first / "a-1.ndjson", lines(range(1, 11)))
    pack(first / "a-2.ndjson", lines(range(8, 15)))  # three lines again
    pack(first / "b.ndjson", lines([1, 2, 2, 3], node_id="b"))
    lie = line(2, NodeStopped("a lie"), node_id="c")
    pack(first / "c.ndjson", lines([1, 2], node_id="c") + lie + lie + lines([3], node_id="c"))
    pack(first / "d.ndjson", lines(range(1, 5), node_id="d"))  # nothing wrong with this one
    result = land(spark, [first], tables)
    assert (result.lines, result.duplicates, result.quarantined) == (14 + 3 + 3 + 4, 3 + 1, 2)

    # The next batch is held against this one; only what is new, or contradicts, is taken.
    pack(second / "again.ndjson", lines(range(12, 20)) + lines([5], node_id="d"))
    pack(second / "lie.ndjson", line(4, NodeStopped("a lie"), node_id="d") + line(9, node_id="e"))
    result = land(spark, [second], tables)
    assert (result.batch, result.segments) == (OWN_BATCHES + 1, 2)
    assert (result.lines, result.duplicates, result.quarantined) == (5 + 1 + 1, 3, 1)

    lies = {text for text in read_plainly(first, second) if "a lie" in text}
    assert len(lies) == 2
    expected = Counter(read_plainly(first, second).keys() - lies)
    assert said(read_by_duckdb(tables)) == expected
    shown = read_quarantine(spark, tables).orderBy("segment", "line_number").collect()
    assert [(Path(row.segment).name, row.line_number) for row in shown] == [
        ("c.ndjson", 3),
        ("c.ndjson", 4),
        ("lie.ndjson", 1),
    ]
    assert {row.reason for row in shown} == {"same seq, other content"}
    assert all('"reason":"a lie"' in row.text for row in shown)
    sums = read_segments(spark, tables).groupBy().sum("lines", "quarantined", "duplicates")
    assert sums.collect() == [(expected.total(), 3, 4 + 3)]


def test_segments_that_the_tables_have_are_not_read_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    traces, tables = tmp_path / "traces", tmp_path / "tables"
    path = pack(traces / "a.ndjson", lines([1, 2]))
    land(spark, [traces], tables)
    path.write_bytes(b"never looked at")
    pack(traces / "b.ndjson", lines([3]))
    result = land(spark, [traces, traces / "."], tables)
    assert (result.segments, result.lines, result.duplicates) == (1, 1, 0)
    assert said(read_by_duckdb(tables)) == Counter(plain(json.loads(line(n))) for n in (1, 2, 3))


# Folders


def test_a_change_that_does_not_fit_is_named(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.create()
    notes = layout.notes()

    def change(**changes: object) -> str:
        (tmp_path / ".format.json").write_text(json.dumps(notes | changes))
        with pytest.raises(IncompatibleTablesError, match="another folder") as caught:
            layout.create()
        return str(caught.value)

    assert f"format 0, this version writes {FORMAT}" in change(format=0)
    columns = dict(notes["columns"])
    assert "hops is new" in change(columns={k: v for k, v in columns.items() if k != "hops"})
    assert "more is gone" in change(columns={**columns, "more": "string"})
    assert "hops was string and is bigint" in change(columns={**columns, "hops": "string"})


def test_a_folder_that_holds_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(LocalError, match=r"thesis\.txt"):
        Layout(tmp_path).create()
    with pytest.raises(LocalError, match="no folder of tables"):
        Layout(tmp_path).check()
    with pytest.raises(LocalError, match="all executors"):
        Layout("hdfs://somewhere/tables")


def test_a_folder_that_was_half_made_is_made_again(tmp_path: Path) -> None:
    (tmp_path / ".current.new").symlink_to(".generations/000001")
    Layout(tmp_path).create()
    assert Layout(tmp_path).batches() == []


def test_two_cannot_make_a_folder_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Layout._make_generation

    def make_and_meet_another(layout: Layout, number: int) -> Path:
        monkeypatch.setattr(Layout, "_make_generation", make)
        with pytest.raises(LocalError, match="another ingest"), Layout(tmp_path).writing():
            pass
        return make(layout, number)

    monkeypatch.setattr(Layout, "_make_generation", make_and_meet_another)
    with Layout(tmp_path).writing():
        assert Layout(tmp_path).exists


def test_two_cannot_write_at_once(tmp_path: Path) -> None:
    with (
        Layout(tmp_path).writing(),
        pytest.raises(LocalError, match="another ingest"),
        Layout(tmp_path).writing(),
    ):
        pass
    with Layout(tmp_path).writing():
        pass


def test_what_a_crash_left_half_done_is_cleared_away(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with layout.writing():
        pass
    for place in ("lines/batch=000000000000", "quarantine/batch=000000000001", ".staging/x"):
        (tmp_path / place / "below").mkdir(parents=True)
    (tmp_path / "segments/batch=000000000001").mkdir()
    (tmp_path / ".generations/000002/lines").mkdir(parents=True)
    with layout.writing():
        assert list(layout.table("lines").iterdir()) == []
        assert [path.name for path in layout.table("quarantine").iterdir()] == [
            "batch=000000000001"
        ]
        assert [path.name for path in (tmp_path / ".generations").iterdir()] == ["000001"]


def test_a_batch_replaces_exactly_its_own(tmp_path: Path) -> None:
    layout = Layout(tmp_path)

    def publish(batch: int, content: str, *tables: str) -> None:
        with layout.staging() as staged:
            for table in tables:
                (staged / table).mkdir()
                (staged / table / content).touch()
            layout.publish(batch, staged)

    with layout.writing():
        publish(0, "first", "lines", "quarantine", "segments")
        publish(1, "first", "lines", "quarantine", "segments")
        publish(1, "second", "lines", "segments")
    shown = sorted(
        f"{table}/{path.parent.name}/{path.name}"
        for table in ("lines", "quarantine", "segments")
        for path in layout.table(table).glob("*/*")
    )
    assert shown == [
        "lines/batch=000000000000/first",
        "lines/batch=000000000001/second",
        "quarantine/batch=000000000000/first",
        "segments/batch=000000000000/first",
        "segments/batch=000000000001/second",
    ]
