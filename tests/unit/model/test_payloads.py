"""Payloads as bytes, text and JSON: one form, round trips, and refusals that say what to do."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model import api
from pulsarcast.model.errors import InvalidPayload
from pulsarcast.model.payloads import (
    DEPTH_MAX,
    INT_MAX,
    decode_json,
    decode_text,
    encode_json,
    payload_bytes,
)
from pulsarcast.model.publications import Publication

UNSET = msgspec.UNSET

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-INT_MAX, INT_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=10,
)


@given(VALUES)
def test_a_value_comes_back_from_its_bytes(value: Any) -> None:
    data = encode_json(value)
    assert decode_json(data) == value == json.loads(data)
    assert encode_json(decode_json(data)) == data, "it has one form"
    assert repr(decode_json(data)) == repr(json.loads(data)), "any other reader reads the same"


def test_equal_values_have_equal_bytes() -> None:
    one, other = {"b": 1, "a": [True, None, "é"]}, {"a": [True, None, "é"], "b": 1}
    assert encode_json(one) == encode_json(other) == '{"a":[true,null,"é"],"b":1}'.encode()
    assert decode_json(b' {"b": 1,\n "a": 2} ') == {"a": 2, "b": 1}, "any form can be read"


HIMSELF: list[Any] = []
HIMSELF.append(HIMSELF)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (math.nan, "json= is nan, which JSON does not have: give None or text"),
        ([1, -math.inf], "json[1] is -inf, which JSON does not have: give None or text"),
        ({"id": 1 << 53}, "json['id'] is an integer of more than 53 bits, which some readers"),
        (-(1 << 70), "give it as text: str(value)"),
        ({1: 2}, "json= has the key 1, and keys are text in JSON: give str(key)"),
        ({"a": {None: 2}}, "json['a'] has the key None"),
        ({b"a": 1}, "has the key b'a'"),
        ({"at": datetime(2026, 1, 1, tzinfo=UTC)}, "json['at'] is of type datetime, which JSON"),
        ([date(2026, 1, 1)], "value.isoformat()"),
        (Decimal(1), "json= is of type Decimal, which JSON does not have: give it as text"),
        ({"raw": b"x"}, "publish bytes as the payload itself, or in base64"),
        ({1, 2}, "is of type set, which JSON does not have: give a list"),
        (UUID(int=1), "is of type UUID, which JSON does not have: give text, a number"),
        (HIMSELF, f"has more than {DEPTH_MAX} levels"),
        (["\ud800"], "not Unicode"),
        ({"\udfff": 1}, "not Unicode"),
        ({"x" * 500: math.nan}, "json['xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…] is nan"),
    ],
)
def test_what_json_cannot_say_alike_everywhere_is_refused(value: object, sentence: str) -> None:
    with pytest.raises(InvalidPayload) as refused:
        encode_json(value)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"sunny", b"NaN", b"Infinity", b"[1,]", b"{'a': 1}", b'"\xff"', b'"\\ud800"', b"1 2",
        b'{"a":1,"a":2}', b'[{"b":{"a":1,"\\u0061":2}}]', b"\xef\xbb\xbf1", b"1e400", b"9" * 5000,
        b"[" * 100_000, b'{"a":' * 100_000, b"nul", b"\x00", "{}".encode("utf-16"),
    ],
)  # fmt: skip
def test_bytes_that_readers_could_read_differently_are_no_json(data: bytes) -> None:
    with pytest.raises(InvalidPayload, match=r"the payload is (not JSON|nested too deeply)"):
        decode_json(data)


def test_an_integer_of_another_program_is_read_as_it_is() -> None:
    assert decode_json(b'{"n":18446744073709551616}') == {"n": 1 << 64}


@pytest.mark.parametrize(
    ("payload", "json_value", "sentence"),
    [
        ({"a": 1}, UNSET, "a payload is bytes or text, not dict: publish(topic, json=VALUE)"),
        (5, UNSET, "not int"),
        ([b"x"], UNSET, "json=VALUE"),
        (None, UNSET, "give a payload, as bytes or text, or json=VALUE"),
        (b"x", 1, "not both"),
        ("", None, "not both"),
        ("\ud800", UNSET, "not Unicode"),
    ],
)
def test_a_payload_of_another_type_is_refused_with_advice(
    payload: Any, json_value: object, sentence: str
) -> None:
    with pytest.raises(InvalidPayload) as refused:
        Publication(payload=payload, json=json_value)
    assert sentence in str(refused.value)


def test_a_payload_is_bytes_text_or_a_value() -> None:
    assert payload_bytes(bytearray(b"x"), UNSET) == payload_bytes(memoryview(b"x"), UNSET) == b"x"
    assert payload_bytes("é", UNSET) == "é".encode()
    assert payload_bytes(None, None) == b"null", "None is a JSON value as any other"
    assert decode_text("é".encode()) == "é"
    with pytest.raises(InvalidPayload, match="not text"):
        decode_text(b"\xff")


def test_a_value_that_changes_later_is_published_as_it_was() -> None:
    value = {"n": 1}
    publication = Publication(json=value)
    value["n"] = 2
    assert publication.data == b'{"n":1}'


def given_over_http(text: str) -> bytes:
    new = msgspec.json.decode(text.encode(), type=api.NewEvent)
    one_of_many = msgspec.json.decode(text.encode(), type=api.BatchEvent)
    assert api.payload_from(new) == api.payload_from(one_of_many)
    return api.payload_from(new)


def test_http_takes_a_payload_or_any_json_value() -> None:
    assert given_over_http('{"json": {"b": 1, "a": null}}') == b'{"a":null,"b":1}'
    assert given_over_http('{"json": null}') == b"null"
    assert given_over_http('{"payload": ""}') == b""
    for text, sentence in (
        ("{}", "give payload, a text, or json"),
        ('{"payload": "x", "json": 1}', "not both"),
        ('{"json": {"a": 1, "a": 2}}', "json is not JSON: an object has the key 'a' twice"),
        ('{"json": {"n": 9007199254740993}}', "give it as text"),
    ):
        with pytest.raises(InvalidPayload, match=sentence):
            given_over_http(text)


def test_text_that_json_escapes_is_sent_in_base64_if_it_is_long() -> None:
    for data in (b"\x01" * 600_000, b"\xff", b"plain", b"", b"\x01"):
        event = api.batch_event(Publication(payload=data))
        assert api.payload_from(event) == data
        assert len(msgspec.json.encode(event)) < 1_000_000, "a daemon takes no more than 2 MiB"


@given(st.binary())
def test_the_clients_event_has_the_bytes_that_were_published(data: bytes) -> None:
    text, encoding = api.from_bytes(data)
    event = {
        "index": 1, "id": "i", "topic": "t", "author": "a", "publisher": "p", "epoch": "1",
        "number": 1, "payload": text, "encoding": encoding,
    }  # fmt: skip
    view = msgspec.json.decode(msgspec.json.encode(event), type=api.EventView)
    assert view.payload == data
