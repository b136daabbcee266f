"""What programs in other languages are told, and what they say: views of the model, and back."""

import msgspec
import pytest

from pulsarcast.model import api
from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import cid_of, cid_text, peer_text
from pulsarcast.model.topics import (
    AttributeRule,
    DeliveryOrder,
    Dissemination,
    EventLinking,
    Retention,
    TopicSettings,
)
from tests.unit.model.samples import ALICE, BOB, CAROL, CREATED, TOPIC, own_event

PEERS = (ALICE.peer_id, BOB.peer_id)
SETTINGS = TopicSettings(
    order=DeliveryOrder.TOTAL,
    dissemination=Dissemination.CUBE,
    publishers=PEERS,
    request_to_publish=True,
    requesters=(CAROL.peer_id,),
    linking=EventLinking.CUSTOM,
    sequencers=PEERS[:1],
    retention=Retention(60, 1000, 1 << 20),
    payload_bytes_max=1024,
    attributes=(AttributeRule("price", "float", 0.5, 9.5), AttributeRule("symbol", "str")),
)


def through_json(view: api.SettingsView) -> api.SettingsView:
    return msgspec.json.decode(msgspec.json.encode(view), type=api.SettingsView)


@pytest.mark.parametrize("settings", [SETTINGS, TopicSettings()], ids=["all set", "none set"])
def test_settings_come_back_as_they_were(settings: TopicSettings) -> None:
    view = through_json(api.settings_view(settings))
    assert api.settings_from(view, TopicSettings()) == settings


def test_a_view_says_who_may_do_what() -> None:
    view = api.settings_view(SETTINGS)
    assert view.publishers == [peer_text(peer) for peer in PEERS]
    assert view.requesters == [peer_text(CAROL.peer_id)]
    assert view.sequencers == [peer_text(PEERS[0])]
    assert view.retention == api.RetentionView(60, 1000, 1 << 20)
    assert view.attributes is not None
    assert view.attributes[0] == api.AttributeRuleView("price", "float", 0.5, 9.5)


def test_what_a_view_leaves_out_stays_as_it_is() -> None:
    kept = api.settings_from(api.SettingsView(order="total"), SETTINGS)
    assert kept.payload_bytes_max == 1024
    assert kept.attributes == SETTINGS.attributes
    assert kept.sequencers == SETTINGS.sequencers
    assert api.settings_from(api.SettingsView(), SETTINGS).sequencers == (), "of total order only"


def test_an_event_comes_back_from_its_view() -> None:
    parents = (cid_of(b"before"),)
    event = own_event(
        name="a name", payload=b"hello", parents=parents, attributes={"a": 1, "b": b"\xff"}
    )
    view = api.event_view(3, event, redelivery=True)
    again = msgspec.json.decode(msgspec.json.encode(view), type=api.EventView)
    assert again == view
    assert (again.index, again.id, again.topic) == (3, cid_text(event.cid), cid_text(TOPIC))
    assert (again.author, again.publisher) == (peer_text(ALICE.peer_id),) * 2
    assert (again.epoch, again.number, again.created_us) == ("7", 1, CREATED)
    assert (again.name, again.payload, again.text()) == ("a name", b"hello", "hello")
    assert again.parents == [cid_text(parent) for parent in parents]
    assert (again.redelivery, again.merge) == (True, False)
    assert {name: api.attribute_from(each) for name, each in again.attributes.items()} == {
        "a": 1,
        "b": b"\xff",
    }


def test_what_is_left_out_of_an_event_is_nothing() -> None:
    named = {"id": "i", "topic": "t", "author": "a", "publisher": "p", "epoch": "1", "payload": ""}
    text = msgspec.json.encode({"index": 1, "number": 1, **named})
    view = msgspec.json.decode(text, type=api.EventView)
    assert (view.parents, view.attributes, view.name) == ([], {}, "")
    assert (view.redelivery, view.merge, view.created_us, view.payload) == (False, False, 0, b"")


def test_an_event_to_publish_needs_no_more_than_a_payload() -> None:
    new = msgspec.json.decode(b'{"payload": "hello"}', type=api.NewEvent)
    assert (new.parents, new.attributes, new.name) == ([], {}, "")
    assert (new.encoding, new.ack) == ("utf-8", "replicated")


def test_a_log_without_a_schema_has_no_attributes() -> None:
    texts = dict.fromkeys(("topic", "name", "author", "version_id", "store", "log"), "x")
    numbers = {"version": 1, "oldest": 1, "newest": 0, "subtopics": {}}
    view = msgspec.json.decode(msgspec.json.encode({**texts, **numbers}), type=api.LogView)
    assert view.attributes == []


@pytest.mark.parametrize("data", [b"", b"plain", "täxt".encode(), b"\xff\x00", bytes(range(256))])
def test_bytes_come_back_from_what_json_says(data: bytes) -> None:
    text, encoding = api.from_bytes(data)
    assert api.to_bytes(text, encoding) == data


@pytest.mark.parametrize(
    ("text", "encoding"), [("a", "base64"), ("a*==", "base64"), ("\ud800", "utf-8")]
)
def test_what_are_no_bytes_is_refused(text: str, encoding: api.Encoding) -> None:
    with pytest.raises(LocalError, match=r"not base64|not Unicode"):
        api.to_bytes(text, encoding)
