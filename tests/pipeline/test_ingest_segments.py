"""From the bytes of a segment to rows and rejects: no Spark is needed for that."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.events import Position
from pulsarcast.model.ids import cid_of
from pulsarcast.model.trace import (
    SCHEMA_VERSION,
    Delivered,
    Published,
    Resources,
    Subscribed,
    decode_line,
)
from pulsarcast.pipeline.traces import segments, writing
from pulsarcast.pipeline.traces.parsing import Reject, parse
from pulsarcast.pipeline.traces.segments import Segment
from pulsarcast.pipeline.traces.sorting import Life, Place, Sorter, Stretch
from tests.pipeline.trace_files import MARK, PEER, line, lines, pack


def whole_lines(segment: Segment) -> bytes:
    return b"".join(segment.blocks())


def look_at(text: bytes) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    """All rows of a text, in order, and the line numbers and reasons of its rejects."""
    rejects: list[Reject] = []
    rows: list[dict[str, Any]] = []
    for piece in parse(text, rejects):
        sorter = Sorter([Place("s", 1, text.count(b"\n"))], piece)
        for group in sorter.groups():
            rows += [
                row | {"run_id": group.run_id, "kind": group.kind} for row in group.rows.to_pylist()
            ]
        rejects += sorter.rejects
    rows.sort(key=lambda row: row["line_number"])
    return rows, sorted((reject.line + 1, reject.reason) for reject in rejects)


# Segments


def test_a_segment_is_its_lines(tmp_path: Path) -> None:
    text = lines(range(1, 200))
    for name in ("a.ndjson.zst", "a.ndjson"):
        segment = Segment(pack(tmp_path / name, text))
        assert whole_lines(segment) == text
        assert segment.fault is None
        assert segment.bytes == (tmp_path / name).stat().st_size


def test_a_segment_of_several_frames_is_read_to_its_end(tmp_path: Path) -> None:
    texts = [lines(range(1, 50)), lines(range(50, 60)), lines(range(60, 61))]
    path = tmp_path / "a.ndjson.zst"
    path.write_bytes(b"".join(zstandard.ZstdCompressor().compress(text) for text in texts))
    segment = Segment(path)
    assert whole_lines(segment) == b"".join(texts)
    assert segment.fault is None


def test_a_segment_cut_off_anywhere_yields_whole_lines_from_its_beginning(tmp_path: Path) -> None:
    text = b"".join(b'{"n":%d}\n' % (n * n * 7919 % 1_000_003) for n in range(80_000))
    packed = zstandard.ZstdCompressor().compress(text)
    path = tmp_path / "a.ndjson.zst"
    got = []
    for size in (*range(0, len(packed) - 1, len(packed) // 9), len(packed) - 1):
        path.write_bytes(packed[:size])
        segment = Segment(path)
        found = whole_lines(segment)
        assert text.startswith(found)
        assert found == b"" or found.endswith(b"\n")
        assert segment.fault == ("the segment is cut off" if size else "the segment is empty")
        assert text.startswith(found + segment.rest)
        got.append(len(found))
    assert got == sorted(got)
    assert got[-1] > 100_000


def test_a_damaged_segment_yields_the_lines_before_the_damage(tmp_path: Path) -> None:
    text = b"".join(b'{"n":%d}\n' % (n * n * 7919 % 1_000_003) for n in range(80_000))
    packed = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(text))
    packed[len(packed) * 3 // 4] ^= 0xFF
    path = tmp_path / "a.ndjson.zst"
    path.write_bytes(packed)
    segment = Segment(path)
    found = whole_lines(segment)
    assert segment.fault is not None
    assert segment.fault.startswith("damaged: ")
    assert len(found) > len(text) // 4
    assert found.endswith(b"\n")
    # The block that holds the damage may have been unpacked wrongly: what lies before it was not.
    assert found[: len(found) - 2 * 128 * 1024] == text[: len(found) - 2 * 128 * 1024]


def test_a_line_without_an_end_is_no_line(tmp_path: Path) -> None:
    segment = Segment(pack(tmp_path / "a.ndjson.zst", lines([1, 2]) + b'{"half'))
    assert whole_lines(segment) == lines([1, 2])
    assert (segment.fault, segment.rest) == ("the last line has no end", b'{"half')


def test_a_line_without_bounds_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(segments, "LINE_BYTES_MAX", 5000)
    text = lines([1, 2])
    segment = Segment(pack(tmp_path / "a.ndjson", text + b"x" * 10**6))
    assert whole_lines(segment) == text
    assert segment.fault is not None
    assert "longer than" in segment.fault
    assert len(segment.rest) < 10_000


# Lines


def test_every_field_of_a_line_becomes_a_column() -> None:
    topic = cid_of(b"topic")
    text = lines(range(1, 40)) + line(40, Subscribed(topic, (MARK, MARK)))
    text += line(
        41, Published(topic, topic, topic, PEER, PEER, 1, 2, (topic,), Position(3, 4), b"r")
    )
    rows, rejects = look_at(text)
    assert rejects == []
    for row, raw in zip(rows, text.splitlines(), strict=True):
        fields = json.loads(raw)
        if row.get("unknown"):
            assert json.loads(row["unknown"]) == fields
            fields = {name: value for name, value in fields.items() if name in row}
        assert {name: row[name] for name in fields} == fields


def changed(**fields: object) -> bytes:
    """A line that says something else in some fields; `...` takes a field out."""
    topic = cid_of(b"topic")
    record = Delivered(topic, topic, PEER, 1, 2, 3, 4)
    full = {**json.loads(line(5, record)), **fields}
    return json.dumps({k: v for k, v in full.items() if v is not ...}).encode() + b"\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"\n", "no JSON: "),
        (b"nonsense\n", "no JSON: "),
        (b"[1]\n", "no JSON object"),
        (b"null\n", "no JSON object"),
        (b"{}\n", "wrong or missing: run_id"),
        (changed()[:-10] + b"\n", "no JSON: "),
        (changed()[:-2] + b"\n", "no JSON: "),
        (changed().replace(b"\n", changed()), "no JSON: "),
        (changed(run_id=...), "wrong or missing: run_id"),
        (changed(seq=None), "wrong or missing: seq"),
        (changed(seq="5"), "wrong or missing: seq"),
        (changed(seq=5.0), "wrong or missing: seq"),
        (changed(seq=2**63), "wrong or missing: seq"),
        (changed(node_id=7), "wrong or missing: node_id"),
        (changed(schema_version=True), "wrong or missing: schema_version"),
        (changed(kind=..., seq=...), "wrong or missing: seq"),
        (changed(topic=7), "wrong: topic"),
        (changed(hops="4"), "wrong: hops"),
        (changed(hops=1e99), "wrong: hops"),
        (changed(redelivery=0), "wrong: redelivery"),
        (changed(hops=...), "missing: hops"),
        (changed(hops=None), "missing: hops"),
        (changed(redelivery=None), "missing: redelivery"),
        (changed(kind="published", parents=["a", 1]), "wrong: parents"),
        (changed(kind="subscribed", start=[{"publisher": "p"}]), "wrong: start"),
        (changed(kind="subscribed", start=[None]), "wrong: start"),
        (changed(kind="subscribed", start=7), "wrong: start"),
        (changed(run_id=""), "run_id names a folder"),
        (changed(run_id="a\nb"), "run_id names a folder"),
        (changed(run_id="é"), "run_id names a folder"),
        (changed(run_id="a" * 81), "run_id names a folder"),
        (changed(run_id="__HIVE_DEFAULT_PARTITION__"), "run_id names a folder"),
        (changed(kind=""), "kind names a folder"),
        (changed(kind="a/\0"), "kind names a folder"),
        (changed().replace(b'"seq": 5', b'"seq": 5, "seq": 6'), "not readable: "),
        (changed(node_id="X").replace(b"X", b"\xff"), "no JSON: "),
        (changed(node_id="X").replace(b"X", rb"\ud800"), "no"),
        (
            line(5, Resources(0.5, 1, 2, 3)).replace(b"0.5", b"NaN"),
            "wrong: cpu_s",
        ),
        (
            b" " + line(5, Resources(0.5, 1, 2, 3)).replace(b"0.5", b"9007199254740993"),
            "not readable: ",
        ),
        (b"[" * 100_000 + b"]" * 100_000 + b"\n", "no JSON: "),
    ],
)
def test_what_is_no_line_is_rejected_with_a_reason_and_its_neighbours_stay(
    text: bytes, reason: str
) -> None:
    before, after = lines(range(1, 5)), lines(range(6, 30))
    rows, rejects = look_at(before + text + after)
    ((number, found),) = rejects
    assert number == 5
    assert found.startswith(reason), found
    assert [row["seq"] for row in rows] == [*range(1, 5), *range(6, 30)]
    assert [row["line_number"] for row in rows] == [*range(1, 5), *range(6, 30)]


def test_the_text_of_a_reject_is_kept_whatever_it_is() -> None:
    rejects: list[Reject] = []
    assert list(parse(b"\xff\x00\n" + b"x" * 10**6 + b"\n", rejects)) == []
    assert rejects[0].text == "\\xff\x00"
    assert rejects[1].text == "x" * 65536


def test_white_space_around_a_line_does_no_harm() -> None:
    text = changed().replace(b"\n", b" \r\n")
    rows, rejects = look_at(text + b" " + text)
    assert rejects == []
    assert [row["hops"] for row in rows] == [4, 4]


@pytest.mark.parametrize(
    "text",
    [
        changed(kind="from the future", topic=[7], hops="x"),
        changed(schema_version=SCHEMA_VERSION + 1, topic={"new": "form"}),
        changed(schema_version=SCHEMA_VERSION + 1),
        changed(schema_version=0),
    ],
)
def test_a_line_of_unknown_meaning_is_kept_as_text_and_its_fields_are_not_guessed(
    text: bytes,
) -> None:
    (before, row, after), rejects = look_at(lines([1]) + text + lines([6]))
    assert rejects == []
    assert row["unknown"].encode() + b"\n" == text
    assert row["kind"] == json.loads(text)["kind"]
    assert row["seq"] == 5
    assert row.keys().isdisjoint({"topic", "hops"})
    assert not before.get("unknown")
    assert after["seq"] == 6


def test_a_line_of_version_1_may_lack_what_came_with_version_2() -> None:
    (row,), rejects = look_at(changed(schema_version=1, redelivery=...))
    assert rejects == []
    assert row["redelivery"] is None
    _, ((_, reason),) = look_at(changed(schema_version=1, hops=...))
    assert reason == "missing: hops"


def test_a_field_of_another_kind_is_left_aside() -> None:
    (row,), rejects = look_at(changed(cpu_s=1.5, brand_new="x"))
    assert rejects == []
    assert row.keys().isdisjoint({"cpu_s", "brand_new"})
    assert decode_line(changed(cpu_s=1.5, brand_new="x")).envelope.seq == 5


some_line = st.one_of(
    st.integers(1, 50).map(line),
    st.sampled_from([b"\n", b"{}\n", b"{\n", b"}\n", b"[]\n", b" {}\n", b'{"seq":"x"}\n']),
    st.integers(1, 50).map(lambda seq: line(seq)[:-2] + b"\n"),
    st.integers(1, 50).map(lambda seq: line(seq)[:-1] + line(seq)),
    st.integers(1, 50).map(lambda seq: line(seq, version=9)),
    st.integers(1, 50).map(lambda seq: line(seq).replace(b'"kind"', b'"sort"')),
)


@given(st.lists(some_line, min_size=1, max_size=20))
def test_a_line_is_read_the_same_whoever_its_neighbours_are(texts: list[bytes]) -> None:
    rows, rejects = look_at(b"".join(texts))
    alone = [look_at(text) for text in texts]
    expected = [
        row | {"line_number": number} for number, (found, _) in enumerate(alone, 1) for row in found
    ]
    assert [_said(row) for row in rows] == [_said(row) for row in expected]
    assert rejects == [
        (number, reason) for number, (_, found) in enumerate(alone, 1) for _, reason in found
    ]


def _said(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


# Stretches of lives


def stretches(text: bytes, places: list[Place]) -> dict[Life, Stretch]:
    (piece,) = parse(text, [])
    sorter = Sorter(places, piece)
    assert list(sorter.groups())
    return dict(sorter.stretches())


def test_a_stretch_says_where_a_life_stands_in_each_segment() -> None:
    found = stretches(
        lines([1, 2, 4]) + lines([7], node_id="b") + lines([5, 5]) + lines([9], incarnation=2),
        [Place("x", 1, 4), Place("y", 11, 3)],
    )
    assert found == {
        Life("x", "run", "node", 1): Stretch(1, 4, 3, in_order=True),
        Life("x", "run", "b", 1): Stretch(7, 7, 1, in_order=True),
        Life("y", "run", "node", 1): Stretch(5, 5, 2, in_order=False),
        Life("y", "run", "node", 2): Stretch(9, 9, 1, in_order=True),
    }


def test_lives_that_take_turns_are_kept_apart() -> None:
    text = b"".join(line(n, node_id=node) for n in (1, 2, 3) for node in "ab")
    assert stretches(text, [Place("x", 1, 6)]) == {
        Life("x", "run", node, 1): Stretch(1, 3, 3, in_order=True) for node in "ab"
    }


@pytest.mark.parametrize(
    ("first", "then", "in_order"), [((1, 4), (5, 9), True), ((1, 5), (5, 9), False)]
)
def test_stretches_that_meet_are_in_order_only_if_they_do_not_overlap(
    first: tuple[int, int], then: tuple[int, int], in_order: bool
) -> None:
    joined = Stretch(*first, 4, in_order=True).then(Stretch(*then, 5, in_order=True))
    assert joined == Stretch(1, 9, 9, in_order=in_order)


# Files


def test_short_segments_are_read_together_and_each_line_knows_its_own(tmp_path: Path) -> None:
    names = [f"n{n}-0001-000000.ndjson.zst" for n in range(5)]
    for n, name in enumerate(names):
        pack(tmp_path / name, lines(range(1, n + 2), node_id=f"n{n}") + b"broken\n")
    index = land(tmp_path, tmp_path / "out")
    rows = read_lines(tmp_path / "out")
    assert {(Path(row["segment"]).name, row["line_number"], row["seq"]) for row in rows} == {
        (name, number, number) for n, name in enumerate(names) for number in range(1, n + 2)
    }
    rejected = pq.read_table(tmp_path / "out" / "quarantine").to_pylist()
    assert [(Path(row["segment"]).name, row["line_number"]) for row in rejected] == [
        (name, n + 2) for n, name in enumerate(names)
    ]
    assert [row["quarantined"] for row in index if "bytes" in row] == [1] * 5
    assert [row["lines"] for row in index if "lines" in row] == [1, 2, 3, 4, 5]


def test_memory_is_bounded_and_files_are_closed_when_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "BLOCK_BYTES", 2_000)
    monkeypatch.setattr(segments, "BLOCK_BYTES", 2_000)
    monkeypatch.setattr(writing, "BUFFER_BYTES", 5_000)
    monkeypatch.setattr(writing, "PART_BYTES", 2_000)
    monkeypatch.setattr(writing, "OPEN_FILES_MAX", 2)
    pack(tmp_path / "a.ndjson", lines(range(1, 500)))
    land(tmp_path, tmp_path / "out")
    assert sorted(row["seq"] for row in read_lines(tmp_path / "out")) == list(range(1, 500))
    assert len(list((tmp_path / "out").rglob("*.parquet"))) > 6


def test_a_name_that_cannot_be_a_folder_as_it_is_is_escaped_as_spark_does(tmp_path: Path) -> None:
    assert str(writing.lines_folder("a/b=c%", "d")) == "lines/run_id=a%2Fb%3Dc%25/kind=d"


def land(folder: Path, out: Path) -> list[dict[str, Any]]:
    with writing.Tables(out, "test") as tables:
        landing = writing.Landing(tables)
        for path in sorted(folder.glob("*.ndjson*")):
            landing.add(path)
        return list(landing.index())


def read_lines(out: Path) -> list[dict[str, Any]]:
    rows = [pq.ParquetFile(path).read() for path in (out / "lines").rglob("*.parquet")]
    return list(pa.concat_tables(rows).to_pylist())
