"""Columns of events, held against the model that reads the same bytes with all its checks."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from pulsarcast.model import api
from pulsarcast.model.events import EventDescriptor, Sequence, read_own_event
from pulsarcast.model.ids import cid_of, cid_text, peer_text
from pulsarcast.model.marks import Mark
from pulsarcast.model.pages import Page, decode_page, encode_page
from pulsarcast.pipeline.topics import columns
from pulsarcast.pipeline.topics.columns import TopicColumns
from pulsarcast.pipeline.topics.schema import arrow_schema, spark_schema
from tests.unit.model.samples import (
    BOB,
    TOPIC,
    causal_events,
    own_event,
    own_events,
    requested_events,
)

RECEIVED_US = 1_600_000_000_000_007
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EMPTY = {"bool": None, "int": None, "float": None, "text": None, "bytes": None}


def page_of(events: list[EventDescriptor], *, first: int = 1) -> Page:
    return decode_page(
        encode_page(
            [(first + at, RECEIVED_US + at, event.block) for at, event in enumerate(events)]
        )
    )


def rows(table: TopicColumns, page: Page) -> list[dict[str, Any]]:
    return [row for batch in table.batches(page) for row in batch.to_pylist()]


def attribute(value: object) -> dict[str, Any]:
    fields = {bool: "bool", int: "int", float: "float", str: "text", bytes: "bytes"}
    return {**EMPTY, fields[type(value)]: value}


def header(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()


@pytest.mark.parametrize("more", [{}, {"headers": True}, {"blocks": True}])
def test_arrow_and_spark_agree_on_what_a_row_is(more: dict[str, bool]) -> None:
    expected = to_arrow_schema(spark_schema(**more), timezone="UTC")
    assert arrow_schema(**more).equals(expected)


def test_a_merge_has_no_payload_and_what_is_empty_has_an_empty_one() -> None:
    parent, mark = (cid_of(b"a head"),), (Mark(BOB.peer_id, 1, 1),)
    merge = own_event(payload=b"", parents=parent, marks=mark, is_merge=True)
    empty = own_event(payload=b"", parents=parent, marks=mark)
    table = TopicColumns(cid_text(TOPIC), "talk")
    assert [row["payload"] for row in rows(table, page_of([merge, empty]))] == [None, b""]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        own_events() | requested_events() | causal_events().filter(lambda e: not e.is_merge),
        min_size=1,
        max_size=4,
    )
)
def test_a_row_says_what_the_model_says(events: list[EventDescriptor]) -> None:
    for index, event in enumerate(events, start=1):
        table = TopicColumns(cid_text(event.topic), "news", headers=True, blocks=True)
        (row,) = rows(table, page_of([event], first=index))
        model = read_own_event(event.block)
        view = api.event_view(index, model)
        assert row["topic"] == view.topic
        assert row["topic_name"] == "news"
        assert row["offset"] == view.index
        assert row["event_id"] == view.id
        assert row["version"] == cid_text(model.version)
        assert (row["publisher"], row["author"]) == (view.publisher, view.author)
        assert row["sequence"] == {"epoch": int(view.epoch), "number": view.number}
        assert row["parents"] == view.parents
        assert row["name"] == view.name
        assert row["payload"] == view.payload
        attributes = model.request.attributes
        expected = {name: attribute(value) for name, value in attributes.items()}
        assert dict(row["attributes"]) == expected
        for name, found in row["attributes"]:
            ((kind, value),) = ((k, v) for k, v in found.items() if v is not None)
            assert type(value) is type(attributes[name]), kind
        assert row["headers"] == [
            {"key": name, "value": header(value)} for name, value in attributes.items()
        ]
        assert row["created"] == EPOCH + timedelta(microseconds=view.created_us)
        assert row["received"] == EPOCH + timedelta(microseconds=RECEIVED_US)
        assert row["block"] == event.block


def test_every_type_of_an_attribute_stays_what_it_is() -> None:
    given_ones: dict[str, Any] = {
        "yes": True, "one": 1, "real": 1.0, "text": "ä", "bytes": b"\x00\xff", "zero": 0,
        "no": False, "empty": "", "nothing": b"",
    }  # fmt: skip
    event = own_event(attributes=given_ones)
    (row,) = rows(TopicColumns(cid_text(TOPIC), "news", headers=True), page_of([event]))
    assert dict(row["attributes"]) == {name: attribute(each) for name, each in given_ones.items()}
    headers = {each["key"]: each["value"] for each in row["headers"]}
    assert headers["yes"] == b"true"
    assert headers["one"] == b"1"
    assert headers["real"] == b"1.0"
    assert headers["text"] == "ä".encode()
    assert headers["bytes"] == b"\x00\xff"


def test_a_long_page_becomes_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "ROWS_MAX", 4)
    events = [
        own_event(sequence=Sequence(7, number), payload=b"%d" % number, attributes={"n": number})
        for number in range(1, 12)
    ]
    table = TopicColumns(cid_text(TOPIC), "news", blocks=True)
    batches = list(table.batches(page_of(events, first=100)))
    assert [batch.num_rows for batch in batches] == [4, 4, 3]
    found = pa.Table.from_batches(batches).to_pylist()
    assert [row["offset"] for row in found] == list(range(100, 111))
    assert [row["payload"] for row in found] == [event.payload for event in events]
    assert [row["block"] for row in found] == [event.block for event in events]
    assert [dict(row["attributes"])["n"]["int"] for row in found] == list(range(1, 12))
    assert {row["publisher"] for row in found} == {peer_text(events[0].publisher)}


def test_an_empty_page_has_no_rows() -> None:
    assert rows(TopicColumns(cid_text(TOPIC), "news"), page_of([])) == []


def test_a_payload_is_bytes_whatever_they_look_like() -> None:
    payloads = [b"", b"\x00", cid_text(TOPIC).encode(), bytes(TOPIC), base64.b64encode(b"x")]
    events = [own_event(payload=payload) for payload in payloads]
    found = rows(TopicColumns(cid_text(TOPIC), "news"), page_of(events))
    assert [row["payload"] for row in found] == payloads
