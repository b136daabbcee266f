import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model import trace
from pulsarcast.model.errors import LocalError, Verdict
from pulsarcast.model.events import Position
from pulsarcast.model.ids import cid_of, cid_text, peer_text
from pulsarcast.model.topics import DeliveryOrder, Dissemination, EventLinking, Mark
from tests.unit.model.samples import ALICE, cids, counts, peers

PEER, CID = ALICE.peer_id, cid_of(b"event")
ENVELOPE = trace.Envelope("run", peer_text(PEER), 1, 5, 1_600_000_000_000_000_000, 42)

RECORDS: list[trace.Record] = [
    trace.NodeStarted(),
    trace.NodeStopped('told "so"\n'),
    trace.Resources(1.5, 2, 3, 4),
    trace.Fault("kill", "node-1"),
    trace.Fault("kill", "node-1", "on purpose", 2),
    trace.TopicCreated(CID, "é", PEER, DeliveryOrder.PER_PUBLISHER, Dissemination.CUBE, CID),
    trace.TopicCreated(
        CID,
        "é",
        PEER,
        DeliveryOrder.NONE,
        Dissemination.TREE,
        CID,
        EventLinking.CUSTOM,
        (PEER,),
        60,
        7,
        1000,
    ),
    trace.TopicVersion(CID, CID, 1),
    trace.TopicVersion(CID, CID, 2, (PEER,), retention_count=7),
    trace.TopicVersion(CID, CID, 3, flushed=(Mark(PEER, 1, 9),)),
    trace.NameChanged(PEER, "é", CID, CID, 2, clash=True),
    trace.Subscribed(CID, (Mark(PEER, (1 << 63) - 1, 2), Mark(PEER, 1, 1))),
    trace.Subscribed(CID, (), in_parts=True),
    trace.StartLoaded(CID, (Mark(PEER, 1, 1),), whole=True),
    trace.Unsubscribed(CID),
    trace.Unsubscribed(CID, (Mark(PEER, 1, 1),)),
    trace.LeaderChanged(CID, 3, PEER),
    trace.Retired(CID, PEER, 1, 2),
    trace.Injected(CID, "i-1", PEER),
    trace.Published(CID, CID, CID, PEER, PEER, 1, 2, (CID,), Position(1, 2), b"r" * 32, "i-1"),
    trace.Published(CID, CID, CID, PEER, PEER, 1, 2, (), None, b"r" * 32),
    trace.Published(CID, CID, CID, PEER, PEER, 1, 2, (CID,), None, b"r" * 32, "", merge=True),
    trace.Acknowledged(CID, CID, "i-1", "replicated", 3),
    trace.Refused(CID, "i-1", "not allowed"),
    trace.Delivered(CID, CID, PEER, 1, 2, 3, 4, redelivery=True),
    trace.RpcSent("join", CID, PEER, 100),
    trace.RpcReceived("find", None, PEER, 100),
    trace.GapFound(CID, PEER, 1, 2, 3),
    trace.GapFilled(CID, PEER, 1, 2, None),
    trace.Rejected(Verdict.REJECT, "a wrong signature", PEER, None),
]


@pytest.mark.parametrize("record", RECORDS, ids=trace.kind_of)
def test_a_record_survives_being_a_line(record: trace.Record) -> None:
    line = trace.encode_line(ENVELOPE, record)
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert trace.decode_line(line) == (ENVELOPE, record)


def test_every_kind_of_record_is_tried_above() -> None:
    assert {type(record) for record in RECORDS} == set(trace.RECORDS)


@pytest.mark.parametrize("record", RECORDS, ids=trace.kind_of)
def test_a_line_holds_what_the_schema_says(record: trace.Record) -> None:
    fields = json.loads(trace.encode_line(ENVELOPE, record))
    schema = {**trace.ENVELOPE_SCHEMA, "kind": "string", **trace.SCHEMA[trace.kind_of(record)]}
    assert fields.keys() == schema.keys()
    python_types = {"string": str, "bigint": int, "double": float, "boolean": bool}
    for name, value in fields.items():
        if value is not None:
            expected = python_types.get(schema[name], list if "array" in schema[name] else dict)
            assert type(value) is expected, name


def test_a_name_has_one_type_in_all_kinds() -> None:
    # Spark reads all lines with one schema.
    types: dict[str, str] = dict(trace.ENVELOPE_SCHEMA)
    for fields in trace.SCHEMA.values():
        for name, ddl in fields.items():
            assert types.setdefault(name, ddl) == ddl, name


@pytest.mark.parametrize("kind", trace.RECORDS, ids=lambda kind: kind.__name__)
def test_what_a_line_leaves_out_says_nothing(kind: type[trace.Record]) -> None:
    """Lines of older versions lack what came later, and were not wrong."""
    for field in msgspec.structs.fields(kind):
        if field.default is not msgspec.NODEFAULT and field.name != "linking":
            assert not field.default, field.name
            assert msgspec.convert(field.default, field.type) == field.default, field.name


def test_what_nobody_injected_names_no_injection() -> None:
    published = trace.Published(CID, CID, CID, PEER, PEER, 1, 2, (), None, b"r" * 32)
    assert json.loads(trace.encode_line(ENVELOPE, published))["injection"] is None


def test_ids_are_text_in_a_line() -> None:
    fields = json.loads(trace.encode_line(ENVELOPE, trace.RpcSent("join", CID, PEER, 1)))
    assert fields["topic"] == cid_text(CID)
    assert fields["peer"] == peer_text(PEER)


@given(cids, peers, counts, st.text(), st.text(), st.integers(0, (1 << 63) - 1))
def test_any_texts_and_numbers_survive(
    cid: bytes, peer: bytes, number: int, reason: str, run_id: str, seq: int
) -> None:
    envelope = trace.Envelope(run_id, "driver", 1, seq, number, number)
    record = trace.NodeStopped(reason)
    assert trace.decode_line(trace.encode_line(envelope, record)) == (envelope, record)


def test_an_unknown_kind_is_kept() -> None:
    line = trace.encode_line(ENVELOPE, trace.Unsubscribed(CID))
    newer = line.replace(b"unsubscribed", b"dreamt_of")
    read = trace.decode_line(newer)
    assert read.record == trace.Unknown("dreamt_of", {"topic": cid_text(CID), "end": []})
    assert trace.kind_of(read.record) == "dreamt_of"
    assert trace.encode_line(*read) == newer


def test_an_unknown_field_of_a_known_kind_is_left_aside() -> None:
    line = trace.encode_line(ENVELOPE, trace.Unsubscribed(CID))
    newer = line.replace(b'"topic"', b'"mood":"fine","topic"')
    assert trace.decode_line(newer).record == trace.Unsubscribed(CID)


def test_a_line_of_the_first_version_lacks_what_came_later() -> None:
    line = trace.encode_line(ENVELOPE, trace.Unsubscribed(CID))
    older = line.replace(b'"schema_version":7', b'"schema_version":1').replace(b',"end":[]', b"")
    assert trace.decode_line(older).record == trace.Unsubscribed(CID)
    with pytest.raises(LocalError):
        trace.decode_line(older.replace(b'"schema_version":1', b'"schema_version":7'))


def test_filters_are_named_and_an_older_line_without_them_wants_everything() -> None:
    wanted = trace.Subscribed(CID, (), ("price < 10", "symbol = 'I\u00e9\"'"))
    line = trace.encode_line(ENVELOPE, wanted)
    assert trace.decode_line(line).record == wanted
    full = trace.encode_line(ENVELOPE, trace.Subscribed(CID, ()))
    assert b',"filters":null,' in full
    older = full.replace(b'"schema_version":7', b'"schema_version":3')
    older = older.replace(b',"filters":null', b"")
    assert trace.decode_line(older).record == trace.Subscribed(CID, ())


def test_a_version_says_what_it_flushed_and_an_older_line_says_nothing_of_it() -> None:
    line = trace.encode_line(ENVELOPE, trace.TopicVersion(CID, CID, 1))
    assert line.endswith(b',"flushed":[]}\n')
    older = line.replace(b'"schema_version":7', b'"schema_version":4')
    older = older.replace(b',"flushed":[]', b"")
    assert trace.decode_line(older).record == trace.TopicVersion(CID, CID, 1)


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b"nonsense", b'{"kind":"unsubscribed"}'])
def test_what_is_no_line_is_an_error(line: bytes) -> None:
    with pytest.raises(LocalError):
        trace.decode_line(line)


def test_a_line_cut_short_is_an_error() -> None:
    line = trace.encode_line(ENVELOPE, trace.Subscribed(CID, (Mark(PEER, 1, 1),)))
    for length in range(len(line) - 1):
        with pytest.raises(LocalError):
            trace.decode_line(line[:length])


def test_messages_are_written_at_the_fuller_level_only() -> None:
    message, delivery = trace.RpcSent("join", None, PEER, 1), trace.Unsubscribed(CID)
    assert not trace.is_written_at("delivery", message)
    assert trace.is_written_at("rpc", message)
    assert trace.is_written_at("delivery", delivery)
    assert trace.is_written_at("rpc", delivery)
