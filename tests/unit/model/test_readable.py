import json
from typing import Any

import pytest
from hypothesis import given, settings

from pulsarcast.model.errors import LocalError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import cid_of, cid_text, peer_text
from pulsarcast.model.pointers import sign_pointer
from pulsarcast.model.readable import from_readable, to_readable
from pulsarcast.model.topics import Mark, TopicSettings, create_topic, next_version
from tests.unit.model.samples import (
    ALICE,
    CREATED,
    NONCE,
    events,
    own_event,
    requested_event,
    topic,
    topic_settings,
)


def through_json(readable: dict[str, Any]) -> Any:
    return json.loads(json.dumps(readable, allow_nan=False))


@given(events)
def test_an_event_survives_being_read_by_people(event: EventDescriptor) -> None:
    assert from_readable(through_json(to_readable(event))) == event


@settings(max_examples=40)
@given(topic_settings())
def test_a_topic_survives_being_read_by_people(chosen: TopicSettings) -> None:
    first = create_topic(ALICE, "news", chosen, created=CREATED, meta=cid_of(b"meta"), nonce=NONCE)
    later = next_version(
        ALICE, first, first.settings, created=CREATED, valid_until=[Mark(ALICE.peer_id, 1, 2)]
    )
    for version in (first, later):
        assert from_readable(through_json(to_readable(version))) == version


def test_an_event_reads_like_listing_3_2() -> None:
    event = requested_event()
    readable = to_readable(event)
    assert readable["publisher"] == peer_text(event.publisher)
    assert readable["author"] == peer_text(event.author)
    assert readable["topic"] == {"/": cid_text(event.topic)}
    assert readable["payload"] == {"/": {"bytes": "cGxlYXNl"}}
    assert readable["metadata"]["created"] == "2020-01-01T00:00:00.000000Z"
    assert readable["metadata"]["protocolVersion"] == "1"


def test_a_topic_reads_like_listing_3_1() -> None:
    made = topic(TopicSettings(publishers=(ALICE.peer_id,)))
    readable = to_readable(made)
    assert readable["#"] == {"meta": {"/": cid_text(made.subtopics["meta"])}}
    assert readable["parent"] is None
    assert readable["metadata"]["allowedPublishers"] == {
        "enabled": True,
        "peers": [peer_text(ALICE.peer_id)],
    }
    assert readable["metadata"]["requestToPublish"] == {"enabled": True, "peers": None}
    assert readable["metadata"]["eventLinking"] == "LAST_SEEN"


def test_a_pointer_is_readable() -> None:
    readable = to_readable(sign_pointer(ALICE, "news", 3, cid_of(b""), topic=cid_of(b"t")))
    assert readable["newest"] == {"/": cid_text(cid_of(b""))}
    assert readable["topic"] == {"/": cid_text(cid_of(b"t"))}
    assert readable["moves"] == 0


def test_what_a_person_changed_no_longer_verifies() -> None:
    readable = to_readable(own_event(name="before"))
    with pytest.raises(LocalError, match="signature"):
        from_readable({**readable, "name": "after"})


@pytest.mark.parametrize(
    "readable",
    [
        {},
        {"descriptor": "pointer"},
        {"descriptor": "event"},
        {"descriptor": ["event"]},
        {**to_readable(own_event()), "topic": "not a link"},
        {**to_readable(own_event()), "payload": {"/": {"bytes": "?"}}},
        {**to_readable(own_event()), "metadata": None},
        {**to_readable(own_event()), "sequence": {"epoch": 1}},
        {**to_readable(topic()), "author": 7},
    ],
)
def test_what_is_no_readable_descriptor_is_the_callers_error(readable: dict[str, Any]) -> None:
    with pytest.raises(LocalError):
        from_readable(readable)
