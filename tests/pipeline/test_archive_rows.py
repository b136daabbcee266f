"""What is found in rows that somebody changed: exactly these, whatever the change. No Spark."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulsarcast.model import events
from pulsarcast.model.events import decode_event, publish_own
from pulsarcast.model.ids import cid_of, cid_text, peer_text
from pulsarcast.pipeline.archive.continuity import Stretch, flaws_of
from pulsarcast.pipeline.archive.inspecting import inspect_group
from pulsarcast.pipeline.archive.places import misplaced, repeated, stretches
from pulsarcast.pipeline.archive.rows import JUDGED
from pulsarcast.pipeline.archive.writing import FILE
from tests.pipeline.archive_jobs import (
    BEN,
    EVE,
    NAME,
    TOPIC,
    make_events,
    table_of,
    tamper,
    write_file,
)

MADE = make_events(60)
ROWS = table_of(MADE)
OTHER = {
    "topic_name": "news",
    "event_id": cid_text(cid_of(b"another")),
    "version": cid_text(cid_of(b"another")),
    "publisher": peer_text(EVE.peer_id),
    "author": peer_text(BEN.peer_id),
    "sequence": {"epoch": 9, "number": 1000},
    "parents": [],
    "name": "another",
    "payload": b"another",
    "attributes": [("count", {"bool": None, "int": 1, "float": None, "text": None, "bytes": None})],
    "created": 0,
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.parquet"
    write_file(path, ROWS, len(ROWS))
    return path


def wrong(file: Path, *, is_whole: bool = True) -> dict[int | None, str]:
    """What is found, by offset."""
    rows = pq.read_metadata(file).num_rows
    start = 1 if rows == 60 and is_whole else None
    found = list(inspect_group(cid_text(TOPIC), str(file), 0, 1, 60, rows, start))
    return {row["offset"]: row["reason"] for row in found if row["kind"] == "wrong"}


def test_a_group_without_rows_is_found_and_ends_nothing(tmp_path: Path) -> None:
    """Whoever tampers with an archive must not keep the rest of it from being verified."""
    path = tmp_path / "none.parquet"
    with pq.ParquetWriter(path, FILE) as writer:
        writer.write_table(FILE.empty_table())
    found = list(inspect_group(cid_text(TOPIC), str(path), 0, 1, 60, 0, None))
    assert ("wrong", "they are none") in {
        (row["kind"], row.get("reason", "")[-13:]) for row in found
    }


def change(at: int, **values: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda rows: rows[at].update(values)


def test_nothing_is_found_where_nothing_was_changed(file: Path) -> None:
    assert wrong(file) == {}
    (group,) = (
        row
        for row in inspect_group(cid_text(TOPIC), str(file), 0, 1, 60, 60, 1)
        if row["kind"] == "group"
    )
    assert (group["rows"], group["wrong"], group["back"], group["reason"]) == (60, 0, 0, NAME)


def test_every_column_but_the_nodes_own_is_judged() -> None:
    assert set(FILE.names) == {*JUDGED, "offset", "received", "topic_name", "block"}
    assert set(OTHER) == {*JUDGED, "topic_name"}


@pytest.mark.parametrize("column", OTHER)
def test_a_changed_column_is_found(column: str, file: Path) -> None:
    tamper(file, change(20, **{column: OTHER[column]}))
    assert list(wrong(file)) == [21]
    assert column in wrong(file)[21]


@pytest.mark.parametrize("column", [*OTHER, "block", "received", "offset"])
def test_a_missing_value_is_found(column: str, file: Path) -> None:
    tamper(file, change(20, **{column: None}))
    assert list(wrong(file)) == [None if column == "offset" else 21]


def test_a_zero_with_another_sign_is_found(file: Path) -> None:
    def negate(rows: list[dict[str, Any]]) -> None:
        found = dict(rows[20]["attributes"])
        assert found["zero"]["float"] == 0.0
        found["zero"]["float"] = -0.0
        rows[20]["attributes"] = list(found.items())

    tamper(file, negate)
    assert wrong(file) == {21: "attributes is not what the block says"}


@pytest.mark.parametrize("bit", [0, 9, 300, 777, -600, -80, -1])
def test_a_flipped_bit_in_a_block_is_found(bit: int, file: Path) -> None:
    def flip(rows: list[dict[str, Any]]) -> None:
        block = bytearray(rows[20]["block"])
        block[bit // 8] ^= 1 << bit % 8
        rows[20]["block"] = bytes(block)

    tamper(file, flip)
    assert list(wrong(file)) == [21]


def test_every_signature_is_looked_at(file: Path) -> None:
    """A wrong signature in a block whose columns are all made anew, so nothing else can tell."""
    for at, event in enumerate(MADE[:20]):
        for signature in filter(None, (event.signature, event.author_signature)):
            place = event.block.index(signature) + 7
            block = bytearray(event.block)
            block[place] ^= 1
            spoilt = events.read_own_event(bytes(block))
            write_file(file, table_of([*MADE[:at], spoilt, *MADE[at + 1 :]]), 60)
            assert list(wrong(file)) == [at + 1]
            assert "signature is wrong" in wrong(file)[at + 1]


def test_an_event_signed_anew_by_another_is_found(file: Path) -> None:
    event = MADE[21]
    forged = publish_own(
        EVE,
        topic=TOPIC,
        version=event.version,
        payload=event.payload,
        name=event.name,
        attributes=event.request.attributes,
        created=event.request.created,
        nonce=event.request.nonce,
        sequence=event.sequence,
        parents=event.parents,
    )
    assert decode_event(forged.block).author == EVE.peer_id
    tamper(file, change(21, block=forged.block))
    assert list(wrong(file)) == [22]
    assert "event_id, publisher, author" in wrong(file)[22]


def test_an_event_of_another_topic_is_found(file: Path) -> None:
    stranger = make_events(21, topic=cid_of(b"another topic"))[20]
    rows = table_of([stranger], first=21).to_pylist()
    tamper(file, lambda listed: listed[20].update(rows[0]))
    assert list(wrong(file)) == [21]
    assert "is an event of topic" in wrong(file)[21]


def test_exchanged_ids_are_found(file: Path) -> None:
    def exchange(rows: list[dict[str, Any]]) -> None:
        rows[4]["event_id"], rows[40]["event_id"] = rows[40]["event_id"], rows[4]["event_id"]

    tamper(file, exchange)
    assert set(wrong(file)) == {5, 41}


@pytest.mark.parametrize("to", [59, 61, 5000, -5, 1])
def test_a_changed_offset_is_found(to: int, file: Path) -> None:
    tamper(file, change(59, offset=to))
    assert set(wrong(file)) == {to}


@pytest.mark.parametrize("other", [5, 40])
def test_exchanged_rows_are_found(other: int, file: Path) -> None:
    def exchange(rows: list[dict[str, Any]]) -> None:
        rows[4], rows[other] = rows[other], rows[4]

    tamper(file, exchange)
    assert set(wrong(file)) == {5, other + 1}
    assert set(wrong(file, is_whole=False)) == {5, other + 1}


def test_a_row_that_is_there_twice_is_found(file: Path) -> None:
    tamper(file, lambda rows: rows.insert(31, rows[30]))
    assert wrong(file) == {31: "offset 31 is there twice"}


def test_a_row_that_took_the_place_of_another_is_found(file: Path) -> None:
    """As many rows as there should be, so the number of rows tells nothing."""

    def exchange(rows: list[dict[str, Any]]) -> None:
        rows.insert(51, rows[50])
        del rows[10]

    tamper(file, exchange)
    assert wrong(file) == {51: "offset 51 is there twice"}


def test_a_file_with_other_columns_is_not_believed(file: Path) -> None:
    write_file(file, ROWS.drop_columns(["name"]).append_column("colour", pa.nulls(60, pa.string())))
    assert "without name, with colour" in wrong(file)[1]


def test_order_is_judged_by_the_fewest_rows_or_those_exchanged() -> None:
    def judge(*offsets: int) -> list[int]:
        return [offsets[at] for at in misplaced(np.array(offsets))]

    assert judge(1, 2, 3, 4) == []
    assert judge(1, 3, 2, 4) == [3, 2]
    assert judge(1, 5, 3, 4, 2) == [5, 2]
    assert judge(1, 9, 2, 3, 4, 5, 6) == [9]
    assert judge(2, 3, 4, 5, 6, 1) == [1]
    assert repeated(np.array([1, 2, 2, 3, 1])) == [2, 4]
    assert stretches(np.array([5, 1, 2, 3, 9, 8, 2])) == [(1, 3), (5, 5), (8, 9)]


def test_what_is_missing_or_there_twice_in_a_topic_is_told() -> None:
    def told(*there: Stretch, lost: list[Stretch] | None = None) -> list[str]:
        note = {"first": 1, "last": 100}
        return [flaw.reason for flaw in flaws_of(there, lost or [], note)]

    assert told(Stretch(1, 50), Stretch(51, 100)) == []
    assert told(Stretch(51, 120), Stretch(1, 50)) == []
    assert told(Stretch(1, 50), Stretch(52, 99)) == ["offset 51: missing", "offset 100: missing"]
    assert told(Stretch(3, 60), Stretch(51, 100)) == [
        "offsets 1 to 2: missing",
        "offsets 51 to 60: in another file, too",
    ]
    assert told(Stretch(1, 50), Stretch(80, 100), lost=[Stretch(60, 70)]) == [
        "offsets 51 to 59: missing",
        "offsets 71 to 79: missing",
    ]
    assert told(Stretch(1, 50), Stretch(71, 100), lost=[Stretch(51, 70)]) == []
    assert told() == ["offsets 1 to 100: missing"]
